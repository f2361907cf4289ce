#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "level/level_spec.h"
#include "store/set_record.h"
#include "store/store.h"

namespace varve {

/// Whether the sets of this number (SetRecord::number) are to go to a level behind the nearest store: each `every`-th.
/// Of sets without a number, which earlier versions made, only where all go there.
bool is_due(const LevelSpec& level, uint64_t number);

/// A set that a farther level is owed.
struct OwedSet {
  uint64_t step = 0;
  uint64_t number = 0;
};

/// Steps of sets that some level should have, and has not.
struct OwedSteps {
  std::set<uint64_t> steps{};
  bool is_known = true;  ///< else it may be owed any set there is
  bool contains(uint64_t step) const { return !is_known || steps.contains(step); }
  bool empty() const { return is_known && steps.empty(); }
  void add(const OwedSteps& others) {
    steps.insert(others.steps.begin(), others.steps.end());
    is_known = is_known && others.is_known;
  }
};

/// What a farther level should have of one job's sets.
struct DueSets {
  const LevelSpec& level;
  const std::string& job;
  /// Whether who asks can bring this set of the nearest store there.
  std::function<bool(const SetRecord&)> wanted = [](const SetRecord& record) { return record.has_all_ranks(); };
};

/// Whether `there` has all groups of `here`, which may be a part of it: the same trees.
bool has_trees_of(const SetRecord& there, const SetRecord& here);

/// The sets in the nearest store that are due at a farther level, `there`, and are not there, or otherwise; in the
/// order in which they were made. Without those that the level's own `keep` would drop at once. What is there is
/// durable then.
Result<std::vector<OwedSet>> backlog_of(const Store& nearest, const Store& there, const DueSets& due);
/// The same of a level that cannot be reached: whatever is due may be owed.
Result<std::vector<OwedSet>> backlog_of_unreached(const Store& nearest, const DueSets& due);

}  // namespace varve
