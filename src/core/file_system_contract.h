#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/file_system.h"

namespace varve {

/// A file system under test, and an empty directory in it.
struct FileSystemSubject {
  virtual ~FileSystemSubject() = default;
  FileSystem* fs = nullptr;
  std::string directory;
};

struct FileSystemKind {
  const char* name;
  std::function<std::unique_ptr<FileSystemSubject>()> make;
};
inline void PrintTo(const FileSystemKind& kind, std::ostream* out) { *out << kind.name; }

/// Tests that all file systems pass: file_system_contract.cpp, which every program that tests one has among its
/// sources, and which INSTANTIATE_TEST_SUITE_P gives the kinds.
class EveryFileSystem : public testing::TestWithParam<FileSystemKind> {
 protected:
  std::string path(std::string_view name) const { return join_path(subject_->directory, name); }
  void write(const std::string& name, std::string_view text);
  std::string read(const std::string& name);
  std::vector<std::string> names();

  std::unique_ptr<FileSystemSubject> subject_ = GetParam().make();
  FileSystem& fs_ = *subject_->fs;
};

}  // namespace varve
