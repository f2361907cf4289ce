#include "level/retention.h"

#include <algorithm>
#include <set>

#include "engine/transfer.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/prune.h"
#include "store/remarks.h"
#include "store/stored_copies.h"

namespace varve {

namespace {
/// A prune walks the trees of all sets, so it pays only for some dropped ones at a time.
constexpr uint64_t kSetsPerPrune = 4;

bool is_newer(const SetAtLevel& one, const SetAtLevel& other) {
  return SetAge{one.step, one.number}.is_newer_than({other.step, other.number});
}
}  // namespace

std::vector<uint64_t> sets_that_may_leave(const std::vector<SetAtLevel>& sets, const KeepRule& keep) {
  const auto is_left_behind = [&](const SetAtLevel& set) {
    return std::any_of(sets.begin(), sets.end(), [&](const SetAtLevel& other) {
      return other.is_known && other.step < set.step && other.number > set.number;
    });
  };
  // What may push others out, and what may push out what was left behind.
  std::vector<SetAtLevel> on_course, all;
  for (const SetAtLevel& set : sets) {
    if (!set.is_known || set.replaceable) continue;
    all.push_back(set);
    if (!is_left_behind(set)) on_course.push_back(set);
  }
  std::vector<uint64_t> leaving;
  for (const SetAtLevel& set : sets) {
    const std::vector<SetAtLevel>& others = is_left_behind(set) ? all : on_course;
    const auto complete = std::count_if(
        others.begin(), others.end(), [&](const SetAtLevel& other) { return other.complete && is_newer(other, set); });
    const auto with_redundancy = std::count_if(others.begin(), others.end(), [&](const SetAtLevel& other) {
      return other.has_redundancy && is_newer(other, set);
    });
    const bool outlived = static_cast<uint64_t>(complete) >= std::max<uint64_t>(keep.complete, 1);
    const bool still_protects =
        set.has_redundancy && static_cast<uint64_t>(with_redundancy) < std::max<uint64_t>(keep.with_redundancy, 1);
    const bool has_failed = set.never_complete && !set.complete && !set.replaceable;
    if (has_failed || (set.is_known && outlived && !still_protects && !set.owed)) leaving.push_back(set.step);
  }
  return leaving;
}

Status Retention::apply(const Store& store, ProgressSink& progress) {
  if (!rules_.keep && !rules_.never_complete) return {};
  VARVE_ASSIGN(const std::vector<SetAtLevel> sets, look(store));
  const KeepRule keep{rules_.keep.value_or(sets.size() + 1), rules_.keep_with_redundancy};
  const std::vector<uint64_t> leaving = sets_that_may_leave(sets, keep);
  if (!leaving.empty()) {
    VARVE_ASSIGN(const std::set<SetName> pinned, Remarks(store).pinned());
    for (const SetAtLevel& set : sets) {
      const bool leaves = std::find(leaving.begin(), leaving.end(), set.step) != leaving.end();
      if (!leaves || pinned.contains({rules_.job, set.step})) continue;
      VARVE_TRY(drop(store, set.step, set.is_known ? std::optional(set.number) : std::nullopt));
    }
  }
  return dropped_count_ < kSetsPerPrune ? Status() : give_space_back(store, progress, 0);
}

Result<std::vector<SetAtLevel>> Retention::look(const Store& store) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(rules_.job));
  std::erase_if(numbers_,
                [&](const auto& known) { return !std::binary_search(steps.begin(), steps.end(), known.first); });
  std::vector<SetAtLevel> sets;
  if (steps.size() <= rules_.keep.value_or(0) && !rules_.never_complete) return sets;
  for (const uint64_t step : steps) {
    SetAtLevel& set = sets.emplace_back();
    set.step = step;
    const std::optional<uint64_t> number = number_of(store, step);
    set.number = number.value_or(0);
    set.is_known = number.has_value();
    set.complete = !rules_.complete || rules_.complete(step);
    set.has_redundancy = rules_.has_redundancy && rules_.has_redundancy(step);
    set.never_complete = rules_.never_complete && rules_.never_complete(step);
    set.replaceable = rules_.replaceable && rules_.replaceable(step);
    set.owed = rules_.owed && rules_.owed(step, set.number);
  }
  return sets;
}

