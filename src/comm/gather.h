#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// What each of `members` (ranks, the same list on all of them) gives, by place in the list, on the first of them; on
/// the others nothing. Called by all members, and by nobody else, in the same order as other calls of this; by messages
/// along a tree, so that nobody gets more of them than the logarithm of their number. Needs a communicator that is
/// concurrent(). corrupt: what a member says makes no sense.
Result<std::vector<ByteVector>> gather_to_first(Communicator& ranks, std::span<const uint32_t> members,
                                                size_t own_place, ByteSpan mine);

}  // namespace varve
