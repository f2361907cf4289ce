#include "study/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "study/compression.h"

namespace varve {

namespace {
/// Windows are whole chunks and packs of every chunker's usual sizes.
constexpr uint64_t kWindowBytesMax = 256_KiB;
constexpr uint64_t kWindowBytesMin = 64_KiB;
/// More windows than this, and they get larger.
constexpr uint64_t kWindowsMax = 1 << 20;
}  // namespace

uint64_t SamplePlan::unit_hash(const StreamKey& key, int64_t rank, uint64_t window) const {
  const uint64_t rank_group = rank < 0 ? UINT64_MAX : static_cast<uint64_t>(rank) / group_size_;
  return mix(mix(mix(mix(key.class_id) + rank_group) + key.ordinal) + window);
}

uint64_t SamplePlan::window_bytes_of(const Stream& stream) const {
  return std::max<uint64_t>(window_bytes_ / stream.type.bytes, 1) * stream.type.bytes;
}

SamplePlan SamplePlan::of(const StudySeries& series, uint64_t bytes, uint32_t group_size) {
  SamplePlan plan;
  const uint64_t all_bytes = series.bytes();
  if (bytes >= all_bytes) return plan;
  plan.group_size_ = std::max(group_size, 1u);
  const uint64_t ranks = std::min<uint64_t>(series.rank_count(), plan.group_size_);
  const uint64_t units_wanted = 4 * ranks * series.class_keys.size() * series.sets.size();
  const uint64_t fair_bytes = bytes / std::max<uint64_t>(units_wanted, 1) / kWindowBytesMin * kWindowBytesMin;
  plan.window_bytes_ = std::clamp(fair_bytes, kWindowBytesMin, kWindowBytesMax);
  while (all_bytes / plan.window_bytes_ > kWindowsMax) plan.window_bytes_ *= 2;

  std::vector<std::map<uint64_t, uint64_t>> units(series.class_keys.size());  // of each class: bytes by hash
  std::vector<uint64_t> class_bytes(series.class_keys.size());
  for (const StudySet& set : series.sets) {
    for (size_t i = 0; i < set.group.streams.size(); ++i) {
      const Stream& stream = set.group.streams[i];
      const StreamKey& key = set.keys[i];
      class_bytes[key.class_id] += stream.bytes;
      const uint64_t window_bytes = plan.window_bytes_of(stream);
      for (uint64_t window = 0; window * window_bytes < stream.bytes; ++window) {
        units[key.class_id][plan.unit_hash(key, stream.rank, window)] +=
            std::min(window_bytes, stream.bytes - window * window_bytes);
      }
    }
  }
  const double share = static_cast<double>(bytes) / static_cast<double>(all_bytes);
  plan.limits_.assign(series.class_keys.size(), 0);
  for (size_t id = 0; id < units.size(); ++id) {
    uint64_t taken = 0;
    for (const auto& [hash, unit_bytes] : units[id]) {
      // The unit that crosses the share is taken if most of it is within.
      const double wanted = share * static_cast<double>(class_bytes[id]);
      if (taken > 0 && static_cast<double>(taken) + static_cast<double>(unit_bytes) / 2 > wanted) break;
      plan.limits_[id] = hash;
      taken += unit_bytes;
    }
  }
  return plan;
}

std::vector<StreamPiece> SamplePlan::pieces(const StudySet& set, size_t index) const {
  const Stream& stream = set.group.streams[index];
  std::vector<StreamPiece> pieces;
  if (stream.bytes == 0) return pieces;
  if (takes_all()) return {{0, stream.bytes}};
  const StreamKey& key = set.keys[index];
  const uint64_t window_bytes = window_bytes_of(stream);
  for (uint64_t window = 0; window * window_bytes < stream.bytes; ++window) {
    if (unit_hash(key, stream.rank, window) > limits_[key.class_id]) continue;
    const uint64_t begin = window * window_bytes, end = std::min(begin + window_bytes, stream.bytes);
    if (!pieces.empty() && pieces.back().end == begin) {
      pieces.back().end = end;
    } else {
      pieces.push_back({begin, end});
    }
  }
  return pieces;
}

namespace {
constexpr size_t kReplicates = 200;
constexpr size_t kCollapsedUnitsMin = 4;
/// 0.975 quantiles of Student's t for 1, 2, ... degrees of freedom.
constexpr double kStudent[] = {12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31,
                               2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13};

struct Sums {
  double base = 0, measured = 0;
};

double student(size_t degrees) { return kStudent[std::min(std::max<size_t>(degrees, 1), std::size(kStudent)) - 1]; }

double total_of(const std::vector<Sums>& strata, std::span<const double> stratum_bases) {
  Sums all;
  for (const Sums& stratum : strata) {
    all.base += stratum.base;
    all.measured += stratum.measured;
  }
  double total = 0;
  for (size_t i = 0; i < stratum_bases.size(); ++i) {
    const Sums& known = strata[i].base > 0 ? strata[i] : all;
    if (known.base > 0) total += stratum_bases[i] * known.measured / known.base;
  }
  return total;
}

/// Neighbouring strata, taken together until they have enough units to draw from.
struct Collapsed {
  std::vector<const RatioUnit*> units;
  double base = 0;  ///< in the population
};

std::vector<Collapsed> collapse(std::span<const RatioUnit> units, std::span<const double> stratum_bases) {
  std::vector<std::vector<const RatioUnit*>> members(stratum_bases.size());
  for (const RatioUnit& unit : units) members[unit.stratum].push_back(&unit);
  std::vector<Collapsed> groups(1);
  for (size_t i = 0; i < members.size(); ++i) {
    if (groups.back().units.size() >= kCollapsedUnitsMin) groups.emplace_back();
    groups.back().units.insert(groups.back().units.end(), members[i].begin(), members[i].end());
    groups.back().base += stratum_bases[i];
  }
  if (groups.size() > 1 && groups.back().units.size() < kCollapsedUnitsMin) {
    Collapsed last = std::move(groups.back());
    groups.pop_back();
    groups.back().units.insert(groups.back().units.end(), last.units.begin(), last.units.end());
    groups.back().base += last.base;
  }
  return groups;
}

/// The standard deviation of the total over bootstrap samples.
double bootstrap_error(const std::vector<Collapsed>& groups) {
  uint64_t random = 1;
  double sum = 0, squares = 0;
  for (size_t replicate = 0; replicate < kReplicates; ++replicate) {
    double total = 0;
    for (const Collapsed& group : groups) {
      Sums drawn;
      for (size_t k = 0; k < group.units.size(); ++k) {
        const RatioUnit& unit = *group.units[mix(random++) % group.units.size()];
        drawn.base += unit.base;
        drawn.measured += unit.measured;
      }
      if (drawn.base > 0) total += group.base * drawn.measured / drawn.base;
    }
    sum += total;
    squares += total * total;
  }
  const auto n = static_cast<double>(kReplicates);
  return std::sqrt(std::max(0.0, squares / n - (sum / n) * (sum / n)));
}
}  // namespace

Estimate estimate_total(std::span<const RatioUnit> units, std::span<const double> stratum_bases) {
  std::vector<Sums> strata(stratum_bases.size());
  for (const RatioUnit& unit : units) {
    strata[unit.stratum].base += unit.base;
    strata[unit.stratum].measured += unit.measured;
  }
  Estimate estimate = Estimate::exact(total_of(strata, stratum_bases));
  const double population = std::accumulate(stratum_bases.begin(), stratum_bases.end(), 0.0);
  if (units.empty() || population <= 0) return estimate;
  // Sizes differ by factors, so that the interval is symmetric in factors, and never down to nothing.
  if (units.size() == 1) {
    const double high = std::max(estimate.value, population);
    return {estimate.value, estimate.value * estimate.value / high, high};
  }
  const std::vector<Collapsed> groups = collapse(units, stratum_bases);
  const size_t degrees = units.size() > groups.size() ? units.size() - groups.size() : 1;
  const double inflation = std::sqrt(static_cast<double>(units.size()) / static_cast<double>(degrees));
  const double half = student(degrees) * inflation * bootstrap_error(groups);
  const double factor = estimate.value > 0 ? 1 + half / estimate.value : 1;
  estimate.low = estimate.value / factor;
  estimate.high = std::max(estimate.value, std::min(estimate.value * factor, population));
  return estimate;
}

Estimate estimate_from_groups(std::span<const RatioUnit> groups, double population_base) {
  Sums all;
  for (const RatioUnit& group : groups) {
    all.base += group.base;
    all.measured += group.measured;
  }
  if (all.base <= 0) return Estimate::exact(0);
  const double ratio = all.measured / all.base;
  // The variance of a ratio estimator over random groups, each weighted by its base.
  double squares = 0;
  size_t count = 0;
  for (const RatioUnit& group : groups) {
    if (group.base <= 0) continue;
    const double residual = group.measured - ratio * group.base;
    squares += residual * residual;
    ++count;
  }
  Estimate estimate = Estimate::exact(population_base * ratio);
  if (count < 2) return estimate;
  const auto n = static_cast<double>(count);
  const double error = std::sqrt(squares * n / (n - 1)) / all.base;
  const double half = student(count - 1) * error * population_base;
  estimate.low = std::max(0.0, estimate.value - half);
  estimate.high = std::min(population_base, estimate.value + half);
  return estimate;
}

}  // namespace varve
