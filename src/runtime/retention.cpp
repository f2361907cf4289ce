#include "runtime/retention.h"

#include <algorithm>

#include "store/catalog.h"
#include "store/prune.h"

namespace varve {

namespace {
/// A prune walks the trees of all sets, so it pays only for some dropped ones at a time.
constexpr uint64_t kSetsPerPrune = 4;
}  // namespace

Status Retention::apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress) {
  if (!rules_.keep_last) return {};
  const Catalog catalog(store);
  VARVE_ASSIGN(std::vector<uint64_t> steps, catalog.steps(job));
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  const uint64_t kept = std::max<uint64_t>(*rules_.keep_last, 1);
  const size_t too_many = steps.size() > kept ? steps.size() - kept : 0;
  for (size_t i = 0; i < too_many; ++i) {
    if (rules_.must_stay && rules_.must_stay(steps[i])) continue;
    VARVE_TRY(drop(store, {job, steps[i]}));
    ++dropped_count_;
  }
  return dropped_count_ < kSetsPerPrune ? Status() : prune(store, 0, progress);
}

Status Retention::drop(const Store& store, const SetName& name) {
  if (rules_.before_drop) VARVE_TRY(rules_.before_drop(name.step));
  const Status removed = Catalog(store).remove(name);
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

Status Retention::finish(const Store& store, ProgressSink& progress, double wait_seconds) {
  return dropped_count_ == 0 ? Status() : prune(store, wait_seconds, progress);
}

Status Retention::prune(const Store& store, double wait_seconds, ProgressSink& progress) {
  PruneOptions options;
  options.wait_seconds = wait_seconds;
  if (rules_.whole_arenas) options.live_share_min = 0;
  VARVE_ASSIGN(const PruneReport report, prune_store(store, options, progress));
  // What waits for a writer is for the next time.
  if (report.waiting_arenas == 0) dropped_count_ = 0;
  return {};
}

}  // namespace varve
