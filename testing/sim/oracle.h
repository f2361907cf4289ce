#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace varve::sim {

/// What a promise was broken with: ends the schedule, and is its result.
[[noreturn]] void fail(const std::string& what);

class Simulator;
/// Who tells the story that fail() ends.
void set_story_source(Simulator* (*source)());

/// A step of a course of a computation: what a program does until it goes back, and then goes on in another way. What
/// was made later is greater.
struct CourseStep {
  size_t course = 0;
  uint64_t step = 0;
  auto operator<=>(const CourseStep&) const = default;
  std::string to_string() const;
};

/// What was reported of one job as persistent, by whom. A step is promised at a level once all who hold parts of it
/// there have reported theirs.
class Promises {
 public:
  struct Level {
    std::string name;
    uint32_t holders = 1;                               ///< who have parts: nodes, or the one that speaks for all
    std::map<CourseStep, std::set<uint32_t>> reported;  ///< by step, by whom
  };
  explicit Promises(std::vector<Level> levels) : levels_(std::move(levels)) {}

  std::vector<Level>& levels() { return levels_; }
  void report(size_t level, CourseStep made, uint32_t holder);
  /// What was reported there is promised no more.
  void note_lost(size_t level) { levels_[level].reported.clear(); }
  /// What was reported there of such steps is promised no more.
  void forget(size_t level, const std::function<bool(uint64_t step)>& such);
  /// The newest step that a restart has to find, if all levels are reached.
  std::optional<CourseStep> newest() const;

 private:
  std::vector<Level> levels_;
};

}  // namespace varve::sim
