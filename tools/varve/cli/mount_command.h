#pragma once

#include <string>

#include "cli/json.h"
#include "mount/mount_run.h"

namespace varve::cli {

/// A log whose lines go to the end of a file, in text with date and time before each.
Result<MountLog> open_mount_log(const std::string& path, LogForm form);
/// One whose lines go to the machine's own log.
MountLog system_mount_log(LogForm form);

}  // namespace varve::cli
