#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/advice.h"
#include "study/change_map.h"
#include "study/compression.h"
#include "study/contents.h"
#include "study/dedup.h"
#include "study/timing.h"

namespace varve {

struct StudyOptions {
  /// How many bytes each codec is tried on. Settings as a whole are tried on eight times as many, and deduplication
  /// looks at 128 times as many. UINT64_MAX: on all.
  uint64_t sample_bytes = 32_MiB;
  uint64_t memory_bytes = 512_MiB;  ///< that is used at most, about; samples are made smaller to fit
  uint32_t thread_count = 0;        ///< 0: as many as processors
  uint32_t group_size = 32;
  RunAssumptions assumptions;
};

/// How long a part of a study took.
struct StudyStage {
  std::string name;
  double seconds = 0;
  bool complete = false;
};

/// What a study found. A part that was not reached before it was stopped is missing; one that was stopped is there as
/// far as it got.
struct StudyResult {
  std::vector<std::string> sets;  ///< labels
  uint64_t raw_bytes = 0;
  bool complete = true;  ///< false: it was stopped
  std::vector<StudyStage> stages;
  std::optional<Contents> contents;
  std::optional<Dedup> dedup;
  std::optional<ChangeMap> changes;
  std::optional<Compression> compression;
  std::optional<Advice> advice;
  std::optional<Timing> timing;
};

/// Studies a series that is open. It reads, and writes nothing. Progress is in phases; cancelling it ends the
/// measuring, and what is known by then is returned.
Result<StudyResult> run_study(const StudySeries& series, const StudyOptions& options, ProgressSink& progress);

}  // namespace varve
