#include "store/keep_rules.h"

#include <algorithm>

namespace varve {

namespace {
constexpr int64_t kHourSeconds = 3600, kDaySeconds = 24 * kHourSeconds;

/// The newest of each period, for so many periods.
void keep_of_each(const std::vector<AgedSet>& by_age, uint64_t periods, int64_t seconds, std::set<uint64_t>& kept) {
  std::optional<int64_t> last;
  for (auto set = by_age.rbegin(); set != by_age.rend(); ++set) {
    const int64_t period = set->created_s / seconds;
    if (last && period == *last) continue;
    if (periods-- == 0) return;
    last = period;
    kept.insert(set->step);
  }
}
}  // namespace

std::set<uint64_t> kept_steps(const std::vector<AgedSet>& sets, const KeepRules& rules, int64_t now_s) {
  std::set<uint64_t> kept;
  if (sets.empty()) return kept;
  kept.insert(sets.back().step);
  for (size_t i = 0; i < sets.size(); ++i) {
    const AgedSet& set = sets[i];
    const bool recent = rules.last && sets.size() - i <= *rules.last;
    const uint64_t counted = time_of_step(set.step) ? set.number : set.step;
    const bool regular = rules.every && *rules.every > 0 && counted % *rules.every == 0;
    const bool young = rules.within_seconds &&
                       static_cast<double>(std::max<int64_t>(now_s - set.created_s, 0)) <= *rules.within_seconds;
    if (!rules.go_by_sets() || set.stays || recent || regular || young) kept.insert(set.step);
  }
  std::vector<AgedSet> by_age = sets;
  std::stable_sort(by_age.begin(), by_age.end(),
                   [](const AgedSet& a, const AgedSet& b) { return a.created_s < b.created_s; });
  if (rules.hourly) keep_of_each(by_age, *rules.hourly, kHourSeconds, kept);
  if (rules.daily) keep_of_each(by_age, *rules.daily, kDaySeconds, kept);
  return kept;
}

}  // namespace varve
