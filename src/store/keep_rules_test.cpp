#include "store/keep_rules.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

constexpr int64_t kHour = 3600, kDay = 24 * kHour, kNow = 1'000 * kDay + 12 * kHour;
using Steps = std::set<uint64_t>;

/// A set each quarter of an hour up to now, of steps from 1 on.
std::vector<AgedSet> quarterly(size_t count) {
  std::vector<AgedSet> sets;
  for (size_t i = 0; i < count; ++i) {
    const auto age = static_cast<int64_t>(count - 1 - i) * kHour / 4;
    sets.push_back({.step = i + 1, .number = i + 1, .created_s = kNow - age});
  }
  return sets;
}

TEST(KeepRules, WithoutAnyAllStay) { EXPECT_EQ(kept_steps(quarterly(3), {}, kNow), (Steps{1, 2, 3})); }

TEST(KeepRules, TheNewestAlwaysStays) {
  EXPECT_EQ(kept_steps(quarterly(9), {.every = 100}, kNow), Steps{9});
  EXPECT_EQ(kept_steps(quarterly(9), {.hourly = 0}, kNow), Steps{9});
  EXPECT_EQ(kept_steps({}, {.last = 1}, kNow), Steps{});
}

TEST(KeepRules, KeepTheNewestAndTheRegular) {
  EXPECT_EQ(kept_steps(quarterly(9), {.last = 2, .every = 3}, kNow), (Steps{3, 6, 8, 9}));
}

TEST(KeepRules, KeepTheNewestOfEachHourAndDay) {
  // 12:00 is an hour of its own; 11:45 is the last of the hour before.
  EXPECT_EQ(kept_steps(quarterly(12), {.hourly = 3}, kNow), (Steps{7, 11, 12}));
  EXPECT_EQ(kept_steps(quarterly(100), {.hourly = 1, .daily = 2}, kNow), (Steps{51, 100}));
}

TEST(KeepRules, KeepWhatIsYoung) {
  EXPECT_EQ(kept_steps(quarterly(12), {.within_seconds = 1800}, kNow), (Steps{10, 11, 12}));
  std::vector<AgedSet> ahead = quarterly(2);
  ahead[0].created_s = kNow + kDay;
  EXPECT_EQ(kept_steps(ahead, {.within_seconds = 0}, kNow), (Steps{1, 2}));
}

TEST(KeepRules, CountTimesByTheirNumbers) {
  std::vector<AgedSet> sets;
  for (uint64_t number = 1; number <= 5; ++number)
    sets.push_back({.step = *step_of_time(0.1 * static_cast<double>(number)), .number = number, .created_s = kNow});
  EXPECT_EQ(kept_steps(sets, {.every = 2}, kNow), (Steps{sets[1].step, sets[3].step, sets[4].step}));
}

}  // namespace
}  // namespace varve
