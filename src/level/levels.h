#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/sync.h"
#include "level/farther_level.h"
#include "level/level.h"
#include "level/store_level.h"

namespace varve {

/// All levels of a run or a command, nearest first: what is asked of all of them, one after the other.
class Levels {
 public:
  /// `specs`: as parse_levels() gives them. The world outlives them.
  Levels(const std::vector<LevelSpec>& specs, LevelWorld& world);

  Levels(const Levels&) = delete;
  Levels& operator=(const Levels&) = delete;
  ~Levels();

  const std::vector<std::unique_ptr<Level>>& all() const { return all_; }
  Level& at(uint32_t ordinal) const { return *all_.at(ordinal); }
  /// Those that are stores.
  const std::vector<StoreLevel*>& stores() const { return stores_; }
  StoreLevel& nearest() const { return *stores_.front(); }

  // A run, as in Level; collective

  Status look();
  Status prepare_on_nodes();
  Status open();
  /// What earlier runs have left: which sets all nodes have (noted in the world's sets); returns what number comes
  /// next.
  Result<uint64_t> learn_earlier_sets();
  Status start();
  void close_idle();

  /// What all ranks could restart from, the newest step first. Collective.
  Result<std::vector<RestartCandidate>> candidates();
  /// Whether none of these ever was a whole checkpoint, so that a run may begin anew; what is left of them may be
  /// replaced then. Collective.
  Result<bool> never_were_whole(const std::vector<RestartCandidate>& candidates);
  /// io_error if a level is away: there may be a checkpoint in it that is not seen. Collective.
  Status check_all_were_reached();
  void note_found(const Level& where, uint64_t step, Found found);
  /// The run goes on from a set of the nearest store: to each level behind that has it not among `candidates`, it goes.
  void bring_behind(uint64_t step, const std::vector<RestartCandidate>& candidates);
  void drop_caches();

  // Its sets. Any thread

  void accept(const NewSet& set);
  void forget(uint64_t step);
  /// Whether a level behind this one is owed a set.
  bool owes_behind(const Level& level, uint64_t step, uint64_t number) const;
  std::string what_waits() const;
  /// When sets may leave the nearest store.
  Retention::Rules nearest_rules();
  std::vector<LevelProgress> progress(const RunNews& run) const;

  // The end

  void stop();
  Status finish(const std::optional<NewSet>& last, Moment end);
  /// The first failure, if anything was left out.
  Status end();

  // A command

  /// The nearest level's store that has the set, of those that are open; null: none has.
  const Store* find(const SetName& name) const;
  /// After a set was saved to the nearest level: copies to each level behind what it lacks of the job's sets, and drops
  /// old ones by the rule of level/retention.h. A level that fails is not in the way of the others.
  Onward bring_along(const std::string& job, ProgressSink& progress);

 private:
  LevelWorld& world_;
  std::vector<std::unique_ptr<Level>> all_;
  std::vector<StoreLevel*> stores_;
};

}  // namespace varve
