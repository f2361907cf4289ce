#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "varve/communicator.h"

namespace varve {

/// As many tags of the parent's are used by a subset.
inline constexpr uint32_t kSubsetTags = 4;

/// Some ranks of a communicator as one of their own, made of the parent's messages alone, its collective calls too: so a
/// thread beside the program's may use it while the program makes collective calls of the parent, and ranks that are no
/// members need not know of it. Members are numbered as they stand in `members`, which is the same on all of them.
///
/// A call that fails on one member fails on all that need its part, so that none waits in vain; after that the subset
/// is of no more use.
///
/// `parent` outlives it. Between its members, nobody else uses the parent's tags from `first_tag` up to
/// `first_tag + kSubsetTags`, so a subset of a subset has tags below kSubsetMessageTagsMax of its own.
///
/// unsupported unless the parent is concurrent(); invalid_argument unless the members are different ranks of it, this
/// rank among them.
Result<std::unique_ptr<Communicator>> make_subset_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t first_tag);

}  // namespace varve
