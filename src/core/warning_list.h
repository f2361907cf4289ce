#pragma once

#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// What the user should know, from whatever thread, until it is fetched. Thread-safe.
class WarningList {
 public:
  void add(Status warning) {
    std::lock_guard lock(mutex_);
    if (warnings_.size() < kWarningsMax) warnings_.push_back(std::move(warning));
  }
  void add(const std::vector<Status>& warnings) {
    for (const Status& warning : warnings) add(warning);
  }
  std::vector<Status> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(warnings_, {});
  }

 private:
  /// A program that never asks must not be filled up.
  static constexpr size_t kWarningsMax = 1000;
  Mutex mutex_;  ///< guards warnings_
  std::vector<Status> warnings_;
};

}  // namespace varve
