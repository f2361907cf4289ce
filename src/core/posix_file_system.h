#pragma once

#include <memory>
#include <string>

#include "core/file_system.h"
#include "core/process.h"

namespace varve {

/// The File of an open regular file, for whom paths alone do not do. `path` is for messages; `direct` as in
/// CreateOptions.
std::unique_ptr<File> make_posix_file(std::string path, UniqueFd descriptor, bool direct);

}  // namespace varve
