#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"
#include "store/tree.h"

namespace varve {

/// One entry of a folder that is to be saved.
struct SourceFile {
  std::string path;  ///< relative to the folder
  FileType type = FileType::regular;
  uint32_t mode = 0;
  int64_t modified_s = 0;
  uint32_t modified_ns = 0;
  std::string link_target;
  uint64_t bytes = 0;
  bool sparse = false;    ///< fewer bytes allocated than it is long
  int64_t changed_s = 0;  ///< inode change time: tells whether the file was touched while it was saved
  uint32_t changed_ns = 0;
  int64_t rank = -1;
};

/// Lists a folder with all that is below it, without following symbolic links; sorted by path. Sockets, pipes and
/// devices are left out with a warning. Anything that cannot be read is an error: a set is never silently less than its
/// folder.
Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress);

/// busy if the file differs from what the scan saw.
Status check_unchanged(const std::string& folder, const SourceFile& file);

}  // namespace varve
