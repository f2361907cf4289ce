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

  /// A set is complete, whoever committed it: what all groups count alike decides when space is given back.
  void note_complete() { ++complete_count_; }
  /// After note_complete(), by the group that committed the set of `step`. Sets of later steps do not count, and stay:
  /// they are of another turn of history (damaged ones, say, behind which the run fell back).
  Status apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress) const;

 private:
  const std::optional<uint64_t> keep_last_;
  uint64_t complete_count_ = 0;
};

}  // namespace varve
