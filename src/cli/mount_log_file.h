#pragma once

#include <string>

#include "mount/mount_log.h"

namespace varve::cli {

/// A log whose lines go to the end of a file, with date and time before each; empty: to standard error.
Result<MountLog> open_mount_log(const std::string& path);

}  // namespace varve::cli
