#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// Whether some program has the file open for writing, or mapped so, as the kernel knows (fcntl(2), leases): of
/// programs on this machine alone. False where it cannot be told: for files of other users, unless one is privileged,
/// and on file systems without leases. not_found: there is no such file.
Result<bool> is_being_written(const std::string& path);

/// From here on every write to the file changes its times, also one through a mapping that a program has already, which
/// changes none while its page is dirty: such pages are written back. Costs nothing for a file that nobody has open for
/// writing. `descriptor`: open for reading only. On file systems without a disk (tmpfs) mappings stay unnoticed.
Status have_writes_noticed(int descriptor, const std::string& path);

}  // namespace varve
