#include "level/level_spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "level/restart_candidates.h"

namespace varve {
namespace {

/// What becomes of the checkpoints 1 to `count`: "m" memory alone, or the number of the set.
std::string turns(std::string_view levels, int count) {
  LevelSchedule schedule(parse_levels(levels).value());
  std::string text;
  for (int i = 0; i < count; ++i) {
    const LevelDuty duty = schedule.next(false, false);
    text += (text.empty() ? "" : " ") + (duty.save ? std::to_string(duty.number) : "m");
  }
  return text;
}

TEST(LevelSchedule, SavesEachCheckpointOfASingleStore) {
  EXPECT_EQ(turns("memory; /x", 3), "1 2 3");
  EXPECT_EQ(turns("/x", 3), "1 2 3");
}

TEST(LevelSchedule, CountsCheckpointsForTheNearestStoreAndNumbersItsSets) {
  EXPECT_EQ(turns("memory; /x every=3", 7), "m m 1 m m 2 m");
  EXPECT_EQ(turns("memory; local:/n every=2; partner; /x every=2", 6), "m 1 m 2 m 3");
}

TEST(LevelSchedule, SavesWhatMustLastAndThenCountsOn) {
  LevelSchedule schedule(parse_levels("memory; /x every=10; /y every=2").value());
  EXPECT_FALSE(schedule.next(false, false).save);
  EXPECT_EQ(schedule.next(true, false).number, 1u);
  EXPECT_EQ(schedule.next(true, false).number, 2u);
}

TEST(LevelSchedule, GoesOnWhereEarlierRunsHaveEnded) {
  LevelSchedule schedule(parse_levels("/x; /y every=2").value());
  schedule.go_on_from(8);
  EXPECT_EQ(schedule.next(false, false).number, 8u);
  EXPECT_EQ(schedule.next(false, false).number, 9u);
}

TEST(LevelSchedule, NumbersWhatStaysInMemoryAsTheNextSet) {
  LevelSchedule schedule(parse_levels("memory; /x every=2").value());
  schedule.go_on_from(8);
  EXPECT_EQ(schedule.next(false, false).number, 8u);
  EXPECT_EQ(schedule.next(false, false).number, 8u);
  EXPECT_EQ(schedule.next(false, false).number, 9u);
  schedule.go_on_behind(7);
  EXPECT_EQ(schedule.next(false, false).number, 9u);
  schedule.go_on_behind(20);
  EXPECT_EQ(schedule.next(false, false).number, 20u);
}

TEST(NumbersOfRuns, AreBehindAllThatEarlierRunsHaveGivenOutWhereverTheseWere) {
  const std::vector<LevelSpec> levels = parse_levels("memory; local:/n; /x every=4; /y every=10").value();
  constexpr double begin = 1'800'000'000.25;
  // A run that made a million sets in a day, and one that has seen of them, or of its own node's, the fifth alone.
  const uint64_t first = number_by_time(1, levels, begin);
  EXPECT_GT(number_by_time(6, levels, begin + 86'400), first + 1'000'000);
  EXPECT_GT(number_by_time(first + 5, levels, begin + 86'400), first + 1'000'000);
  // Turns go on.
  for (const uint64_t next : {uint64_t{1}, uint64_t{7}, uint64_t{20}, first + 13}) {
    for (const double later : {0.0, 1.0, 1234.5}) {
      const uint64_t number = number_by_time(next, levels, begin + later);
      EXPECT_GE(number, next);
      EXPECT_EQ(number % 20, next % 20);
    }
  }
  const uint64_t of_rare_turns = number_by_time(1, parse_levels("/x; /y every=1000000007").value(), begin);
  EXPECT_GT(of_rare_turns + 20, first);
}

TEST(NumbersOfRuns, AreNeverBelowWhatIsThereWhateverTheCalendarSays) {
  const std::vector<LevelSpec> levels = parse_levels("/x; /y every=3").value();
  const uint64_t next = number_by_time(1, levels, 4'000'000'000);
  for (const double wrong : {-5.0, 0.0, 1.0, 1'800'000'000.0, 1e12, 1e300, std::nan("")})
    EXPECT_EQ(number_by_time(next, levels, wrong), next) << wrong;
}

TEST(LevelSchedule, SendsTheLastCheckpointEverywhere) {
  LevelSchedule schedule(parse_levels("memory; local:/n every=5; rs:2+1 every=7; /x every=9; /y every=9").value());
  const LevelDuty last = schedule.next(false, true);
  EXPECT_TRUE(last.save);
  EXPECT_TRUE(last.everywhere);
}

}  // namespace
}  // namespace varve
