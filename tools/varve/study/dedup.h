#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "study/estimate.h"
#include "study/part_source.h"

namespace varve {

/// A set of 64-bit fingerprints; open addressing. Two chunks with the same fingerprint are taken for one: among n
/// chunks, n²/2^65 pairs are expected to be.
class FingerprintSet {
 public:
  /// Whether it is new.
  bool insert(uint64_t fingerprint);
  void clear();
  size_t size() const { return size_; }
  /// What so many fingerprints take, about.
  static constexpr uint64_t kBytesEach = 16;

 private:
  void grow();
  std::vector<uint64_t> slots_;  ///< a power of two, at most three quarters of them taken; 0: free
  size_t size_ = 0;
};

/// Among which chunks equal ones are looked for.
enum class ShareScope : uint8_t {
  within,  ///< of one rank in one set
  ranks,   ///< of all ranks in one set
  sets,    ///< of one rank in this set and all before
  both,    ///< of all ranks in this set and all before: what a store does
};
inline constexpr size_t kShareScopes = 4;

/// Chunks of one set. The first of equal ones is unique, the others are duplicates.
struct ShareCount {
  uint64_t chunks = 0, bytes = 0;
  Estimate unique_chunks, unique_bytes;
  Estimate duplicate_chunks() const;
};

/// Counts what chunks have in common. Where the fingerprints of all of them would take more memory than allowed, only
/// those with a given pattern of bits are kept (all chunks with the same contents, or none of them), and the counts are
/// estimates. One thread.
class ShareCounter {
 public:
  /// `chunks_expected`: of the whole series. With one rank, two of the scopes are the same as the others.
  /// `of_sample`: what is counted stands for more, so that no count is exact.
  ShareCounter(uint64_t chunks_expected, uint64_t memory_bytes, bool one_rank, bool of_sample);

  void begin_set();
  /// Counts a chunk of the unit of sampling whose hash is `unit`; returns whether the rank did not have it before, in
  /// no set (meaningful if it is sampled()).
  bool add(uint64_t fingerprint, uint64_t bytes, int64_t rank, uint64_t unit);
  bool sampled(uint64_t fingerprint) const { return (fingerprint >> 40 & sample_mask_) == 0; }
  /// One in so many fingerprints is kept.
  uint64_t sampled_one_in() const { return sample_mask_ + 1; }

  /// Of the sets so far, the last one as far as it is.
  size_t set_count() const { return sets_.size(); }
  std::array<ShareCount, kShareScopes> counts(size_t set) const;
  void drop_last_set() { sets_.pop_back(); }

 private:
  static constexpr size_t kGroups = 16;
  struct Sums {
    uint64_t chunks = 0, bytes = 0;
    std::array<uint64_t, kShareScopes> unique_chunks{}, unique_bytes{};
  };
  struct SetSums {
    uint64_t chunks = 0, bytes = 0;
    std::array<Sums, kGroups> groups;  ///< of the sampled ones, at random: their spread tells how sure the counts are
  };

  const bool one_rank_, of_sample_;
  uint64_t sample_mask_ = 0;
  std::array<FingerprintSet, kShareScopes> known_;
  std::vector<SetSums> sets_;
};

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
