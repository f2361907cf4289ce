#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  /// May start threads.
  static Result<StoreLevels> open(const Said& said, Use use);

  const std::vector<Level>& levels() const { return levels_; }
  const Level& nearest() const { return levels_.front(); }
  /// The nearest level, which is open: no faster than it allows.
  const Store& for_saving() const { return nearest().open->slowed(); }
  /// All levels as they were named, with memory and redundancy.
  const Settings& settings() const { return settings_; }
  /// As VARVE_NODE says it; else empty.
  const std::string& node() const { return node_; }

  struct Copy {
    std::string level;
    uint64_t sent_bytes = 0;
  };
  /// What became of a set after it was saved.
  struct Onward {
    std::vector<Copy> copies;
    std::vector<Status> failures;  ///< each of a level of its own
  };
  /// After a set was saved to the nearest level: copies it to the levels behind, as often as their `every` says, and
  /// drops old sets of its job as `keep` says and a running program does (runtime/retention.h). The nearest level keeps
  /// what is counted for the others. A level that fails is not in the way of the others.
  Onward bring_along(const SetName& name, ProgressSink& progress);

 private:
  /// Opens a level, or notes why it cannot be opened.
  void reach(Level& level) const;
  Result<std::optional<Copy>> copy_to(Level& level, const SetName& name, ProgressSink& progress) const;
  Status retain(const Level& level, const SetName& name, ProgressSink& progress) const;
  /// Whether the set, which is in the nearest level, is to go to another one.
  Result<bool> is_due(const Level& level, const SetName& name) const;

  Settings settings_;
  std::string node_;
  bool makes_ = false;
  std::vector<Level> levels_;
};

/// How many sets of `job` a store has got since the last of them that is also elsewhere, where `there`, ascending, are:
/// all, if none is. They count in the order in which they came, which need not be that of their steps: what falls back
/// and goes on has new sets with lower ones.
Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there);

}  // namespace varve::cli
