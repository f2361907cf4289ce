#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/sync.h"

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
  Mutex mutex_;              ///< guards paid_until_; not held while sleeping
  double paid_until_ = 0.0;  ///< when the rate allows all that was taken so far
};

/// Passes everything on to another file system, and writes at most so many bytes per second through all of its files
/// together. Only File::write_at() is slowed: reading, names and syncs are not. Files it has opened must be closed
/// before it is destroyed. Thread-safe if the other one is.
class ThrottledFileSystem final : public ForwardingFileSystem {
 public:
  /// `write_bytes_per_second` above 0. `inner` and `clock` outlive it.
  ThrottledFileSystem(FileSystem& inner, double write_bytes_per_second, Clock& clock = steady_clock());

  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override;

 private:
  BandwidthLimit limit_;
};

}  // namespace varve
