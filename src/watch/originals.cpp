#include "watch/originals.h"

#include <unistd.h>

#include <cerrno>

#include "aggregate/source_tree.h"
#include "core/file_system.h"

namespace varve {

Status remove_originals(const std::string& watched_folder, const FoundSet& set) {
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::regular) VARVE_TRY(check_unchanged(set.folder, file));
  }
  for (const SourceFile& file : set.files) {
    if (file.type == FileType::directory) continue;
    if (file.type == FileType::regular) VARVE_TRY(check_unchanged(set.folder, file));
    const std::string path = join_path(set.folder, file.path);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return Status::from_errno(errno, "remove", path);
  }
  // Sorted by path, so that the inner ones come last. What is not empty has something that is not the set's.
  for (auto file = set.files.rbegin(); file != set.files.rend(); ++file) {
    if (file->type == FileType::directory) ::rmdir(join_path(set.folder, file->path).c_str());
  }
  if (set.folder != watched_folder) ::rmdir(set.folder.c_str());
  return {};
}

}  // namespace varve
