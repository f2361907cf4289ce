#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/progress.h"
#include "runtime/settings.h"
#include "runtime/store_level.h"
#include "store/catalog.h"

namespace varve::cli {

/// The levels that are stores, nearest first, as `--levels`, VARVE_LEVELS or varve.toml name them: for commands that
/// work without a running program. Memory and redundancy are matters of a running program, and only looked at.
class StoreLevels {
 public:
  /// `text`: of --levels; `key_file`: of --key-file; empty: what the environment and the options file say. Opens all;
  /// makes those that are not there if `make` is set. May start threads.
  static Result<StoreLevels> open(const std::string& text, const std::string& key_file, bool make);

  const std::vector<std::unique_ptr<StoreLevel>>& levels() const { return levels_; }
  const StoreLevel& nearest() const { return *levels_.front(); }
  /// All levels as they were named, with memory and redundancy.
  const Settings& settings() const { return settings_; }
  /// As VARVE_NODE says it; else empty.
  const std::string& node() const { return node_; }

  struct Brought {
    std::string level;
    SetName set;
    uint64_t sent_bytes = 0;
  };
  /// After a set was saved to the nearest level: copies it to the levels behind, as often as their `every` says, and
  /// drops old sets of its job as `keep` says. The nearest level keeps what is counted for the others.
  Result<std::vector<Brought>> bring_along(const SetName& name, ProgressSink& progress) const;

 private:
  /// Sets of the job in the nearest level that are newer than the newest of that level.
  Result<uint64_t> behind(const StoreLevel& level, const std::string& job) const;
  Status retain(const std::string& job, ProgressSink& progress) const;

  Settings settings_;
  std::string node_;
  std::vector<std::unique_ptr<StoreLevel>> levels_;
};

/// How many sets of `job` a store has that are newer than its newest in another.
Result<uint64_t> sets_ahead(const Store& store, const Store& other, const std::string& job);

}  // namespace varve::cli
