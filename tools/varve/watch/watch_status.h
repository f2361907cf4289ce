#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "core/process.h"
#include "varve/status.h"

namespace varve {

/// What a watcher is at, for others to see. Sets are "job@step".
struct WatchStatus {
  struct Pending {
    std::string set;
    std::string state;  ///< "waiting", "failed" or "differs"
    std::string why;    ///< what is lacking, or wrong; may be empty
  };

  std::vector<std::string> folders;
  std::string to;  ///< the store
  std::string host;
  int64_t process = 0;
  int64_t started_s = 0;  ///< since 1970, as the others
  uint64_t saved_sets = 0, removed_sets = 0;
  uint64_t failures = 0;                     ///< of saving a set, each time
  uint64_t raw_bytes = 0, stored_bytes = 0;  ///< of the saved sets
  std::string saving;                        ///< what is being saved; empty: nothing
  std::string newest;                        ///< saved last; empty: none yet
  int64_t newest_s = 0;
  std::vector<Pending> pending;

  bool alive = false;  ///< when it was read: the watcher runs

  /// A job's newest set at a level, or in the one store.
  struct Level {
    std::string level, job;
    std::optional<uint64_t> newest{};  ///< step; none: the watcher knows of none there
    int64_t newest_s = 0;              ///< when that was saved to the nearest
    double lag_seconds = 0;            ///< how much older it is than the newest that there is
  };
  // For monitoring alone
  bool running = true;
  double updated = 0;          ///< when all this was true
  uint64_t pending_bytes = 0;  ///< of the files of sets that wait, or have failed
  std::vector<Level> levels;
};

/// The same for monitoring.
Metrics metrics_of(const WatchStatus& status);
/// With the names of its fields; `alive` is left out, and what is for monitoring alone.
nlohmann::ordered_json to_json(const WatchStatus& status);

/// A watcher's place in the state folder: a file that it replaces with each change, and a lock that it holds.
class StatusFile {
 public:
  /// `state_folder`: core/state_folder.h. `as`: the job and the patterns, if they were
  /// said. busy: another watcher of these folders, to the same place and `as` the same, runs.
  static Result<StatusFile> open(const std::string& state_folder, const std::vector<std::string>& folders,
                                 const std::string& to, const std::string& as = {});
  /// Not durable: it tells of a running program.
  Status write(const WatchStatus& status) const;

 private:
  StatusFile(UniqueFd lock, std::string path) : lock_(std::move(lock)), path_(std::move(path)) {}
  UniqueFd lock_;
  std::string path_;
};

/// What all watchers of this user on this machine are at, or were at when they ended. Files that make no sense are left
/// out.
Result<std::vector<WatchStatus>> read_watch_statuses(const std::string& state_folder);

}  // namespace varve
