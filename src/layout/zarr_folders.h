#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "layout/layout.h"
#include "layout/zarr_array.h"

namespace varve {

/// Tells what the files in the folders of Zarr's arrays are: a chunk's file says nothing itself, but the array's folder
/// does. Each folder is looked at once. One thread at a time.
class ZarrFolders {
 public:
  /// The layout of the file at `path`, if it is a chunk: a part of the array, whose name is that of its folder, with
  /// the folders of the groups that it is in (`/model/temperature`). Costs nothing for files whose names are not
  /// numbers.
  std::optional<Layout> chunk_layout(const std::string& path, uint64_t file_bytes);

 private:
  struct Folder {
    std::optional<ZarrArray> array;
    std::string name;  ///< of the array
  };
  const Folder& look_at(const std::string& folder);

  std::unordered_map<std::string, Folder> folders_;
};

}  // namespace varve
