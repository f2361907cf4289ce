#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "varve/communicator.h"

namespace varve {

/// Some ranks of a communicator as one of their own, made of the parent's messages alone, its collective calls too: so
/// a thread beside the program's may use it while the program makes collective calls of the parent, and ranks that are
/// no members need not know of it. Members are numbered as they stand in `members`, which is the same on all of them.
///
/// A collective call that fails on one member fails on all that need its part, so that none waits in vain.
///
/// `parent` outlives it. Collective calls use the parent's tag `first_tag`, messages of tag t use `first_tag` + 1 + t:
/// nobody else uses those between its members. concurrent().
///
/// unsupported unless the parent is concurrent(); invalid_argument unless the members are different ranks of it, this
/// rank among them.
Result<std::unique_ptr<Communicator>> make_subset_communicator(Communicator& parent, std::vector<uint32_t> members,
                                                               uint32_t first_tag);

}  // namespace varve
