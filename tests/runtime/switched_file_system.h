#pragma once

#include <condition_variable>
#include <mutex>

#include "core/file_system.h"

namespace varve::test {

/// Passes everything on to another file system; writing and naming can be held up, or refused as if the disk were full,
/// for good or until a file there is removed.
class SwitchedFileSystem final : public ForwardingFileSystem {
 public:
  enum class Mode { normal, held, full, full_until_freed };
  explicit SwitchedFileSystem(FileSystem& inner = posix_file_system()) : ForwardingFileSystem(inner) {}
  void set(Mode mode);
  /// Only what lies below `folder` is concerned. Before the first use.
  void only_below(const std::string& folder) { folder_ = folder; }
  /// Returns when somebody is being held up.
  void await_held();

  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Status create_directory(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_no_replace(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;

 private:
  class SwitchedFile;
  /// Waits while operations are held up; then tells whether there is room.
  Status pass(const std::string& path);

  std::mutex mutex_;  ///< guards all below
  std::condition_variable changed_;
  Mode mode_ = Mode::normal;
  uint32_t held_ = 0;
  std::string folder_;  ///< empty: all is concerned
};

}  // namespace varve::test
