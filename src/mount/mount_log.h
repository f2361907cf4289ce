#pragma once

#include <functional>
#include <string>

#include "varve/status.h"

namespace varve {

/// Takes one line of what a mount has to tell: damage, sets that were sealed or could not be. Called from several
/// threads at once.
using MountLog = std::function<void(const std::string& line)>;

}  // namespace varve
