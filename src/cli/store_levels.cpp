#include "cli/store_levels.h"

#include <algorithm>
#include <cstdlib>

#include "level/transfer.h"
#include "store/prune.h"

namespace varve::cli {

Result<StoreLevels> StoreLevels::open(const std::string& text, const std::string& key_file, bool make) {
  SettingsSources sources = SettingsSources::of_process();
  sources.command_line = {{"levels", text}, {"key_file", key_file}};
  StoreLevels levels;
  VARVE_ASSIGN(levels.settings_, resolve_settings({}, sources));
  if (const char* node = std::getenv("VARVE_NODE")) levels.node_ = node;
  for (const LevelSpec& spec : levels.settings_.levels) {
    if (!spec.holds_sets()) continue;
    const std::string path = StoreLevel::path_of(spec, levels.node_);
    const std::string& key = levels.settings_.key_file;
    if (make) VARVE_TRY(StoreLevel::prepare(posix_file_system(), spec, path, key).status());
    Result<std::unique_ptr<StoreLevel>> level = StoreLevel::open(posix_file_system(), spec, path, key, steady_clock());
    if (!level.ok()) return level.status().with_context("level " + spec.name());
    levels.levels_.push_back(std::move(*level));
  }
  return levels;
}

Result<uint64_t> sets_ahead(const Store& store, const Store& other, const std::string& job) {
  VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(store).steps(job));
  VARVE_ASSIGN(const std::vector<uint64_t> there, Catalog(other).steps(job));
  const auto newer = there.empty() ? steps.begin() : std::upper_bound(steps.begin(), steps.end(), there.back());
  return static_cast<uint64_t>(steps.end() - newer);
}

Result<std::vector<StoreLevels::Brought>> StoreLevels::bring_along(const SetName& name, ProgressSink& progress) const {
  std::vector<Brought> brought;
  for (size_t i = 1; i < levels_.size(); ++i) {
    const StoreLevel& level = *levels_[i];
    VARVE_ASSIGN(const uint64_t ahead, sets_ahead(nearest().store(), level.store(), name.job));
    if (ahead < level.spec().every) continue;
    Result<TransferReport> report = copy_set(nearest().store(), level.slowed(), name, {}, progress);
    if (!report.ok())
      return report.status().with_context("the set is saved to " + nearest().name() + ", but not to " + level.name());
    brought.push_back({level.name(), name, report->sent_bytes});
  }
  VARVE_TRY(retain(name.job, progress));
  return brought;
}

Status StoreLevels::retain(const std::string& job, ProgressSink& progress) const {
  uint64_t counted = 1;
  for (size_t i = 1; i < levels_.size(); ++i) counted = std::max(counted, levels_[i]->spec().every);
  for (const auto& level : levels_) {
    if (!level->spec().keep) continue;
    PruneOptions options;
    options.job = job;
    options.keep_last = level == levels_.front() ? std::max(*level->spec().keep, counted) : *level->spec().keep;
    options.wait_seconds = 0;
    VARVE_ASSIGN(const std::vector<uint64_t> steps, Catalog(level->store()).steps(job));
    if (steps.size() <= *options.keep_last) continue;
    VARVE_TRY(prune_store(level->store(), options, progress).status());
  }
  return {};
}

}  // namespace varve::cli