std::optional<uint64_t> Retention::number_of(const Store& store, uint64_t step) {
  const bool replaceable = rules_.replaceable && rules_.replaceable(step);
  if (replaceable) numbers_.erase(step);  // it will have another one
  const auto known = numbers_.find(step);
  if (known != numbers_.end()) return known->second;
  const Result<SetRecord> record = Catalog(store).read({rules_.job, step});
  // What is one node's share of a set, in a store that all see, pushes nothing out.
  if (!record.ok() || (!rules_.complete && !record->has_all_ranks())) return std::nullopt;
  if (!replaceable) numbers_[step] = record->number;
  return record->number;
}

Status Retention::drop(const Store& store, uint64_t step) { return drop(store, step, {}); }

Status Retention::drop(const Store& store, uint64_t step, std::optional<uint64_t> number) {
  if (rules_.before_drop) VARVE_TRY(rules_.before_drop(step));
  const SetName name{rules_.job, step};
  const Catalog catalog(store);
  bool stays = false;
  if (!number) {
    const Status removed = catalog.remove(name);
    if (removed.code() != StatusCode::not_found) VARVE_TRY(removed);
  } else {
    VARVE_TRY(remove_used_parts(store, &name).status());
    VARVE_ASSIGN(const Catalog::Removal removal, catalog.remove_if(name, [&](const SetRecord& now, const SetRemarks*) {
      return now.number == *number;
    }));
    // A run has made it anew since it was judged, or somebody has pinned it.
    stays = removal == Catalog::Removal::is_another || removal == Catalog::Removal::is_pinned;
  }
  numbers_.erase(step);
  if (!stays) ++dropped_count_;
  return {};
}

Status Retention::give_space_back(const Store& store, ProgressSink& progress, double wait_seconds) {
  if (dropped_count_ == 0) return {};
  PruneOptions options;
  options.wait_seconds = wait_seconds;
  if (rules_.whole_arenas) options.live_share_min = 0;
  VARVE_ASSIGN(const PruneReport report, prune_store(store, options, progress));
  // What waits for a writer is for the next time.
  if (report.waiting_arenas == 0) dropped_count_ = 0;
  return {};
}

namespace {
/// Which sets a store holds: a record alone holds nothing.
class HeldSets {
 public:
  explicit HeldSets(const Store& store) : store_(store) {}
  /// With `copy`, what `here` has with `record`.
  bool have(const SetRecord& copy, const Store& here, const SetRecord& record) {
    // The share of one node is no more than its part.
    if (!copy.has_all_ranks()) return false;
    return (has_trees_of(copy, record) || same_content(here, record, store_, copy)) && has_roots_of(copy);
  }

 private:
  /// Whether there is what the trees of the set begin with. What cannot be listed is not known to be there.
  bool has_roots_of(const SetRecord& record) {
    if (!is_listed_) {
      const Result<std::vector<ArenaId>> listed = store_.list_arenas();
      if (listed.ok()) arenas_.insert(listed->begin(), listed->end());
      is_listed_ = true;
    }
    return std::all_of(record.groups.begin(), record.groups.end(), [this](const GroupRecord& group) {
      // A prune may have brought it elsewhere.
      return arenas_.contains(group.hint) || read_node(store_, group.root, group.hint).ok();
    });
  }

