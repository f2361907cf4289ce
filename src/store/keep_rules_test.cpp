#include "store/keep_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

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

TEST(KeepRules, CountWhatWasMadeAfterARunWentBackAsNewest) {
  const std::vector<AgedSet> sets = {
      {.step = 10, .number = 1}, {.step = 15, .number = 4}, {.step = 20, .number = 2}, {.step = 30, .number = 3}};
  EXPECT_EQ(kept_steps(sets, {.last = 2}, kNow), (Steps{15, 20, 30}));
  EXPECT_EQ(kept_steps(sets, {.every = 1000}, kNow), (Steps{15, 30}));
  EXPECT_EQ(newest_steps(sets, 1), (Steps{15, 30}));
  EXPECT_EQ(newest_steps(sets, 0), Steps{});
}

// A set is newer than another if its step is higher and its number no lower.
TEST(KeepRules, KeepThoseToWhichFewerAreNewer) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<AgedSet> sets;
    const uint64_t size = 1 + random() % 20, last = 1 + random() % 5;
    for (uint64_t i = 0; i < size; ++i) sets.push_back({.step = 3 * i + random() % 3, .number = random() % 15});
    Steps expected;
    for (const AgedSet& set : sets) {
      const auto newer = std::count_if(sets.begin(), sets.end(), [&](const AgedSet& other) {
        return SetAge{other.step, other.number}.is_newer_than({set.step, set.number});
      });
      if (static_cast<uint64_t>(newer) < last) expected.insert(set.step);
    }
    ASSERT_EQ(kept_steps(sets, {.last = last}, kNow), expected) << "round " << round;
  }
}

TEST(KeepRules, KeepTheNewestOfEachHourAndDay) {
  // 12:00 is an hour of its own; 11:45 is the last of the hour before.
  EXPECT_EQ(kept_steps(quarterly(12), {.hourly = 3}, kNow), (Steps{7, 11, 12}));
  EXPECT_EQ(kept_steps(quarterly(100), {.hourly = 1, .daily = 2}, kNow), (Steps{51, 100}));
}

TEST(KeepRules, TakeNoSetForANewerOneBecauseAClockWasAhead) {
  std::vector<AgedSet> sets = quarterly(12);
  for (size_t i = 0; i < 3; ++i) sets[i].created_s += kDay;
  EXPECT_EQ(kept_steps(sets, {.hourly = 3}, kNow + 2 * kDay), (Steps{7, 11, 12}));
}

TEST(KeepRules, CountAPeriodOnceWhateverClocksComeInTurn) {
  std::vector<AgedSet> sets = quarterly(48);
  for (size_t i = 0; i < sets.size(); i += 2) sets[i].created_s += kHour;
  const Steps kept = kept_steps(sets, {.hourly = 8}, kNow + kHour);
  EXPECT_EQ(kept.size(), 8u);
  EXPECT_LE(*kept.begin(), 24u) << "hours, not changes from one to another";
}

TEST(KeepRules, BelieveMostClocks) {
  std::vector<AgedSet> sets = quarterly(12);
  const auto is_near = [&](size_t i) {
    return std::abs(believed_times(sets, kNow)[i] - quarterly(12)[i].created_s) <= 2 * kHour;
  };
  for (const int64_t wrong : {int64_t{0}, kNow + kDay}) {
    for (size_t at = 0; at < sets.size(); ++at) {
      sets = quarterly(12);
      sets[at].created_s = wrong;
      for (size_t i = 0; i < sets.size(); ++i) EXPECT_TRUE(is_near(i)) << i << ", wrong at " << at;
    }
  }
  sets = quarterly(12);
  for (size_t i = 0; i < 4; ++i) sets[i].created_s += kDay;
  for (size_t i = 0; i < sets.size(); ++i) EXPECT_TRUE(is_near(i)) << i;
  sets = quarterly(12);
  for (AgedSet& set : sets) set.number = 0;  // of versions that did not count them
  sets[0].is_known = false;
  sets[0].created_s = 0;
  for (size_t i = 1; i < sets.size(); ++i) EXPECT_TRUE(is_near(i)) << i;
  EXPECT_EQ(believed_times(sets, kNow)[0], kNow);
}

TEST(KeepRules, KeepWhatIsYoung) {
  EXPECT_EQ(kept_steps(quarterly(12), {.within_seconds = 1800}, kNow), (Steps{10, 11, 12}));
  std::vector<AgedSet> ahead = quarterly(2);
  ahead[0].created_s = kNow + kDay;
  EXPECT_EQ(kept_steps(ahead, {.within_seconds = 0}, kNow), (Steps{1, 2}));
}

TEST(KeepRules, KeepWhatCameToTheStoreALittleWhileAgoWhateverTheClockOfItsWriterSaid) {
  std::vector<AgedSet> behind = quarterly(3);
  behind[0].created_s -= 25 * kHour;
  behind[0].arrived_s = kNow;
  EXPECT_EQ(kept_steps(behind, {.within_seconds = 60}, kNow), (Steps{1, 3}));
}

// Also in old stores, whose sets have no numbers.
TEST(KeepRules, DoNotCountWhatCannotBeRead) {
  std::vector<AgedSet> sets = {{.step = 1}, {.step = 2}, {.step = 3, .stays = true, .is_known = false}};
  EXPECT_EQ(newest_steps(sets, 1), Steps{2});
  EXPECT_EQ(kept_steps(sets, {.last = 1}, kNow), (Steps{2, 3}));
  EXPECT_EQ(kept_steps(sets, {.daily = 1}, kNow), (Steps{2, 3}));
}

TEST(KeepRules, CountTimesByTheirNumbers) {
  std::vector<AgedSet> sets;
  for (uint64_t number = 1; number <= 5; ++number)
    sets.push_back({.step = *step_of_time(0.1 * static_cast<double>(number)), .number = number, .created_s = kNow});
  EXPECT_EQ(kept_steps(sets, {.every = 2}, kNow), (Steps{sets[1].step, sets[3].step, sets[4].step}));
}

}  // namespace
}  // namespace varve
