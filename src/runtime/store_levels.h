#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "level/backlog.h"
#include "runtime/settings.h"
#include "runtime/store_level.h"
#include "store/catalog.h"

namespace varve {

/// A set that was copied to a level.
struct LevelCopy {
  std::string level;  ///< its name
  SetName name;
  uint64_t sent_bytes = 0;
};

/// The levels that are stores, nearest first, as `--levels`, VARVE_LEVELS or varve.toml name them: for commands that
/// work without a running program. Memory and redundancy are matters of a running program, and only looked at.
class StoreLevels {
 public:
  struct Level {
    LevelSpec spec;
    std::string path;                  ///< of a folder, as StoreLevel::path_of() says it
    std::unique_ptr<StoreLevel> open;  ///< null: it cannot be reached
    Status failure;                    ///< why it cannot
  };
  enum class Use : uint8_t {
    look,  ///< at what can be reached
    /// Levels that are not there are made. The nearest has to be there then; one behind it may be away, and is looked
    /// for again when sets are to go there. invalid_argument: what is said of one makes no sense; among this is `every`
    /// of the nearest, as the checkpoints between would be nowhere.
    save,
    help,  ///< to save, beside a process that has opened them: the nearest alone, which has to be there
  };

  /// What the command line says; empty: what the environment and the options file say.
  struct Said {
    std::string levels;    ///< --levels
    std::string store;     ///< --store, in place of them
    std::string key_file;  ///< --key-file
  };
  /// What levels take from the world; all outlives them.
  struct World {
    FileSystem* files = &posix_file_system();  ///< where folders are
    SettingsSources sources = SettingsSources::of_process();
    Clock* clock = &steady_clock();
  };
  /// May start threads.
  static Result<StoreLevels> open(const Said& said, Use use, World world);
  static Result<StoreLevels> open(const Said& said, Use use) { return open(said, use, World()); }

  const std::vector<Level>& levels() const { return levels_; }
  const Level& nearest() const { return levels_.front(); }
  /// The nearest level, which is open: no faster than it allows.
  const Store& for_saving() const { return nearest().open->slowed(); }
  /// The nearest level's store that has the set, of those that can be reached; null: none has.
  const Store* find(const SetName& name) const;
  /// All levels as they were named, with memory and redundancy.
  const Settings& settings() const { return settings_; }
  /// As VARVE_NODE says it; else empty.
  const std::string& node() const { return node_; }

  /// What became of a job's sets after one was saved.
  struct Onward {
    std::vector<LevelCopy> copies;
    std::vector<Status> failures;
    std::vector<Status> given_up;  ///< sets that a level does not get, as its `backlog` says
    std::set<uint64_t> owed;       ///< steps that some level should have, and has not
  };
  /// After a set was saved to the nearest level: copies to each level behind what it lacks of the job's sets (the set
  /// and the backlog, level/backlog.h), oldest first, and drops old sets by the rule of level/retention.h. A level that
  /// fails is not in the way of the others.
  Onward bring_along(const std::string& job, ProgressSink& progress);

 private:
  /// Opens a level, or notes why it cannot be opened.
  void reach(Level& level) const;
  /// Copies to a level what it is owed; returns what it is still owed then.
  std::vector<OwedSet> catch_up(Level& level, const std::string& job, Onward& onward, ProgressSink& progress) const;
  Result<std::vector<OwedSet>> backlog(Level& level, const std::string& job) const;
  Status retain(const Level& level, const std::string& job, const std::set<uint64_t>& owed,
                ProgressSink& progress) const;

  World world_;
  Settings settings_;
  std::string node_;
  bool makes_ = false;
  std::vector<Level> levels_;
};

/// How many sets of `job` a store has got since the last of them that is also elsewhere, where `there`, ascending, are:
/// all, if none is. They count in the order in which they came, which need not be that of their steps: what falls back
/// and goes on has new sets with lower ones.
Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there);

}  // namespace varve
