#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>

#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// Which syncs of folders have failed: who repeats the request, since he did not get the answer, must not be told of
/// the success of a second sync, which proves nothing, whoever asked for it. Thread-safe.
class FolderSyncs {
 public:
  void note_failure(const std::string& path, const Status& failure) {
    const std::lock_guard lock(mutex_);
    failed_.insert_or_assign(path, Failure{failure, MonotonicClock::now()});
  }
  /// Why a sync of the folder has failed, if one has within the time for which clients repeat a request.
  Status last_failure(const std::string& path) {
    constexpr std::chrono::minutes kept(10);
    const std::lock_guard lock(mutex_);
    const auto failed = failed_.find(path);
    if (failed == failed_.end()) return {};
    if (MonotonicClock::now() - failed->second.when <= kept) return failed->second.status;
    failed_.erase(failed);
    return {};
  }

 private:
  struct Failure {
    Status status;
    MonotonicClock::time_point when;
  };
  Mutex mutex_;
  std::map<std::string, Failure> failed_;  ///< folders of a store, of which few fail
};

}  // namespace varve
