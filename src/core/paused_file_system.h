#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/file_system.h"

namespace varve {

/// For tests: a process that is stopped for a while just before its n-th look at a folder or change of one, while
/// others, which use the file system beneath it, go on. Reading and writing of open files does not count.
class PausedFileSystem final : public ForwardingFileSystem {
 public:
  PausedFileSystem(FileSystem& inner, uint64_t at_operation, std::function<void()> meanwhile)
      : ForwardingFileSystem(inner), at_operation_(at_operation), meanwhile_(std::move(meanwhile)) {}

  /// Whether it came to that operation.
  bool paused() const { return operations_ > at_operation_; }

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    step();
    return ForwardingFileSystem::open_read(path);
  }
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
    step();
    return ForwardingFileSystem::create(path, options);
  }
  Status create_directory(const std::string& path) override {
    step();
    return ForwardingFileSystem::create_directory(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    step();
    return ForwardingFileSystem::rename(from, to);
  }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    step();
    return ForwardingFileSystem::rename_no_replace(from, to);
  }
  Status remove(const std::string& path) override {
    step();
    return ForwardingFileSystem::remove(path);
  }
  Status remove_directory(const std::string& path) override {
    step();
    return ForwardingFileSystem::remove_directory(path);
  }
  Status sync_directory(const std::string& path) override {
    step();
    return ForwardingFileSystem::sync_directory(path);
  }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
    step();
    return ForwardingFileSystem::list(path);
  }

 private:
  void step() {
    if (operations_++ == at_operation_) meanwhile_();
  }

  const uint64_t at_operation_;
  const std::function<void()> meanwhile_;
  std::atomic<uint64_t> operations_{0};
};

}  // namespace varve
