#pragma once

#include <string>

#include "sim/simulator.h"

namespace varve::sim {

/// `varve watch --levels --remove-originals` beside programs that write, close, open again, hold open and replace files
/// in the watched folder, while levels are away and the watcher is killed or paused. What a program has written is in
/// the folder, or at all levels where it is due; nothing is removed that a program has open for writing.
void play_watchers(Simulator& simulator, const std::string& scratch);

}  // namespace varve::sim
