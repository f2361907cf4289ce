#pragma once

#include <optional>
#include <string>

#include "core/file_system.h"
#include "core/unique_id.h"

namespace varve {

/// Which place of a spread store a folder is (FORMAT.md, "Several places"). A store in one folder has no such file.
struct SpreadMember {
  UniqueId store;
  uint32_t position = 0;  ///< counts from 0; place 0 has the catalog too
  uint32_t count = 1;
  bool operator==(const SpreadMember&) const = default;
};

inline constexpr uint32_t kSpreadPlacesMax = 1024;

/// Of the folder `store_path`; nothing if it is no place of a spread store. corrupt if the file makes no sense.
Result<std::optional<SpreadMember>> read_spread_member(FileSystem& fs, const std::string& store_path);
/// already_exists, without a change, if it is one already.
Status create_spread_member(FileSystem& fs, const std::string& store_path, const SpreadMember& member);
/// The same whether or not it is one: a store has grown.
Status write_spread_member(FileSystem& fs, const std::string& store_path, const SpreadMember& member);

}  // namespace varve
