#include "study/estimate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "study/mix.h"

namespace varve {

namespace {
constexpr size_t kReplicates = 200;
/// 0.975 quantiles of Student's t for 1, 2, ... degrees of freedom.
constexpr double kStudent[] = {12.7, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31,
                               2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13};

struct Sums {
  double base = 0, measured = 0;
};

double total_of(const std::vector<Sums>& strata, std::span<const double> stratum_bases) {
  Sums all;
  for (const Sums& stratum : strata) {
    all.base += stratum.base;
    all.measured += stratum.measured;
  }
  double total = 0;
  for (size_t i = 0; i < stratum_bases.size(); ++i) {
    const Sums& known = i < strata.size() && strata[i].base > 0 ? strata[i] : all;
    if (known.base > 0) total += stratum_bases[i] * known.measured / known.base;
  }
  return total;
}
}  // namespace

Estimate estimate_total(std::span<const RatioUnit> units, std::span<const double> stratum_bases) {
  std::vector<std::vector<const RatioUnit*>> members(stratum_bases.size());
  std::vector<Sums> strata(stratum_bases.size());
  for (const RatioUnit& unit : units) {
    members[unit.stratum].push_back(&unit);
    strata[unit.stratum].base += unit.base;
    strata[unit.stratum].measured += unit.measured;
  }
  Estimate estimate = Estimate::exact(total_of(strata, stratum_bases));
  uint64_t random = 1;
  std::vector<double> totals;
  for (size_t replicate = 0; replicate < kReplicates; ++replicate) {
    std::vector<Sums> drawn(strata.size());
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t k = 0; k < members[i].size(); ++k) {
        const RatioUnit& unit = *members[i][mix(random++) % members[i].size()];
        drawn[i].base += unit.base;
        drawn[i].measured += unit.measured;
      }
    }
    totals.push_back(total_of(drawn, stratum_bases));
  }
  std::sort(totals.begin(), totals.end());
  estimate.low = std::min(estimate.value, totals[kReplicates * 25 / 1000]);
  estimate.high = std::max(estimate.value, totals[kReplicates * 975 / 1000]);
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
  const double half = kStudent[std::min(count - 2, std::size(kStudent) - 1)] * error * population_base;
  estimate.low = std::max(0.0, estimate.value - half);
  estimate.high = std::min(population_base, estimate.value + half);
  return estimate;
}

}  // namespace varve
