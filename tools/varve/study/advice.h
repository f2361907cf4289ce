#pragma once

#include <string>
#include <vector>

#include "study/timing.h"

namespace varve {

/// What Varve would do with data like these.
struct Advice {
  std::vector<TrialSeries> trials;   ///< what was tried, the defaults first
  size_t chosen = 0;                 ///< in trials
  std::vector<std::string> reasons;  ///< sentences
  std::string save_command;          ///< "varve save DIR --scheme ..."
  std::string options_file;          ///< a varve.toml for the program that writes such checkpoints
};

struct AdviceOptions {
  uint64_t sample_bytes = 256_MiB;  ///< of the series, for each trial
  uint32_t group_size = 32;
  uint64_t memory_bytes = 512_MiB;
  uint32_t thread_count = 0;
  double mean_time_between_failures = 86'400;
};

/// Tries settings on a sample of the series, and chooses. Stopped by `progress` after the first trial, it chooses among
/// what was tried; before, the status is `cancelled`.
Result<Advice> study_advice(const StudySeries& series, const AdviceOptions& options, ProgressSink& progress);

}  // namespace varve
