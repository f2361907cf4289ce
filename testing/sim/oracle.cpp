#include "sim/oracle.h"

#include <algorithm>

namespace varve::sim {

void Promises::report(size_t level, uint64_t step, uint32_t holder) { levels_[level].reported[step].insert(holder); }

std::optional<uint64_t> Promises::newest() const {
  std::optional<uint64_t> newest;
  for (const Level& level : levels_) {
    for (const auto& [step, holders] : level.reported) {
      if (holders.size() >= level.holders) newest = std::max(newest.value_or(0), step);
    }
  }
  return newest;
}

}  // namespace varve::sim
