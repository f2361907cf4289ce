#pragma once

#include <string>
#include <vector>

#include "aggregate/source.h"

namespace varve {

/// Lists a folder with all that is below it, without following symbolic links; sorted by path. Sockets, pipes and
/// devices are left out with a warning; what a restore that was killed has left there, without. Anything that cannot be
/// read is an error: a set is never silently less than its folder.
Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress);

/// The folder itself, as `.`: for check_unchanged().
Result<SourceFile> look_at_folder(const std::string& folder);

/// What has become of a file that is not any more what the scan saw: busy.
Status changed_while_saved(const std::string& path);

/// What a failed system call on what the scan saw means: changed_while_saved() if it is gone, or is something else by
/// now.
Status failed_while_saved(int error, std::string_view action, const std::string& path);

/// busy if the file, or what lies in the folder, differs from what the scan saw.
Status check_unchanged(const std::string& folder, const SourceFile& file);

}  // namespace varve
