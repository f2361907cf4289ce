#include "study/estimate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "study/mix.h"

namespace varve {

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
