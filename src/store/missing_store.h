#pragma once

#include <string>

#include "core/file_system.h"

namespace varve {

inline constexpr const char* kHowToRestoreHeader = "run `varve repair`: the arenas say what was in it";

/// Why no store can be opened in a folder that has no header. corrupt: there is one that has lost it. not_found: there
/// is none.
Status missing_store(FileSystem& fs, const std::string& path);

}  // namespace varve
