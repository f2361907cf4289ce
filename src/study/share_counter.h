#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "study/estimate.h"
#include "study/fingerprint_set.h"

namespace varve {

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

}  // namespace varve
