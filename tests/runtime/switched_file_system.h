#pragma once

#include <condition_variable>
#include <mutex>

#include "core/file_system.h"

namespace varve::test {

/// Passes everything on to another file system; writing and naming can be held up, or refused as if the disk were full.
class SwitchedFileSystem final : public FileSystem {
 public:
  enum class Mode { normal, held, full };
  explicit SwitchedFileSystem(FileSystem& inner = posix_file_system()) : inner_(inner) {}
  void set(Mode mode);
  /// Returns when somebody is being held up.
  void await_held();

  Result<std::unique_ptr<File>> open_read(const std::string& path) override { return inner_.open_read(path); }
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Result<std::unique_ptr<FileMapping>> map(const std::string& path) override { return inner_.map(path); }
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override { return inner_.remove(path); }
  Status remove_directory(const std::string& path) override { return inner_.remove_directory(path); }
  Status sync_directory(const std::string& path) override { return inner_.sync_directory(path); }
  Status touch(const std::string& path) override { return inner_.touch(path); }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_.list(path); }
  Result<FileStatus> stat(const std::string& path) override { return inner_.stat(path); }

 private:
  class SwitchedFile;
  /// Waits while operations are held up; then tells whether there is room.
  Status pass(const std::string& path);

  FileSystem& inner_;
  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  Mode mode_ = Mode::normal;
  uint32_t held_ = 0;
};

}  // namespace varve::test
