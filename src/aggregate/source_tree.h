#pragma once

#include <string>
#include <vector>

#include "aggregate/source.h"

namespace varve {

/// Lists a folder with all that is below it, without following symbolic links; sorted by path. Sockets, pipes and
/// devices are left out with a warning. Anything that cannot be read is an error: a set is never silently less than its
/// folder.
Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress);

/// busy if the file differs from what the scan saw.
Status check_unchanged(const std::string& folder, const SourceFile& file);

}  // namespace varve
