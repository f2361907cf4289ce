#pragma once

#include <string>

#include "sim/simulator.h"

namespace varve::sim {

/// A job that checkpoints to some levels, is hit by faults, and is started again; at the end without faults, when all
/// that was promised has to be there.
void play_runs(Simulator& simulator, const std::string& scratch);

}  // namespace varve::sim
