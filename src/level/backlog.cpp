#include "level/backlog.h"

#include <algorithm>

#include "level/retention.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// Those of the nearest store that are due, as they were made; without those that `there` has.
Result<std::vector<OwedSet>> due_of(const Store& nearest, const Store* there, const DueSets& due) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(nearest).steps(due.job));
  std::vector<OwedSet> owed;
  for (const uint64_t step : steps) {
    const SetName name{due.job, step};
    const Result<SetRecord> record = Catalog(nearest).read(name);
    // One that was dropped just now is owed no more; one that cannot be read may still be, and copying it says why not.
    if (record.status().code() == StatusCode::not_found) continue;
    if (record.ok() && !(is_due(due.level, record->number) && due.wanted(*record))) continue;
    if (there != nullptr) {
      const Result<SetRecord> copy = Catalog(*there).read(name);
      if (copy.ok() && record.ok() && has_trees_of(*copy, *record)) continue;
    }
    owed.push_back({step, record.ok() ? record->number : 0});
  }
  std::sort(owed.begin(), owed.end(), [](const OwedSet& a, const OwedSet& b) {
    return a.number != b.number ? a.number < b.number : a.step < b.step;
  });
  return owed;
}

/// The steps that the level's own rule would drop, if it had all that it is owed.
Result<std::vector<uint64_t>> would_leave(const Store& there, const DueSets& due, const std::vector<OwedSet>& owed) {
  std::vector<SetAtLevel> sets;
  for (const OwedSet& set : owed) sets.push_back({.step = set.step, .number = set.number, .complete = true});
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(there).steps(due.job));
  for (const uint64_t step : steps) {
    const Result<SetRecord> record = Catalog(there).read({due.job, step});
    if (record.ok()) sets.push_back({.step = step, .number = record->number, .complete = true});
  }
  return sets_that_may_leave(sets, {.complete = *due.level.keep});
}
}  // namespace

bool is_due(const LevelSpec& level, uint64_t number) {
  return level.every == 1 || (number != 0 && number % level.every == 0);
}

bool has_trees_of(const SetRecord& there, const SetRecord& here) {
  return std::all_of(here.groups.begin(), here.groups.end(), [&there](const GroupRecord& group) {
    return std::any_of(there.groups.begin(), there.groups.end(),
                       [&group](const GroupRecord& other) { return other.root == group.root; });
  });
}

Result<std::vector<OwedSet>> backlog_of(const Store& nearest, const Store& there, const DueSets& due) {
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, there.fs().watch_power());
  // What cannot be listed is not known to lack anything.
  VARVE_TRY(Catalog(there).jobs().status());
  VARVE_ASSIGN(std::vector<OwedSet> owed, due_of(nearest, &there, due));
  // What is not owed may leave the nearest store.
  VARVE_TRY(Catalog(there).make_durable(due.job));
  if (!due.level.keep || owed.empty()) return owed;
  VARVE_ASSIGN(const std::vector<uint64_t> leaving, would_leave(there, due, owed));
  std::erase_if(
      owed, [&](const OwedSet& set) { return std::find(leaving.begin(), leaving.end(), set.step) != leaving.end(); });
  return owed;
}

Result<std::vector<OwedSet>> backlog_of_unreached(const Store& nearest, const DueSets& due) {
  return due_of(nearest, nullptr, due);
}

}  // namespace varve
