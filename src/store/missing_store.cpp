#include "store/missing_store.h"

#include <vector>

#include "store/store.h"

namespace varve {

Status missing_store(FileSystem& fs, const std::string& path) {
  // A creation that was stopped leaves empty folders.
  for (const char* folder : {"arenas", "sets"}) {
    const Result<std::vector<DirectoryEntry>> inside = fs.list(join_path(path, folder));
    if (!inside.ok() || inside->empty()) continue;
    return Status::corrupt("a store is here whose header is lost", Store::header_path(path), kHowToRestoreHeader);
  }
  return Status::not_found("no store here", path, "create one with `varve init " + path + "`");
}

}  // namespace varve
