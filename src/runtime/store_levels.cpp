#include "runtime/store_levels.h"

#include <fmt/format.h>

#include <algorithm>

#include "level/retention.h"
#include "level/transfer.h"

namespace varve {

namespace {
/// Whether the nearest level can be saved to, set by set.
Status check_nearest(const LevelSpec& spec) {
  if (spec.every == 1) return {};
  return Status::invalid_argument("every= of the nearest level counts checkpoints, which a running program alone makes",
                                  spec.to_string(), "leave it out: each set is saved there");
}
/// Whether other sets can be copied although this one cannot.
bool is_of_one_set(const Status& failure) {
  return failure.code() == StatusCode::corrupt || failure.code() == StatusCode::already_exists ||
         failure.code() == StatusCode::not_found;
}
}  // namespace

Result<StoreLevels> StoreLevels::open(const Said& said, Use use, World world) {
  SettingsSources& sources = world.sources;
  sources.command_line = {{"levels", said.levels}, {"store", said.store}, {"key_file", said.key_file}};
  StoreLevels levels;
  VARVE_ASSIGN(levels.settings_, resolve_settings({}, sources));
  const auto node = sources.environment.find("VARVE_NODE");
  if (node != sources.environment.end()) levels.node_ = node->second;
  levels.world_ = std::move(world);
  levels.makes_ = use == Use::save;
  for (const LevelSpec& spec : levels.settings_.levels) {
    if (!spec.holds_sets()) continue;
    const bool is_nearest = levels.levels_.empty();
    if (is_nearest && use != Use::look) VARVE_TRY(check_nearest(spec));
    Level& level = levels.levels_.emplace_back();
    level.spec = spec;
    level.path = StoreLevel::path_of(spec, levels.node_);
    if (use == Use::help && !is_nearest) continue;
    levels.reach(level);
    // What makes no sense will make none later, either.
    const bool has_to_be_there = is_nearest || level.failure.code() == StatusCode::invalid_argument;
    if (use != Use::look && has_to_be_there) VARVE_TRY(level.failure.with_context("level " + spec.name()));
  }
  return levels;
}

void StoreLevels::reach(Level& level) const {
  const std::string& key_file = settings_.key_file;
  FileSystem& files = *world_.files;
  Status made;
  if (makes_) made = StoreLevel::prepare(files, level.spec, level.path, key_file).status();
  Result<std::unique_ptr<StoreLevel>> opened = made;
  if (made.ok()) opened = StoreLevel::open(files, level.spec, level.path, key_file, *world_.clock);
  level.failure = opened.status();
  if (opened.ok()) level.open = std::move(*opened);
}

Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps_by_age(job));
  const auto known = std::find_if(steps.rbegin(), steps.rend(),
                                  [&](uint64_t step) { return std::binary_search(there.begin(), there.end(), step); });
  return static_cast<uint64_t>(known - steps.rbegin());
}

const Store* StoreLevels::find(const SetName& name) const {
  for (const Level& level : levels_) {
    if (level.open && Catalog(level.open->store()).has(name)) return &level.open->store();
  }
  return nullptr;
}

StoreLevels::Onward StoreLevels::bring_along(const std::string& job, ProgressSink& progress) {
  Onward onward;
  std::vector<std::vector<OwedSet>> owed_to(levels_.size());
  for (size_t i = 1; i < levels_.size(); ++i) owed_to[i] = catch_up(levels_[i], job, onward, progress);
  // From the farthest on: what a level is owed stays at all that are nearer.
  for (size_t i = levels_.size(); i-- > 0 && !progress.cancelled();) {
    if (levels_[i].open && levels_[i].failure.ok()) {
      const Status retained = retain(levels_[i], job, onward.owed, progress);
      if (!retained.ok()) onward.failures.push_back(retained.with_context(levels_[i].spec.name() + ": old sets stay"));
    }
    for (const OwedSet& set : owed_to[i]) onward.owed.insert(set.step);
  }
  if (onward.failures.empty() && progress.cancelled())
    onward.failures.push_back(Status::cancelled("stopped when the set was saved, but not brought to all levels"));
  return onward;
}

Result<std::vector<OwedSet>> StoreLevels::backlog(Level& level, const std::string& job) const {
  if (!level.open) reach(level);
  if (level.open) {
    Result<std::vector<OwedSet>> owed = backlog_of(nearest().open->store(), level.open->store(), {level.spec, job});
    level.failure = owed.status();
    if (owed.ok()) return owed;
  }
  return backlog_of_unreached(nearest().open->store(), {level.spec, job});
}

std::vector<OwedSet> StoreLevels::catch_up(Level& level, const std::string& job, Onward& onward,
                                           ProgressSink& progress) const {
  Result<std::vector<OwedSet>> owed = backlog(level, job);
  if (!owed.ok()) {
    onward.failures.push_back(owed.status().with_context(nearest().spec.name()));
    return {};
  }
  std::vector<OwedSet> left = std::move(*owed);
  while (level.spec.backlog && left.size() > *level.spec.backlog) {
    onward.given_up.push_back(Status::resource_limit(
        fmt::format("{} falls behind, and does not get this set (backlog={})", level.spec.name(), *level.spec.backlog),
        SetName{job, left.front().step}.to_string()));
    left.erase(left.begin());
  }
  Status blocked = level.failure, failure = blocked;
  std::vector<OwedSet> still;
  for (const OwedSet& set : left) {
    Status copied = blocked;
    if (copied.ok() && progress.cancelled()) copied = Status::cancelled("stopped");
    if (copied.ok()) {
      const SetName name{job, set.step};
      const Result<TransferReport> report = copy_set(nearest().open->store(), level.open->slowed(), name, {}, progress);
      copied = report.status();
      if (report.ok()) onward.copies.push_back({level.spec.name(), name, report->sent_bytes});
    }
    if (copied.ok()) continue;
    still.push_back(set);
    if (failure.ok()) failure = copied;
    if (!is_of_one_set(copied)) blocked = copied;
  }
  if (still.empty() || failure.code() == StatusCode::cancelled) return still;
  const std::string sets = still.size() == 1 ? "1 set is" : fmt::format("{} sets are", still.size());
  onward.failures.push_back(failure.with_context(
      fmt::format("{} in {}, and still to be copied to {}", sets, nearest().spec.name(), level.spec.name())));
  return still;
}

Status StoreLevels::retain(const Level& level, const std::string& job, const std::set<uint64_t>& owed,
                           ProgressSink& progress) const {
  const Store& store = level.open->slowed();
  Retention::Rules rules;
  rules.job = job;
  rules.keep = level.spec.keep;
  rules.owed = [&](uint64_t step, uint64_t) { return owed.contains(step); };
  if (level.spec.kind == LevelSpec::Kind::local) {
    // Of a checkpoint that lies on several nodes, only a run knows whether it is complete.
    rules.complete = [&](uint64_t step) {
      const Result<SetRecord> record = Catalog(store).read({job, step});
      return record.ok() && record->has_all_ranks();
    };
  }
  Retention retention(std::move(rules));
  VARVE_TRY(retention.apply(store, progress));
  return retention.give_space_back(store, progress, /*wait_seconds=*/0);
}

}  // namespace varve
