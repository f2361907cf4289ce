#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "level/levels.h"
#include "store/store.h"
#include "watch/watch_status.h"

namespace varve::cli {

/// Which of a job's sets each level has, for monitoring a watcher: by what comes there, and one look at each level for
/// each job. One thread.
class WatchLevels {
 public:
  /// `nearest` has what is saved, is called `name`, and outlives this. `begin_s`: when the watcher was started.
  WatchLevels(const Store& nearest, std::string name, int64_t begin_s)
      : nearest_(nearest), name_(std::move(name)), begin_s_(begin_s) {}

  /// The set is in the nearest store.
  void note_saved(const SetRecord& record) { arrive(name_, record); }
  /// The same of one that was there before.
  void note_there(const SetName& set);
  /// What came to the levels behind, which were reached just now unless something failed.
  void note_brought(const std::string& job, const Onward& onward, const Levels& levels);
  /// `made_s`: by job, when the newest set was written of those that are not saved yet.
  std::vector<WatchStatus::Level> now(const std::map<std::string, int64_t>& made_s) const;

 private:
  struct Newest {
    uint64_t step = 0;
    int64_t saved_s = 0;
  };
  void arrive(const std::string& level, const SetRecord& record);
  void look_at(const std::string& job, const std::string& level, const Store& store);
  double lag_seconds(const std::string& level, const std::optional<Newest>& newest,
                     const std::optional<Newest>& of_nearest, std::optional<int64_t> made_s) const;

  const Store& nearest_;
  const std::string name_;
  const int64_t begin_s_;
  std::map<std::string, std::map<std::string, std::optional<Newest>>> jobs_;  ///< by job and level
};

}  // namespace varve::cli
