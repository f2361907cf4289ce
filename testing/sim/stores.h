#pragma once

#include <string>

#include "sim/simulator.h"

namespace varve::sim {

/// One store, perhaps over several places, and another one behind it: saves, drops, prunes, rebalances, pushes, repairs
/// and restores by processes that know nothing of each other, some of which are killed or paused. At the end every set
/// that was saved and not dropped has to be there, and one prune leaves nothing that no set needs.
void play_stores(Simulator& simulator, const std::string& scratch);

}  // namespace varve::sim
