#pragma once

#include <string>

#include "mount/mount_run.h"

namespace varve::cli {

/// A log whose lines go to the end of a file, with date and time before each.
Result<MountLog> open_mount_log(const std::string& path);
/// One whose lines go to the machine's own log.
MountLog system_mount_log();

}  // namespace varve::cli