  const Store& store_;
  std::set<ArenaId> arenas_;
  bool is_listed_ = false;  ///< which takes long in a large store: when it is first asked for
};

/// Those of the nearest store that are due, as they were made; without those that `there` has.
Result<LevelBacklog> due_of(const Store& nearest, const Store* there, const DueSets& due) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(nearest).steps(due.job));
  std::optional<HeldSets> held;
  if (there != nullptr) held.emplace(*there);
  LevelBacklog backlog;
  std::vector<OwedSet>& owed = backlog.owed;
  for (const uint64_t step : steps) {
    const SetName name{due.job, step};
    const Result<SetRecord> record = Catalog(nearest).read(name);
    // One that was dropped just now is owed no more; one that cannot be read may still be, and copying it says why not.
    if (record.status().code() == StatusCode::not_found) continue;
    backlog.seen.emplace(step, record.ok() ? record->number : 0);
    if (record.ok() && !(is_due(due.level, record->number) && due.wanted(*record))) continue;
    if (there != nullptr) {
      const Result<SetRecord> copy = Catalog(*there).read(name);
      if (copy.ok() && record.ok() && held->have(*copy, nearest, *record)) continue;
    }
    owed.push_back({.step = step, .number = record.ok() ? record->number : 0, .is_known = record.ok()});
  }
  std::sort(owed.begin(), owed.end(), [](const OwedSet& a, const OwedSet& b) {
    return a.number != b.number ? a.number < b.number : a.step < b.step;
  });
  return backlog;
}

/// The steps that the level's own rule would drop, if it had all that it is owed, in the place of what it has of these
/// steps.
Result<std::vector<uint64_t>> would_leave(const Store& there, const DueSets& due, const std::vector<OwedSet>& owed) {
  std::vector<SetAtLevel> sets;
  std::set<uint64_t> owed_steps;
  for (const OwedSet& set : owed) {
    sets.push_back({.step = set.step, .number = set.number, .is_known = set.is_known, .complete = true});
    owed_steps.insert(set.step);
  }
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(there).steps(due.job));
  for (const uint64_t step : steps) {
    const Result<SetRecord> record = Catalog(there).read({due.job, step});
    if (!record.ok() || owed_steps.contains(step)) continue;
    const bool replaceable = due.replaceable && due.replaceable(step);
    sets.push_back(
        {.step = step, .number = record->number, .complete = record->has_all_ranks(), .replaceable = replaceable});
  }
  return sets_that_may_leave(sets, {.complete = *due.level.keep});
}
}  // namespace

void OwedSteps::add(const OwedSteps& others) {
  steps.insert(others.steps.begin(), others.steps.end());
  is_known = is_known && others.is_known;
  if (!others.seen) return;
  if (!seen) {
    seen = others.seen;
  } else {
    std::erase_if(*seen, [&](const auto& set) { return !others.seen->contains(set); });
  }
}

bool is_due(const LevelSpec& level, uint64_t number) {
  return level.every == 1 || (number != 0 && number % level.every == 0);
}

bool has_trees_of(const SetRecord& there, const SetRecord& here) {
  return std::all_of(here.groups.begin(), here.groups.end(), [&there](const GroupRecord& group) {
    return std::any_of(there.groups.begin(), there.groups.end(),
                       [&group](const GroupRecord& other) { return other.root == group.root; });
  });
}

bool has_set_of(const Store& there, const SetRecord& copy, const Store& here, const SetRecord& record) {
  return HeldSets(there).have(copy, here, record);
}

Result<LevelBacklog> backlog_of(const Store& nearest, const Store& there, const DueSets& due) {
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, there.backend().watch_power());
  // What cannot be listed is not known to lack anything.
  VARVE_TRY(Catalog(there).jobs().status());
  VARVE_ASSIGN(LevelBacklog backlog, due_of(nearest, &there, due));
  // What is not owed may leave the nearest store.
  VARVE_TRY(Catalog(there).make_durable(due.job));
  if (!due.level.keep || backlog.owed.empty()) return backlog;
  VARVE_ASSIGN(const std::vector<uint64_t> leaving, would_leave(there, due, backlog.owed));
  std::erase_if(backlog.owed, [&](const OwedSet& set) {
    return std::find(leaving.begin(), leaving.end(), set.step) != leaving.end();
  });
  return backlog;
}

Result<LevelBacklog> backlog_of_unreached(const Store& nearest, const DueSets& due) {
  return due_of(nearest, nullptr, due);
}

}  // namespace varve
