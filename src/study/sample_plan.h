#pragma once

#include <cstdint>
#include <vector>

#include "study/study_set.h"

namespace varve {

/// A range of a stream.
struct StreamPiece {
  uint64_t begin = 0, end = 0;
};

/// Which bytes of a series stand for all of them. The unit of sampling is a window of a stream, of all ranks of a group
/// and in all sets, so that what ranks and sets have in common stays in common. Each class of variables is a stratum:
/// it gives the same share of its units, and at least one; units are drawn by a hash of what they mean. The same series
/// gives the same sample every time.
class SamplePlan {
 public:
  /// About `bytes` of the series; all of it if it is not larger. Units span `group_size` ranks.
  static SamplePlan of(const StudySeries& series, uint64_t bytes, uint32_t group_size);
  static SamplePlan whole() { return {}; }

  bool takes_all() const { return limits_.empty(); }
  uint64_t window_bytes() const { return window_bytes_; }
  /// The parts of a stream that are in the sample, in order, not adjoining.
  std::vector<StreamPiece> pieces(const StudySet& set, size_t stream) const;

 private:
  uint64_t unit_hash(const StreamKey& key, int64_t rank, uint64_t window) const;
  uint64_t window_bytes_of(const Stream& stream) const;

  std::vector<uint64_t> limits_;  ///< of each class: units whose hash is not above are in; empty: everything is
  uint64_t window_bytes_ = 0;
  uint32_t group_size_ = 1;
};

}  // namespace varve
