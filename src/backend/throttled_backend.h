#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "core/clock.h"
#include "core/sync.h"

namespace varve {

/// Lets so many bytes per second pass: a token bucket. Thread-safe; who comes first is served first.
class BandwidthLimit {
 public:
  /// `bytes_per_second` above 0. What was not used is kept for `burst_seconds`, so that a thread that sleeps a little
  /// too long loses nothing. Once `is_to_end` says so, nobody waits any more: however little passes in a second,
  /// whoever takes some can be stopped.
  BandwidthLimit(double bytes_per_second, Clock& clock, std::function<bool()> is_to_end = {},
                 double burst_seconds = 0.01);
  /// Returns when `bytes` more may pass.
  void take(uint64_t bytes);
  double bytes_per_second() const { return bytes_per_second_; }

 private:
  const double bytes_per_second_;
  const double burst_seconds_;
  const std::function<bool()> is_to_end_;
  Clock& clock_;
  Mutex mutex_;                                       ///< not held while sleeping
  double paid_until_ VARVE_GUARDED_BY(mutex_) = 0.0;  ///< when the rate allows all that was taken so far
};

/// Passes everything on to another backend, and writes at most so many bytes per second into all of its objects
/// together: reading, records and names are not slowed. The objects that it puts are gone before it is. Thread-safe.
class ThrottledBackend final : public Backend {
 public:
  /// `write_bytes_per_second` above 0, `is_to_end` as BandwidthLimit's. `inner` and `clock` outlive it.
  ThrottledBackend(Backend& inner, double write_bytes_per_second, Clock& clock = steady_clock(),
                   std::function<bool()> is_to_end = {})
      : inner_(inner), limit_(write_bytes_per_second, clock, std::move(is_to_end)) {}

  Result<std::unique_ptr<ObjectWriter>> put(const std::string& name, PutOptions options = {}) override;

  const std::string& root() const override { return inner_.root(); }
  Records& records() override { return inner_.records(); }
  Result<std::unique_ptr<RangeReader>> open(const std::string& name) override { return inner_.open(name); }
  Result<std::vector<DirectoryEntry>> list(const std::string& folder) override { return inner_.list(folder); }
  Result<std::vector<std::string>> unfinished(const std::string& folder) override { return inner_.unfinished(folder); }
  Result<FileStatus> status(const std::string& name) override { return inner_.status(name); }
  Status remove(const std::string& name) override { return inner_.remove(name); }
  Status settle(const std::string& folder) override { return inner_.settle(folder); }
  Result<std::unique_ptr<PowerWatch>> watch_power() override { return inner_.watch_power(); }
  Result<uint64_t> free_bytes(const std::string& folder) override { return inner_.free_bytes(folder); }
  std::string shown_path(const std::string& name) const override { return inner_.shown_path(name); }
  Status make_folder(const std::string& folder) override { return inner_.make_folder(folder); }
  Status remove_folder(const std::string& folder) override { return inner_.remove_folder(folder); }
  size_t operations_at_once() const override { return inner_.operations_at_once(); }
  Status remove_if_there(const std::string& name) override { return inner_.remove_if_there(name); }
  Result<ByteVector> read_record(const std::string& name, uint64_t bytes_max) override {
    return inner_.read_record(name, bytes_max);
  }
  Result<std::map<std::string, Result<FileStatus>>> list_with_status(const std::string& folder) override {
    return inner_.list_with_status(folder);
  }
  Result<std::vector<std::string>> list_in_folders(const std::string& folder) override {
    return inner_.list_in_folders(folder);
  }
  Status settle_with_folders(const std::string& folder) override { return inner_.settle_with_folders(folder); }

 private:
  Backend& inner_;
  BandwidthLimit limit_;
};

}  // namespace varve
