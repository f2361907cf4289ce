#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/progress.h"
#include "store/store.h"

namespace varve {

/// Keeps the newest sets of a job, drops the others, and gives their space back. One group does it for the whole run.
class Retention {
 public:
  /// None: all stay.
  explicit Retention(std::optional<uint64_t> keep_last) : keep_last_(keep_last) {}

  /// After the set of `step` was completed. Sets of later steps do not count, and stay: they are of another turn of
  /// history (damaged ones, say, behind which the run fell back). Space comes back now and then, when no writer is in
  /// the way.
  Status apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress);
  /// At the end: what space was not given back yet. Waits a little for writers that are about to end.
  Status finish(const Store& store, ProgressSink& progress);

 private:
  Status prune(const Store& store, double wait_seconds, ProgressSink& progress);

  const std::optional<uint64_t> keep_last_;
  uint64_t dropped_count_ = 0;  ///< sets whose space is still to be given back
};

}  // namespace varve
