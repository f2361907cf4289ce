#pragma once

#include <string>
#include <vector>

#include "aggregate/source.h"

namespace varve {

/// In each folder of which files are being removed: where they are for a moment.
inline constexpr const char* kRemovingFolder = ".varve-removing";

/// Gives files that a removal which was stopped has left in such folders their names back, as far as nobody else has
/// these. `files` are those of `folder`, as scan_source_tree() finds them. Returns whether anything has changed.
bool put_back_unremoved(const std::string& folder, const std::vector<SourceFile>& files);

}  // namespace varve
