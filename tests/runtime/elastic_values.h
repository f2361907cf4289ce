#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

// What the ranks of elastic_program have at a step.

namespace varve::test {

constexpr uint64_t kElasticRows = 61, kElasticColumns = 43;

inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15;
  return value ^ (value >> 29);
}

/// Of the field, by the cell's ordinal in the whole.
inline double field_at(uint64_t step, uint64_t cell) {
  return std::ldexp(static_cast<double>(mix(cell + (step << 32)) >> 11), -20);
}

inline std::vector<uint64_t> table_at(uint64_t step) {
  std::vector<uint64_t> values(300);
  for (uint64_t i = 0; i < values.size(); ++i) values[i] = mix(i * step);
  return values;
}

/// Those from `first` on.
inline std::vector<uint64_t> particles_at(uint64_t step, uint64_t first, uint64_t count) {
  std::vector<uint64_t> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = mix(first + i) + step;
  return values;
}
/// What a rank has had of them from the beginning.
inline std::vector<uint64_t> particles_of(uint64_t step, uint32_t rank) {
  return particles_at(step, 7 * uint64_t{rank} * (rank + 1) / 2, 7 * (uint64_t{rank} + 1));
}

inline double time_at(uint64_t step) { return 0.1 * static_cast<double>(step); }

}  // namespace varve::test
