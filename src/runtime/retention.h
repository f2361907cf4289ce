#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/progress.h"
#include "store/set_record.h"
#include "store/store.h"

namespace varve {

/// Keeps the newest sets of a job, drops the others, and gives their space back. One group does it for the whole run.
class Retention {
 public:
  static constexpr double kLastWaitSeconds = 5;

  struct Rules {
    std::optional<uint64_t> keep_last{};                 ///< none: all stay
    std::function<bool(uint64_t step)> must_stay{};      ///< asked before a set is dropped; true: not yet
    std::function<Status(uint64_t step)> before_drop{};  ///< of a set; where it fails, the set stays
    /// Only arenas of which nothing is needed are given back: redundancy covers whole arenas.
    bool whole_arenas = false;
  };
  explicit Retention(Rules rules) : rules_(std::move(rules)) {}

  /// After the set of `step` was completed. Sets of later steps do not count, and stay: they are of another turn of
  /// history (damaged ones, say, behind which the run fell back). Space comes back now and then, when no writer is in
  /// the way.
  Status apply(const Store& store, const std::string& job, uint64_t step, ProgressSink& progress);
  /// At the end: what space was not given back yet. Waits a little for writers that are about to end.
  Status finish(const Store& store, ProgressSink& progress, double wait_seconds = kLastWaitSeconds);

 private:
  Status prune(const Store& store, double wait_seconds, ProgressSink& progress);

  Status drop(const Store& store, const SetName& name);

  const Rules rules_;
  uint64_t dropped_count_ = 0;  ///< sets whose space is still to be given back
};

}  // namespace varve
