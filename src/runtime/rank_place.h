#pragma once

#include <string>

#include "runtime/group_plan.h"

namespace varve {

/// Where the calling thread runs. Ranks are on the same node if they see the same folder of shared memory, so that
/// containers of one machine that do not count as several. not_found: the folder is not there.
Result<RankPlace> find_rank_place(const std::string& shared_folder);

/// Where it runs according to VARVE_NODE, a name of a node: ranks of one place that say different names are on
/// different nodes then, as if they were on different machines, which one machine can be tried out with.
/// invalid_argument: it is no name (1 to 64 letters, digits, '.', '-' and '_', not '.' first).
Result<RankPlace> at_named_node(RankPlace place, const std::string& name);

}  // namespace varve
