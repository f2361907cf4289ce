#pragma once

#include <chrono>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/process.h"
#include "varve/status.h"

namespace varve {

/// Tells in which folders something has changed, as inotify(7) sees it: what programs of this machine do, and not those
/// of others on a shared file system, nor writing itself until a file is closed. One thread.
class FolderEvents {
 public:
  static Result<FolderEvents> open();

  /// From now on changes in `folder`, and in all that is below it, are told. A folder that vanishes is forgotten.
  Status add(const std::string& folder);

  struct Changes {
    bool lost = false;                 ///< more happened than the kernel could keep: look at everything
    std::vector<std::string> folders;  ///< in which something has changed, some of them several times
  };
  /// Waits until something has changed, `timeout` is over or a signal came.
  Changes wait(std::chrono::milliseconds timeout);

 private:
  explicit FolderEvents(UniqueFd queue) : queue_(std::move(queue)) {}
  Status add_one(const std::string& folder);
  void take(Changes& changes);

  UniqueFd queue_;
  std::unordered_map<int, std::string> folders_;  ///< by watch descriptor
};

}  // namespace varve
