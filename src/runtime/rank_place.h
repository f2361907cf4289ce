#pragma once

#include <string>

#include "runtime/group_plan.h"

namespace varve {

/// Where the calling thread runs. Ranks are on the same node if they see the same folder of shared memory, so that
/// containers of one machine that do not count as several. not_found: the folder is not there.
Result<RankPlace> find_rank_place(const std::string& shared_folder);

}  // namespace varve
