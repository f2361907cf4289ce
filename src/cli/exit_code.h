#pragma once

#include <string_view>

#include "varve/status.h"

namespace varve::cli {

/// What the program returns to whoever started it. Stable: scripts rely on it (docs/GUIDE.md, "Exit codes").
enum class ExitCode : int {
  success = 0,
  failure = 1,         ///< the system failed: input or output, no space, permission, memory, a missing feature
  usage = 2,           ///< the command line makes no sense
  not_found = 3,       ///< a store, set, file or variable that was named does not exist
  damaged = 4,         ///< stored bytes are not what they should be
  already_exists = 5,  ///< what was to be created exists
  busy = 6,            ///< somebody else is in the way: trying again may help
  interrupted = 130,   ///< stopped by a signal, in good order
};

ExitCode exit_code_of(StatusCode code);

/// A table of the codes, for the end of the help.
std::string_view exit_code_help();

}  // namespace varve::cli
