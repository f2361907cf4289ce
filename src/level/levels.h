#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/sync.h"
#include "level/farther_level.h"
#include "level/level.h"
#include "level/store_level.h"
#include "store/job_lease.h"

namespace varve {

/// All levels of a run or a command, nearest first: what is asked of all of them, one after the other.
class Levels {
 public:
  /// `specs`: as parse_levels() gives them. The world outlives them.
  Levels(const std::vector<LevelSpec>& specs, LevelWorld& world);

  Levels(const Levels&) = delete;
  Levels& operator=(const Levels&) = delete;
  ~Levels();

  LevelWorld& world() const { return world_; }
  const std::vector<std::unique_ptr<Level>>& all() const { return all_; }
  Level& at(uint32_t ordinal) const { return *all_.at(ordinal); }
  /// Those that are stores.
  const std::vector<StoreLevel*>& stores() const { return stores_; }
  StoreLevel& nearest() const { return *stores_.front(); }

  // A run, as in Level; collective

  Status look();
  Status prepare_on_nodes();
  Status open();
  Status start();
  void close_idle();
  void drop_caches();
  /// Warns of stores that were made, since there were none, though another level has sets: perhaps the file system that
  /// they are on is not mounted. Not of a node's own, as nodes are new or lose theirs.
  void tell_what_was_made();
  /// invalid_argument: two levels are one folder, so that each would do with its sets what the other does not know.
  Status check_are_different() const;

  // Its sets. Any thread, but for note_found()

  void note_found(const Level& where, uint64_t step, Found found);
  void accept(const NewSet& set);
  void forget(uint64_t step);
  /// Whether a level behind this one is owed a set.
  bool owes_behind(const Level& level, uint64_t step, uint64_t number) const;
  /// How many sets wait for which levels, and what is wrong with these; empty: none.
  std::string what_waits() const;
  std::vector<LevelProgress> progress(const RunNews& run) const;

  // The end

  void stop();
  Status finish(const std::optional<NewSet>& last, Moment end);
  /// The first failure, if anything was left out.
  Status end(Ending ending);

 private:
  LevelWorld& world_;
  std::vector<std::unique_ptr<Level>> all_;
  std::vector<StoreLevel*> stores_;
};

/// When sets may leave the nearest store of a run. The levels outlive the rules.
Retention::Rules nearest_rules(const Levels& levels);

/// The run of the job that is at work somewhere, as the leases in the levels' stores say that can be reached; those of
/// `ended` are known to be over.
Result<std::optional<LeaseHolder>> living_run(const Levels& levels, const std::string& job,
                                              const std::vector<UniqueId>& ended);

/// Whether a store of which this rank speaks has the set of this step of the run's job. io_error: a level is away.
Result<bool> have_set(const Levels& levels, uint64_t step);
/// Drops the set from all stores of which this rank speaks, the farthest first, so that what is interrupted leaves it
/// where a restart looks first; and gives its space back, where no writer is in the way. While nothing is brought
/// along.
Status drop_set(const Levels& levels, uint64_t step);
/// What number the next set of a job gets that is saved to the nearest level: behind all that any level has, as far as
/// they can be reached, since an older number would count as old where it is brought to.
Result<uint64_t> next_number(const Levels& levels, const std::string& job);
/// The newest set of the run's job in the nearest store, as far as it is known to be complete; on a rank that has that
/// open.
std::optional<NewSet> newest_set(const Levels& levels);

/// The store of the nearest level that has the set; null: none has. io_error: none that could be asked has it, and
/// another could not.
Result<const Store*> find_set(const Levels& levels, const SetName& name);

/// For a command, after a set was saved to the nearest level: copies to each level behind what it lacks of the job's
/// sets, and drops old ones by the rule of level/retention.h. A level that fails is not in the way of the others. While
/// a run of the job is at work (living_run()), nothing is done, which is a failure (busy): the run does both itself,
/// and it alone knows which sets it has gone back behind, and from which one it goes on.
Onward bring_along(const Levels& levels, const std::string& job, ProgressSink& progress,
                   const std::vector<UniqueId>& ended = {});

}  // namespace varve
