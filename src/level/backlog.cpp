#include "level/backlog.h"

#include <algorithm>

#include "level/retention.h"
#include "level/transfer.h"

namespace varve {

namespace {
/// Those of `names` that are due, as they were made.
std::vector<OwedSet> due_of(const Store& nearest, const DueSets& due, const std::vector<SetName>& names) {
  std::vector<OwedSet> owed;
  for (const SetName& name : names) {
    const Result<SetRecord> record = Catalog(nearest).read(name);
    // One that was dropped just now is owed no more; one that cannot be read may still be, and copying it says why not.
    if (record.status().code() == StatusCode::not_found) continue;
    if (!record.ok()) {
      owed.push_back({name.step, 0});
    } else if (is_due(due.level, record->number) && due.wanted(*record)) {
      owed.push_back({name.step, record->number});
    }
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

Result<std::vector<OwedSet>> backlog_of(const Store& nearest, const Store& there, const DueSets& due) {
  VARVE_ASSIGN(const std::vector<SetName> lacking, sets_lacking(nearest, there, due.job));
  std::vector<OwedSet> owed = due_of(nearest, due, lacking);
  if (!due.level.keep || owed.empty()) return owed;
  VARVE_ASSIGN(const std::vector<uint64_t> leaving, would_leave(there, due, owed));
  std::erase_if(
      owed, [&](const OwedSet& set) { return std::find(leaving.begin(), leaving.end(), set.step) != leaving.end(); });
  return owed;
}

Result<std::vector<OwedSet>> backlog_of_unreached(const Store& nearest, const DueSets& due) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(nearest).steps(due.job));
  std::vector<SetName> names;
  names.reserve(steps.size());
  for (const uint64_t step : steps) names.push_back({due.job, step});
  return due_of(nearest, due, names);
}

}  // namespace varve
