#pragma once

#include <string>
#include <vector>

#include "study/estimate.h"
#include "study/pack_trial.h"
#include "study/part_source.h"

namespace varve {

/// What one order of chunks and one codec make of the data, without deduplication.
struct CompressionPoint {
  Scheme scheme = Scheme::agnostic;
  std::string method;        ///< as find_method() takes it
  int passes = 1;            ///< 2: gzip works on what another codec left; 0: what Varve finds by trials
  uint32_t group_size = 0;   ///< ranks that are laid together
  uint64_t block_bytes = 0;  ///< of the block schemes
  std::string set;
  uint64_t raw_bytes = 0;                                           ///< of the set
  Estimate stored_bytes;                                            ///< of these
  double encode_bytes_per_second = 0, decode_bytes_per_second = 0;  ///< raw bytes, one processor
  double order_bytes_per_second = 0;                                ///< of laying the data into packs
  Estimate ratio() const;
};

/// Improvement of the compression ratio over agnostic with gzip (mcrEngine, table IV).
struct Improvement {
  Scheme scheme = Scheme::aware;
  std::string method;
  double best = 0, worst = 0;  ///< fractions
  uint32_t best_group_size = 0, worst_group_size = 0;
};

struct Compression {
  std::string set;                        ///< on which all but `series` was tried
  uint32_t rank_count = 0;                ///< of it
  double sampled_share = 1;               ///< of its bytes
  std::vector<CompressionPoint> methods;  ///< every scheme × method (figure 6)
  std::vector<CompressionPoint> groups;   ///< against the group's size (figure 7)
  std::vector<CompressionPoint> blocks;   ///< against the block's size (figure 8)
  std::vector<CompressionPoint> series;   ///< one set after another (figure 9)
  std::vector<Improvement> improvements;
};

inline constexpr const char* kBaselineMethod = "gzip:6";

struct CompressionOptions {
  uint64_t sample_bytes = 32_MiB;  ///< of raw bytes, for each trial
  uint32_t group_size = 32;
  uint32_t thread_count = 0;
};

/// Tries all of it; stopped by `progress`, it returns what it has. Progress is in raw bytes of all trials.
Result<Compression> study_compression(const StudySeries& series, const CompressionOptions& options,
                                      ProgressSink& progress);

}  // namespace varve
