#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "format/set_record.h"
#include "level/level_spec.h"
#include "store/store.h"

namespace varve {

/// A set of a job at one level, as far as is known here. What is known may lag behind what is, never lead: a set that
/// is not known to be complete counts as one that is not.
struct SetAtLevel {
  uint64_t step = 0;
  uint64_t number = 0;          ///< SetRecord::number
  bool is_known = true;         ///< else its record cannot be read now: it neither leaves nor pushes out others
  bool complete = false;        ///< all who hold parts of it at this level have told that they have theirs
  bool has_redundancy = false;  ///< all of these can be made anew from the others' redundancy
  bool owed = false;            ///< a farther level is to get it, and has not, and nobody said to give that up
  bool never_complete = false;  ///< somebody could not save a part of it, so that it is none and will be none
  /// It was found to be damaged, or the run has gone back behind it: a new one of its step is to take its place.
  bool replaceable = false;
};

/// How many of the newest sets stay at a level.
struct KeepRule {
  uint64_t complete = 1;         ///< of those that are complete; at least 1
  uint64_t with_redundancy = 1;  ///< of those that have redundancy; at least 1
};

/// The steps that may leave a level: the one rule for all levels, and for all who drop sets by themselves (runs, saves,
/// watchers). A set may leave if
///   - so many complete sets as are kept are newer, and, if it has redundancy, as many of those that have some; and
///   - no farther level is owed it;
/// or if it can never be complete. What is to be replaced is not newer than any: a run that went back goes on from a
/// set that is older than what it has left behind, and all that there is of its own. It is not what failed, either, as
/// long as nothing has taken its place. Newer is what has a higher step *and* was made later: sets of steps that a run
/// has left behind when it fell back (since a lower step was made after them) push out nothing but one another, nor are
/// they pushed out before the run has come past them.
std::vector<uint64_t> sets_that_may_leave(const std::vector<SetAtLevel>& sets, const KeepRule& keep);

/// Keeps the rule in one store for one job: drops what may leave, and gives the space back. One for each level and run;
/// where several processes share a level, one of them does it for all. One thread at a time.
class Retention {
 public:
  static constexpr double kLastWaitSeconds = 5;

  struct Rules {
    std::string job{};
    std::optional<uint64_t> keep{};  ///< none: all stay, but what can never be complete
    uint64_t keep_with_redundancy = 1;
    /// What is known beside the store; where one is not set, of each set there: it is complete, has no redundancy, is
    /// not owed, may be complete, is not to be replaced.
    std::function<bool(uint64_t step)> complete{}, has_redundancy{}, never_complete{}, replaceable{};
    std::function<bool(uint64_t step, uint64_t number)> owed{};
    std::function<Status(uint64_t step)> before_drop{};  ///< of a set; where it fails, the set stays
    /// Only arenas of which nothing is needed are given back: redundancy covers whole arenas.
    bool whole_arenas = false;
  };
  explicit Retention(Rules rules) : rules_(std::move(rules)) {}

  /// After a set was completed, or the room ran out. Space comes back now and then, when no writer is in the way.
  Status apply(const Store& store, ProgressSink& progress);
  /// Drops a set whatever the rule says; one that is not there is dropped already.
  Status drop(const Store& store, uint64_t step);
  /// What space was not given back yet: at the end, or when the room ran out. Waits a little for writers that are about
  /// to end.
  Status give_space_back(const Store& store, ProgressSink& progress, double wait_seconds = kLastWaitSeconds);
  /// Whether sets were dropped whose space give_space_back() would give back.
  bool has_space_to_give() const { return dropped_count_ > 0; }

 private:
  Result<std::vector<SetAtLevel>> look(const Store& store);
  /// A set of that number alone, if one is given.
  Status drop(const Store& store, uint64_t step, std::optional<uint64_t> number);
  /// None: it cannot be told now.
  std::optional<uint64_t> number_of(const Store& store, uint64_t step);

  const Rules rules_;
  std::map<uint64_t, uint64_t> numbers_;  ///< of the sets that were there when it looked last
  uint64_t dropped_count_ = 0;            ///< sets whose space is still to be given back
};

/// Whether the sets of this number (SetRecord::number) are to go to a level behind the nearest store: each `every`-th.
/// Sets without a number, which earlier versions made, are due only where all are.
bool is_due(const LevelSpec& level, uint64_t number);

/// A set that a farther level is owed.
struct OwedSet {
  uint64_t step = 0;
  uint64_t number = 0;
  bool is_known = true;  ///< else its record cannot be read now
};

/// Sets, by step and number: one that takes the place of another has a later number.
using SeenSets = std::set<std::pair<uint64_t, uint64_t>>;

/// Sets of the nearest store that some level should have, and has not.
struct OwedSteps {
  std::set<uint64_t> steps{};
  bool is_known = true;  ///< else it may be owed any set there is
  /// Those that each level was compared with. What is not among them came later, and may be owed as well. None: there
  /// is no level to owe anything to.
  std::optional<SeenSets> seen{};
  bool contains(uint64_t step) const { return !is_known || steps.contains(step); }
  /// For a set that is in the nearest store.
  bool may_contain(uint64_t step, uint64_t number) const {
    return contains(step) || (seen && !seen->contains({step, number}));
  }
  bool empty() const { return is_known && steps.empty(); }
  void add(const OwedSteps& others);
};

/// What a farther level should have of one job's sets.
struct DueSets {
  const LevelSpec& level;
  const std::string& job;
  /// Whether who asks can bring this set of the nearest store there.
  std::function<bool(const SetRecord&)> wanted = [](const SetRecord& record) { return record.has_all_ranks(); };
  /// Whether the set that is there is to be replaced (SetAtLevel::replaceable); not set: none is.
  std::function<bool(uint64_t step)> replaceable{};
};

/// Whether `there` has all groups of `here`, which may be a part of it: the same trees.
bool has_trees_of(const SetRecord& there, const SetRecord& here);
/// Whether the store `there` has with `copy` what `here` has with `record`: these trees, or the same files in others.
bool has_set_of(const Store& there, const SetRecord& copy, const Store& here, const SetRecord& record);

/// What a look through the nearest store has found.
struct LevelBacklog {
  std::vector<OwedSet> owed{};  ///< in the order in which they were made
  SeenSets seen{};              ///< all that were there
};

/// The sets in the nearest store that are due at a farther level, `there`, and are not there, or otherwise. Without
/// those that the level's own `keep` would drop at once. What is there is durable then.
Result<LevelBacklog> backlog_of(const Store& nearest, const Store& there, const DueSets& due);
/// The same of a level that cannot be reached: whatever is due may be owed.
Result<LevelBacklog> backlog_of_unreached(const Store& nearest, const DueSets& due);

}  // namespace varve
