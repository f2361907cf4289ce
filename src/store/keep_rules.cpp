#include "store/keep_rules.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace varve {

namespace {
constexpr int64_t kHourSeconds = 3600, kDaySeconds = 24 * kHourSeconds;

/// The newest of each period, for so many periods.
void keep_of_each(const std::vector<AgedSet>& by_age, uint64_t periods, int64_t seconds, std::set<uint64_t>& kept) {
  std::set<int64_t> seen;
  for (auto set = by_age.rbegin(); set != by_age.rend(); ++set) {
    const int64_t period = set->created_s / seconds;
    if (seen.contains(period)) continue;
    if (periods-- == 0) return;
    seen.insert(period);
    kept.insert(set->step);
  }
}
}  // namespace

std::set<uint64_t> newest_steps(const std::vector<AgedSet>& sets, uint64_t count) {
  std::set<uint64_t> newest;
  // The `count` highest numbers of the steps above, of which the lowest decides.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> highest;
  for (auto set = sets.rbegin(); set != sets.rend() && count > 0; ++set) {
    if (!set->is_known) continue;
    if (highest.size() < count || highest.top() < set->number) newest.insert(set->step);
    highest.push(set->number);
    if (highest.size() > count) highest.pop();
  }
  return newest;
}

std::vector<int64_t> believed_times(const std::vector<AgedSet>& sets, int64_t now_s) {
  std::vector<size_t> by_age;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].is_known) by_age.push_back(i);
  }
  std::stable_sort(by_age.begin(), by_age.end(), [&](size_t a, size_t b) { return sets[a].number < sets[b].number; });
  std::vector<int64_t> times(sets.size(), now_s);
  for (size_t place = by_age.size(); place-- > 0;) {
    // Of one clock that was wrong, those of the sets around it tell.
    std::vector<int64_t> around;
    const size_t begin = place - std::min<size_t>(place, 2), end = std::min(place + 3, by_age.size());
    for (size_t i = begin; i < end; ++i) around.push_back(sets[by_age[i]].created_s);
    const auto middle = around.begin() + static_cast<ptrdiff_t>(around.size() / 2);
    std::nth_element(around.begin(), middle, around.end());
    times[by_age[place]] = now_s = std::min(now_s, *middle);
  }
  return times;
}

std::set<uint64_t> kept_steps(const std::vector<AgedSet>& sets, const KeepRules& rules, int64_t now_s) {
  std::set<uint64_t> kept = newest_steps(sets, std::max<uint64_t>(rules.last.value_or(1), 1));
  for (const AgedSet& set : sets) {
    const uint64_t counted = time_of_step(set.step) ? set.number : set.step;
    const bool regular = rules.every && *rules.every > 0 && counted % *rules.every == 0;
    const int64_t age_s = std::max<int64_t>(now_s - std::max(set.created_s, set.arrived_s), 0);
    const bool young = rules.within_seconds && static_cast<double>(age_s) <= *rules.within_seconds;
    if (!rules.go_by_sets() || set.stays || regular || young) kept.insert(set.step);
  }
  std::vector<AgedSet> by_age = sets;
  std::erase_if(by_age, [](const AgedSet& set) { return !set.is_known; });
  // Not by their clocks, of which one may have been ahead for a while.
  std::stable_sort(by_age.begin(), by_age.end(), [](const AgedSet& a, const AgedSet& b) {
    return std::pair(a.number, a.created_s) < std::pair(b.number, b.created_s);
  });
  if (rules.hourly) keep_of_each(by_age, *rules.hourly, kHourSeconds, kept);
  if (rules.daily) keep_of_each(by_age, *rules.daily, kDaySeconds, kept);
  return kept;
}

}  // namespace varve
