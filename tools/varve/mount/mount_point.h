#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// Makes sure that a store can be mounted on `folder`, which is to be empty, and returns its full path. A mount of ours
/// whose process has died is taken away.
Result<std::string> prepare_mount_point(const std::string& folder);

/// Takes a mount away. busy: programs use it.
Status unmount(const std::string& folder);

}  // namespace varve
