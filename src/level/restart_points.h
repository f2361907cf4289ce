#pragma once

#include <vector>

#include "level/levels.h"
#include "level/restart_candidates.h"
#include "varve/session.h"
#include "varve/status.h"

namespace varve {

/// Session::restart_points(), once the levels are open. Collective.
Result<std::vector<RestartPoint>> list_restart_points(const Levels& levels);

/// Session::saved_variables(), likewise.
Result<std::vector<SavedVariable>> list_saved_variables(const Levels& levels, uint64_t step);

}  // namespace varve
