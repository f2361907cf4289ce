#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/unique_id.h"
#include "varve/status.h"

namespace varve {

/// In which folders of a server a client has changed names, and in which run of the server's machine: a machine that
/// has lost power may have lost names that were not synced, and a sync would then make durable what is left, and say
/// nothing. Also who watches for that (FileSystem::watch_power). Bounded. One thread at a time.
class NameChanges {
 public:
  /// A name in `folder` was changed in `run`. As long as somebody watches that run, it is his concern.
  void note(const std::string& folder, const UniqueId& run);
  /// io_error: a sync of `folder` in `run` would prove nothing to a watcher, or of names that were changed before. This
  /// is said once of each folder, and as long as there are watchers of another run.
  Status check_sync(const std::string& folder, const UniqueId& run);
  /// How many changes there have been.
  uint64_t count() const { return count_; }
  /// `folder` was synced after so many changes, and after check_sync().
  void forget_synced(const std::string& folder, uint64_t count);

  void begin_watch(const UniqueId& run) { ++watchers_[run]; }
  void end_watch(const UniqueId& run);

 private:
  struct Change {
    UniqueId first_run;
    uint64_t last = 0;  ///< its number
  };
  bool someone_watches_another(const UniqueId& run) const;

  uint64_t count_ = 0;
  std::map<UniqueId, size_t> watchers_;
  std::map<std::string, Change> unsynced_;
  /// Since there were too many folders: the run in which nobody knows what was changed. Never forgotten.
  std::optional<UniqueId> lost_count_;
};

}  // namespace varve
