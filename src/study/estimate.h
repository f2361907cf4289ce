#pragma once

#include <cstdint>
#include <span>

namespace varve {

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
