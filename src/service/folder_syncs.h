#pragma once

#include <map>
#include <mutex>
#include <string>

#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// How the last sync of each folder ended that has failed: who repeats the request, since he did not get the answer,
/// must not be told of the success of a second sync, which proves nothing. Thread-safe.
class FolderSyncs {
 public:
  void note(const std::string& path, const Status& outcome) {
    const std::lock_guard lock(mutex_);
    if (outcome.ok()) {
      failed_.erase(path);
    } else {
      failed_.insert_or_assign(path, outcome);
    }
  }
  Status last(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto failed = failed_.find(path);
    return failed == failed_.end() ? Status() : failed->second;
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, Status> failed_;  ///< folders of a store, which are few
};

}  // namespace varve
