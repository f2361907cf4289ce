#include "cli/store_levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "level/transfer.h"
#include "runtime/retention.h"

namespace varve::cli {

namespace {
/// Whether the nearest level can be saved to, set by set.
Status check_nearest(const LevelSpec& spec) {
  if (spec.every == 1) return {};
  return Status::invalid_argument("every= of the nearest level counts checkpoints, which a running program alone makes",
                                  spec.to_string(), "leave it out: each set is saved there");
}
}  // namespace

Result<StoreLevels> StoreLevels::open(const Said& said, Use use) {
  SettingsSources sources = SettingsSources::of_process();
  sources.command_line = {{"levels", said.levels}, {"store", said.store}, {"key_file", said.key_file}};
  StoreLevels levels;
  VARVE_ASSIGN(levels.settings_, resolve_settings({}, sources));
  if (const char* node = std::getenv("VARVE_NODE")) levels.node_ = node;
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
  FileSystem& files = posix_file_system();
  Status made;
  if (makes_) made = StoreLevel::prepare(files, level.spec, level.path, key_file).status();
  Result<std::unique_ptr<StoreLevel>> opened = made;
  if (made.ok()) opened = StoreLevel::open(files, level.spec, level.path, key_file, steady_clock());
  level.failure = opened.status();
  if (opened.ok()) level.open = std::move(*opened);
}

Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps_by_age(job));
  const auto known = std::find_if(steps.rbegin(), steps.rend(),
                                  [&](uint64_t step) { return std::binary_search(there.begin(), there.end(), step); });
  return static_cast<uint64_t>(known - steps.rbegin());
}

StoreLevels::Onward StoreLevels::bring_along(const SetName& name, ProgressSink& progress) {
  Onward onward;
  for (size_t i = 1; i < levels_.size() && !progress.cancelled(); ++i) {
    Result<std::optional<Copy>> copy = copy_to(levels_[i], name, progress);
    if (!copy.ok()) {
      onward.failures.push_back(copy.status().with_context(
          fmt::format("the set is saved to {}, but not to {}", nearest().spec.name(), levels_[i].spec.name())));
    } else if (*copy) {
      onward.copies.push_back(*std::move(*copy));
    }
  }
  for (const Level& level : levels_) {
    if (!level.open || progress.cancelled()) continue;
    const Status retained = retain(level, name, progress);
    if (!retained.ok()) onward.failures.push_back(retained.with_context(level.spec.name() + ": old sets stay"));
  }
  if (onward.failures.empty() && progress.cancelled())
    onward.failures.push_back(Status::cancelled("stopped when the set was saved, but not brought to all levels"));
  return onward;
}

/// None: its turn has not come.
Result<std::optional<StoreLevels::Copy>> StoreLevels::copy_to(Level& level, const SetName& name,
                                                              ProgressSink& progress) const {
  if (!level.open) reach(level);
  VARVE_TRY(level.failure);
  VARVE_ASSIGN(const bool due, is_due(level, name));
  if (!due) return std::optional<Copy>();
  VARVE_ASSIGN(const TransferReport report,
               copy_set(nearest().open->store(), level.open->slowed(), name, {}, progress));
  return std::optional<Copy>({level.spec.name(), report.sent_bytes});
}

Result<bool> StoreLevels::is_due(const Level& level, const SetName& name) const {
  if (level.spec.every == 1) return true;
  VARVE_ASSIGN(std::vector<uint64_t> there, Catalog(level.open->store()).steps(name.job));
  std::erase(there, name.step);  // the set is new: another one of this name is in its way, and copying says so
  VARVE_ASSIGN(const uint64_t ahead, sets_ahead(nearest().open->store(), name.job, there));
  return ahead >= level.spec.every;
}

Status StoreLevels::retain(const Level& level, const SetName& name, ProgressSink& progress) const {
  if (!level.spec.keep) return {};
  uint64_t kept = *level.spec.keep;
  if (&level == &levels_.front()) {
    for (size_t i = 1; i < levels_.size(); ++i) kept = std::max(kept, levels_[i].spec.every);
  }
  Retention retention({.keep_last = kept});
  const Store& store = level.open->slowed();
  VARVE_TRY(retention.apply(store, name.job, name.step, progress));
  return retention.finish(store, progress, /*wait_seconds=*/0);
}

}  // namespace varve::cli
