#pragma once

#include <cstdint>
#include <optional>

#include "core/progress.h"
#include "store/store.h"

namespace varve {

/// Keeps the newest sets of a job, and drops the others when a newer one is complete.
class Retention {
 public:
  /// None: all stay.
  explicit Retention(std::optional<uint64_t> keep_last) : keep_last_(keep_last) {}

  /// After the set of `step` was completed by this group. Sets of later steps do not count, and stay: they are of
  /// another turn of history (damaged ones, say, behind which the run fell back). Gives space back now and then.
  Status apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress);

 private:
  const std::optional<uint64_t> keep_last_;
  uint64_t dropped_count_ = 0;  ///< since the last prune
};

}  // namespace varve
