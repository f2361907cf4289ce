#include "sim/oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve::sim {

std::string CourseStep::to_string() const {
  return course == 0 ? std::to_string(step) : fmt::format("{} of course {}", step, course);
}

void Promises::report(size_t level, CourseStep made, uint32_t holder) { levels_[level].reported[made].insert(holder); }

void Promises::forget(size_t level, const std::function<bool(uint64_t step)>& such) {
  std::erase_if(levels_[level].reported, [&](const auto& made) { return such(made.first.step); });
}

std::optional<CourseStep> Promises::newest() const {
  std::optional<CourseStep> newest;
  for (const Level& level : levels_) {
    for (const auto& [made, holders] : level.reported) {
      if (holders.size() >= level.holders) newest = std::max(newest.value_or(CourseStep{}), made);
    }
  }
  return newest;
}

}  // namespace varve::sim
