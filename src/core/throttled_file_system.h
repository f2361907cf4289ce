#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"

namespace varve {

/// Lets so many bytes per second pass: a token bucket. Thread-safe; who comes first is served first.
class BandwidthLimit {
 public:
  /// `bytes_per_second` above 0. What was not used is kept for `burst_seconds`, so that a thread that sleeps a little
  /// too long loses nothing.
  BandwidthLimit(double bytes_per_second, Clock& clock, double burst_seconds = 0.01);
  /// Returns when `bytes` more may pass.
  void take(uint64_t bytes);
  double bytes_per_second() const { return bytes_per_second_; }

 private:
  const double bytes_per_second_;
  const double burst_seconds_;
  Clock& clock_;
  std::mutex mutex_;         ///< guards paid_until_; not held while sleeping
  double paid_until_ = 0.0;  ///< when the rate allows all that was taken so far
};

/// Passes everything on to another file system, and writes at most so many bytes per second through all of its files
/// together. Only File::write_at() is slowed: reading, names and syncs are not. Files it has opened must be closed
/// before it is destroyed. Thread-safe if the other one is.
class ThrottledFileSystem final : public FileSystem {
 public:
  /// `write_bytes_per_second` above 0. `inner` and `clock` outlive it.
  ThrottledFileSystem(FileSystem& inner, double write_bytes_per_second, Clock& clock = steady_clock());

  Result<std::unique_ptr<File>> open_read(const std::string& path) override { return inner_.open_read(path); }
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;
  Result<std::unique_ptr<FileMapping>> map(const std::string& path) override { return inner_.map(path); }
  Status create_directory(const std::string& path) override { return inner_.create_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return inner_.rename(from, to); }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    return inner_.rename_no_replace(from, to);
  }
  Status remove(const std::string& path) override { return inner_.remove(path); }
  Status remove_directory(const std::string& path) override { return inner_.remove_directory(path); }
  Status sync_directory(const std::string& path) override { return inner_.sync_directory(path); }
  Status touch(const std::string& path) override { return inner_.touch(path); }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return inner_.list(path); }
  Result<FileStatus> stat(const std::string& path) override { return inner_.stat(path); }

 private:
  FileSystem& inner_;
  BandwidthLimit limit_;
};

}  // namespace varve
