#pragma once

#include <cstdint>
#include <functional>
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

/// Communicator::all_gather() of what mostly nobody says, or few do, or all much alike: `visit` is called for those
/// that have said something, by rank, one after the other, until it fails. Where only one says something, it costs a
/// broadcast; where several do, of each others are told how it differs from what the first one says. Collective.
/// resource_limit: a rank lacked memory, on all of them.
Status gather_told(Communicator& ranks, ByteSpan mine,
                   const std::function<Status(uint32_t rank, ByteSpan told)>& visit);

/// What a rank has said.
struct Told {
  uint32_t rank = 0;
  ByteVector bytes;
};
/// The same, all together.
Result<std::vector<Told>> gather_told(Communicator& ranks, ByteSpan mine);

}  // namespace varve
