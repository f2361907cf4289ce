#pragma once

#include <string>
#include <vector>

#include "redundancy/node_redundancy.h"

namespace varve {

/// The sets whose redundancy folders a node's store has; of one job only, unless it is empty. None if there is no
/// store.
Result<std::vector<SetName>> list_redundancy(const NodePlace& place, const std::string& job);

/// All that any of the leaders gave, the newest first; the same on all. Collective.
Result<std::vector<SetName>> unite_sets(Communicator& leaders, const std::vector<SetName>& mine);

/// Removes what rebuilds that were stopped have left in a store: unfinished files, folders with nothing in them, and
/// the folders of a store that did not come into being. OK if there is none.
Status tidy_redundancy(const NodePlace& place);

}  // namespace varve
