#pragma once

#include <array>
#include <string>
#include <vector>

#include "study/part_source.h"
#include "study/share_counter.h"

namespace varve {

/// Chunks of one size, from this on to the next power of two.
struct SizeBin {
  uint64_t bytes_from = 0;
  uint64_t chunks = 0, bytes = 0;
};

/// What one way of cutting finds.
struct DedupMethod {
  std::string name;       ///< as --chunker takes it
  bool of_files = false;  ///< of whole files, whatever is in them, as cento cuts; else of each variable
  std::vector<std::array<ShareCount, kShareScopes>> sets;  ///< by ShareScope
  std::vector<SizeBin> sizes;
  uint64_t sampled_one_in = 1;  ///< fingerprints that were kept
  double processor_seconds = 0;

  /// Over all sets.
  ShareCount total(ShareScope scope) const;
};

/// How much of a class is not what the same rank had in an earlier set, in blocks of kChangeBlockBytes.
struct ClassChange {
  std::string class_key;
  uint64_t bytes = 0;          ///< of all sets but the first, as far as was looked at
  uint64_t changed_bytes = 0;  ///< of them
};

struct Dedup {
  std::vector<DedupMethod> methods;
  std::vector<ClassChange> classes;  ///< largest first
  size_t sets_done = 0;              ///< fewer than the series has if the study was stopped
  double sampled_share = 1;          ///< of the series' bytes that were looked at; counts are of these
};

inline constexpr uint32_t kChangeBlockBytes = 4096;

struct DedupOptions {
  /// As --chunker takes them; the defaults are the papers' and Varve's.
  std::vector<std::string> chunkers = {"fixed:512",   "fixed:4096", "fixed:8192",
                                       "fixed:65536", "rabin:8192", "gear:8192"};
  bool of_files = false;            ///< cut whole files, not their variables
  uint64_t memory_bytes = 256_MiB;  ///< of all tables of fingerprints
  uint32_t thread_count = 0;
};

/// Cuts the streams of all sets in all ways, each byte being read once, and counts what is equal. Stopped by
/// `progress`, it returns the sets that were done.
Result<Dedup> study_dedup(const StudySeries& series, const SamplePlan& plan, const DedupOptions& options,
                          ProgressSink& progress);

}  // namespace varve
