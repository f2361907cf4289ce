#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "level/levels.h"
#include "runtime/settings.h"

namespace varve {

/// The levels as `--levels`, VARVE_LEVELS or varve.toml name them, for commands that work without a running program.
class CommandLevels {
 public:
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
    std::string levels;  ///< --levels
    std::string store;   ///< --store, in place of them
    ReachOptions reach;  ///< --key-file, --s3-endpoint
  };
  /// What levels take from the world; all outlives them.
  struct World {
    FileSystem* files = &posix_file_system();  ///< where folders are
    SettingsSources sources = SettingsSources::of_process();
    Clock* clock = &steady_clock();
  };
  static Result<std::unique_ptr<CommandLevels>> open(const Said& said, Use use) { return open(said, use, World()); }
  static Result<std::unique_ptr<CommandLevels>> open(const Said& said, Use use, World world);

  Levels& levels() { return levels_; }
  /// What is to be told to people.
  std::vector<Status> take_warnings() { return warnings_.take(); }
  /// Null: it cannot be reached.
  const Store* nearest() const { return levels_.nearest().access().opened(); }
  /// The nearest level, which is open: no faster than it allows.
  const Store& for_saving() const { return levels_.nearest().access().slowed(); }
  /// SaveOptions::next_number of what is saved there.
  Result<uint64_t> next_number(const std::string& job) const { return varve::next_number(levels_, job); }
  /// varve::bring_along().
  Onward bring_along(const std::string& job, ProgressSink& progress) {
    return varve::bring_along(levels_, job, progress);
  }

 private:
  CommandLevels(const Settings& settings, const World& world);

  const std::unique_ptr<Communicator> alone_ = make_single_communicator();
  WarningList warnings_;
  JobSets sets_;
  const LeftRuns left_runs_;
  LevelWorld world_;
  Levels levels_;
};

}  // namespace varve
