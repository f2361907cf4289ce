#pragma once

#include <functional>

#include "varve/status.h"

namespace varve::cli {

/// Has `work` done by a process of its own that goes on when this one ends, without a terminal, in the root folder and
/// with standard input, output and error closed from the moment when it calls `ready`. Returns when it does, or what
/// made it fail before. The process must have no threads.
Status run_in_background(const std::function<Status(const std::function<Status()>& ready)>& work);

}  // namespace varve::cli
