#pragma once

#include <functional>

#include "varve/status.h"

namespace varve::cli {

/// Has `work` done by a process of its own that goes on when this one ends, without a terminal and its streams. Returns
/// when that calls `ready`, from where on it is in the root folder, or what made it fail before. The process must have
/// no threads.
Status run_in_background(const std::function<Status(const std::function<Status()>& ready)>& work);

}  // namespace varve::cli
