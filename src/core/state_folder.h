#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// Where what programs of this user keep outlives them on this machine: $XDG_STATE_HOME/varve, else
/// ~/.local/state/varve. It need not be there. invalid_argument: neither variable is set.
Result<std::string> state_folder();

}  // namespace varve
