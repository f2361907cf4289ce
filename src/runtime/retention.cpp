#include "runtime/retention.h"

#include <algorithm>

#include "store/catalog.h"
#include "store/prune.h"

namespace varve {

namespace {
/// A prune walks the trees of all sets, so it pays only for some dropped ones at a time.
constexpr uint64_t kSetsPerPrune = 4;
}  // namespace

Status Retention::apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress) const {
  if (!keep_last_) return {};
  const Catalog catalog(store);
  VARVE_ASSIGN(std::vector<uint64_t> steps, catalog.steps(job));
  steps.erase(std::upper_bound(steps.begin(), steps.end(), step), steps.end());
  const uint64_t kept = std::max<uint64_t>(*keep_last_, 1);
  const size_t dropped = steps.size() > kept ? steps.size() - kept : 0;
  for (size_t i = 0; i < dropped; ++i) {
    const Status removed = catalog.remove({job, steps[i]});
    if (!removed.ok() && removed.code() != StatusCode::not_found) return removed;
  }
  if (dropped == 0 || complete_count_ % kSetsPerPrune != 0) return {};
  PruneOptions options;
  options.wait_seconds = 0;  // what waits for a writer is for the next time
  return prune_store(store, options, progress).status();
}

}  // namespace varve
