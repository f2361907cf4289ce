#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/process.h"
#include "layout/layout_reader.h"

namespace varve {

/// A fresh directory, removed with all that is in it at the end of the scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "varve-layout-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::filesystem::path& path, std::string_view contents) {
  std::ofstream(path, std::ios::binary).write(contents.data(), static_cast<std::streamsize>(contents.size()));
}

/// What the first reader that recognises the file says, in this very process.
inline Result<Layout> read_here(const LayoutReaders& readers, const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  uint64_t file_bytes = std::filesystem::file_size(path);
  ByteVector first(kProbeBytes);
  first.resize(static_cast<size_t>(::pread(fd.get(), first.data(), first.size(), 0)));
  for (const auto& reader : readers) {
    if (reader->recognises(read_file_at(fd.get()), first, file_bytes)) return reader->read(fd.get(), file_bytes);
  }
  return Status::not_found("no reader recognises the file", path.string());
}

inline const Variable* find_variable(const Layout& layout, std::string_view name) {
  for (const Variable& variable : layout.variables) {
    if (variable.name == name) return &variable;
  }
  return nullptr;
}

/// The bytes at a variable's extents, joined.
inline std::string bytes_at(const std::string& file, const Variable& variable) {
  std::string joined;
  for (const Extent& extent : variable.extents) joined += file.substr(extent.offset, extent.bytes);
  return joined;
}

/// The regular files in a directory and those below it, in the order of their names.
inline std::vector<std::filesystem::path> files_below(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace varve
