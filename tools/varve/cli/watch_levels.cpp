#include "cli/watch_levels.h"

#include <algorithm>

#include "store/catalog.h"

namespace varve::cli {

void WatchLevels::arrive(const std::string& level, const SetRecord& record) {
  std::optional<Newest>& newest = jobs_[record.name.job][level];
  if (!newest || newest->step <= record.name.step) newest = Newest{record.name.step, record.created_s};
}

void WatchLevels::note_there(const SetName& set) {
  const std::optional<Newest>& known = jobs_[set.job][name_];
  if (known && known->step >= set.step) return;
  // It may have left for a farther level.
  if (const Result<SetRecord> record = Catalog(nearest_).read(set); record.ok()) arrive(name_, *record);
}

void WatchLevels::look_at(const std::string& job, const std::string& level, const Store& store) {
  const Catalog catalog(store);
  const Result<std::vector<uint64_t>> steps = catalog.steps(job);
  if (!steps.ok() || steps->empty()) return;
  if (const Result<SetRecord> record = catalog.read({job, steps->back()}); record.ok()) arrive(level, *record);
}

void WatchLevels::note_brought(const std::string& job, const Onward& onward, const Levels& levels) {
  for (StoreLevel* const level : levels.stores()) {
    if (level->access().is_nearest()) continue;
    const auto [known, is_new] = jobs_[job].try_emplace(level->name());
    const Store* const store = level->access().opened();
    // One that is away is not waited for once more.
    if (!known->second && store != nullptr && onward.failures.empty()) look_at(job, level->name(), *store);
  }
  for (const LevelCopy& copy : onward.copies) {
    if (const Result<SetRecord> record = Catalog(nearest_).read(copy.name); record.ok()) arrive(copy.level, *record);
  }
}

/// As that of runs: a level without any set of the job is as far behind as the watcher is old.
double WatchLevels::lag_seconds(const std::string& level, const std::optional<Newest>& newest,
                                const std::optional<Newest>& of_nearest, std::optional<int64_t> made_s) const {
  if (level == name_) {
    if (!made_s) return 0;
    return static_cast<double>(std::max<int64_t>(0, *made_s - (newest ? newest->saved_s : begin_s_)));
  }
  if (!of_nearest || (newest && newest->step >= of_nearest->step)) return 0;
  return static_cast<double>(std::max<int64_t>(0, of_nearest->saved_s - (newest ? newest->saved_s : begin_s_)));
}

std::vector<WatchStatus::Level> WatchLevels::now(const std::map<std::string, int64_t>& made_s) const {
  // Of a job of which nothing has been saved yet there may be something to wait for.
  std::map<std::string, std::map<std::string, std::optional<Newest>>> jobs = jobs_;
  for (const auto& [job, made] : made_s) jobs[job];
  std::vector<WatchStatus::Level> told;
  for (auto& [job, levels] : jobs) {
    const std::optional<Newest> of_nearest = levels[name_];
    const auto made = made_s.find(job);
    for (const auto& [level, newest] : levels) {
      WatchStatus::Level& one = told.emplace_back();
      one.level = level;
      one.job = job;
      if (newest) one.newest = newest->step;
      if (newest) one.newest_s = newest->saved_s;
      one.lag_seconds =
          lag_seconds(level, newest, of_nearest, made != made_s.end() ? std::optional(made->second) : std::nullopt);
    }
  }
  return told;
}

}  // namespace varve::cli
