#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "core/bytes.h"

namespace varve::test {

/// A new empty folder that goes away with this object.
class TempFolder {
 public:
  /// Most tests make and remove very many small files, which is best done in memory.
  enum class Where { memory_if_possible, disk };
  explicit TempFolder(Where where = Where::memory_if_possible);
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string path() const { return path_.string(); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// Writes a file, with the folders above it.
void write_file(const std::string& path, ByteSpan contents);
inline void write_file(const std::string& path, std::string_view text) { write_file(path, as_bytes(text)); }

/// Bytes that no codec shrinks; the same for the same seed.
ByteVector random_bytes(size_t count, uint64_t seed);
/// A smooth field of `count` little-endian 64-bit floats, which codecs shrink.
ByteVector smooth_field(size_t count, uint64_t seed);

/// What lies below a folder: of each path its type, mode, time and contents (holes count as zeros), in words.
using Snapshot = std::map<std::string, std::string>;
/// `takes` says of a path in the folder whether it is looked at; none: all are.
Snapshot snapshot_of(const std::string& folder, const std::function<bool(const std::string& path)>& takes = {});

}  // namespace varve::test
