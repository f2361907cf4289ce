#pragma once

#include <string>

#include "varve/status.h"

namespace varve {

/// io_error if the kernel has failed to write anything of the regular files below `folder` to their disk, and nobody
/// has been told: what it gives for their bytes may then be what was there before. Asks, and writes nothing.
Status check_written_back(const std::string& folder);

}  // namespace varve
