#include "watch/removing_folder.h"

#include <unistd.h>

#include <set>

#include "core/file_system.h"

namespace varve {

bool put_back_unremoved(const std::string& folder, const std::vector<SourceFile>& files) {
  const std::string removing = kRemovingFolder;
  std::set<std::string> emptied;
  bool changed = false;
  for (const SourceFile& file : files) {
    const size_t slash = file.path.rfind('/');
    if (slash == std::string::npos || file.type == FileType::directory) continue;
    const std::string inner = file.path.substr(0, slash);
    if (inner != removing && !inner.ends_with("/" + removing)) continue;
    const std::string outer = inner.substr(0, inner.size() - removing.size());  // with its slash
    if (!posix_file_system()
             .rename_no_replace(join_path(folder, file.path), join_path(folder, outer + file.path.substr(slash + 1)))
             .ok())
      continue;
    changed = true;
    emptied.insert(inner);
  }
  for (const SourceFile& file : files) {
    const bool is_removing = file.path == removing || file.path.ends_with("/" + removing);
    if (file.type == FileType::directory && is_removing && ::rmdir(join_path(folder, file.path).c_str()) == 0)
      changed = true;
  }
  return changed;
}

}  // namespace varve
