#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// Whether some program has the file open for writing, or mapped so, as the kernel knows (fcntl(2), leases): of
/// programs on this machine alone. False where it cannot be told: for files of other users, unless one is privileged,
/// and on file systems without leases. not_found: there is no such file.
Result<bool> is_being_written(const std::string& path);

}  // namespace varve
