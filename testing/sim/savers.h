#pragma once

#include <string>

#include "sim/simulator.h"

namespace varve::sim {

/// What `varve save --levels` and `varve watch --levels --remove-originals` do: sets are saved to a near store and
/// brought to those behind it, which may be away; the original is removed when that is done. No set that was saved may
/// be nowhere, and nothing is owed once all is well again and everybody came by once more.
void play_savers(Simulator& simulator, const std::string& scratch);

}  // namespace varve::sim
