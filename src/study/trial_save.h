#pragma once

#include <string>
#include <vector>

#include "study/estimate.h"
#include "study/part_source.h"

namespace varve {

/// What a save would store of one set.
struct TrialSet {
  std::string label;
  uint64_t raw_bytes = 0;
  Estimate stored_bytes;  ///< of the whole set, with all that describes it
};

/// What saving a series one set after another into a new store would give.
struct TrialSeries {
  std::string scheme, policy, chunker;
  std::vector<TrialSet> sets;
  double sampled_share = 1;      ///< of the bytes that were saved for this; 1: the sizes are those of a real save
  double seconds = 0;            ///< wall time of the trial
  double processor_seconds = 0;  ///< of the trial
  uint64_t saved_bytes = 0;      ///< raw bytes of the trial

  uint64_t raw_bytes() const;
  Estimate stored_bytes() const;
};

/// Saves what `plan` takes of the series with the engine itself, into a store in memory that is then forgotten.
Result<TrialSeries> try_save(const StudySeries& series, const SamplePlan& plan, const SaveOptions& options,
                             ProgressSink& progress);

}  // namespace varve
