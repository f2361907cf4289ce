#pragma once

#include <cstdint>
#include <span>
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

/// A number with the interval that holds the true one in 95 of 100 studies of other samples. Where all was measured,
/// the interval is the number itself.
struct Estimate {
  double value = 0, low = 0, high = 0;

  static Estimate exact(double value) { return {value, value, value}; }
  bool is_exact() const { return low == high; }
  Estimate scaled(double factor) const { return {value * factor, low * factor, high * factor}; }
};

/// A unit of a sample: what it counts for, and what was measured of it.
struct RatioUnit {
  uint32_t stratum = 0;
  double base = 0;      ///< its raw bytes, say
  double measured = 0;  ///< its stored bytes, say
};

/// The total of what is measured in a population whose strata have `stratum_bases` in all: the sum over the strata of
/// base × (measured / base in the sample). Strata without a unit have the ratio of all the others. The interval comes
/// from 200 bootstrap samples, the same every time, and Student's t. They are drawn within strata, of which neighbours
/// are taken together until they have four units: what the strata differ by then counts as chance, so that the interval
/// is rather too wide. It is symmetric in factors; of a single unit, it reaches up to the base.
Estimate estimate_total(std::span<const RatioUnit> units, std::span<const double> stratum_bases);

/// The total of a population with this base, from a few random groups of a sample (base and measured of each): their
/// spread gives the interval (Student's t).
Estimate estimate_from_groups(std::span<const RatioUnit> groups, double population_base);

}  // namespace varve
