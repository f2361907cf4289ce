#pragma once

#include <functional>
#include <memory>
#include <string>

#include "sim/simulator.h"
#include "sim/store_site.h"
#include "sim/world.h"

namespace varve::sim {

/// One store, perhaps over several places, and another one behind it: saves, drops, prunes, rebalances, pushes, repairs
/// and restores by processes that know nothing of each other, some of which are killed or paused. At the end every set
/// that was saved and not dropped has to be there, and one prune leaves nothing that no set needs.
void play_stores(Simulator& simulator, const std::string& scratch);

/// The same at a site that `make` makes, by the seed.
using MakeSite = std::function<std::unique_ptr<StoreSite>(World& world, Random& random)>;
void play_stores_at(Simulator& simulator, const std::string& scratch, const MakeSite& make);

}  // namespace varve::sim
