#pragma once

#include <string>
#include <vector>

#include "study/compression.h"
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

/// The machine and the run for which times are foretold.
struct RunAssumptions {
  double io_bytes_per_second = 1e9;            ///< of the file system, all nodes together
  double network_bytes_per_second = 1e9;       ///< into one aggregator
  double memory_bytes_per_second = 40e9;       ///< of a node
  uint64_t node_count = 0;                     ///< 0: one for each rank of the set
  double mean_time_between_failures = 86'400;  ///< of the job, in seconds
};

struct TimedStep {
  std::string name;
  double seconds = 0;
};

/// One way of making checkpoints (mcrEngine, table V, and Varve's own).
struct TimedConfiguration {
  std::string name, description;
  double written_bytes = 0;  ///< to the file system, of one checkpoint
  std::vector<TimedStep> checkpoint, restart;
  /// If the program waits for all steps.
  double interval_seconds = 0, waste = 0;
  /// If it goes on after a copy in memory.
  double asynchronous_interval_seconds = 0, asynchronous_waste = 0;

  double checkpoint_seconds() const;
  double restart_seconds() const;
};

struct Timing {
  RunAssumptions assumptions;
  double node_bytes = 0;  ///< of a checkpoint on each node: those of one rank
  uint32_t group_size = 0;
  double asynchronous_seconds = 0;  ///< that an asynchronous checkpoint costs the program
  std::vector<TimedConfiguration> configurations;
};

/// Puts measured speeds and ratios together. Empty configurations: what they need was not measured.
Timing study_timing(const StudySeries& series, const Compression& compression, const TrialSeries& trial,
                    const RunAssumptions& assumptions);

}  // namespace varve
