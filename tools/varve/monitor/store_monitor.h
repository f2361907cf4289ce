#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/sync.h"
#include "monitor/store_facts.h"

namespace varve {

struct StoreMonitorOptions {
  double look_seconds = 60;       ///< at least between two looks at what there is
  double garbage_seconds = 3600;  ///< at least between two looks at what nobody needs, which go through all sets
  bool tells_garbage = true;
  /// Of a store that would take more to be gone through, garbage is not told.
  uint64_t garbage_memory_bytes = 512_MiB;
};

/// Looks at a store now and then, on a thread of its own, so that who asks for metrics waits for nobody. It is at work
/// for a hundredth of the time at most. What cannot be looked at keeps its last values, with their time. Thread-safe.
class StoreMonitor {
 public:
  /// `store` outlives it.
  static Result<std::unique_ptr<StoreMonitor>> start(const Store& store, const StoreMonitorOptions& options = {});
  /// What is under way ends soon.
  ~StoreMonitor();
  StoreMonitor(const StoreMonitor&) = delete;
  StoreMonitor& operator=(const StoreMonitor&) = delete;

  /// What is known by now; nothing before the first look.
  void tell(Metrics& metrics) const;

 private:
  class Stopping;
  struct Known {
    std::optional<StoreFacts> facts{};
    std::optional<uint64_t> garbage_bytes{};
    double garbage_at = 0;  ///< since 1970
  };
  StoreMonitor(const Store& store, const StoreMonitorOptions& options) : store_(store), options_(options) {}
  void run();
  void look();
  void look_for_garbage();

  const Store& store_;
  const StoreMonitorOptions options_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  Known known_ VARVE_GUARDED_BY(mutex_);
  bool stopping_ VARVE_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace varve
