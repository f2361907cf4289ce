#include "level/level_spec.h"

#include <gtest/gtest.h>

#include <string>

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

TEST(LevelSchedule, SendsTheLastCheckpointEverywhere) {
  LevelSchedule schedule(parse_levels("memory; local:/n every=5; rs:2+1 every=7; /x every=9; /y every=9").value());
  const LevelDuty last = schedule.next(false, true);
  EXPECT_TRUE(last.save);
  EXPECT_TRUE(last.everywhere);
}

}  // namespace
}  // namespace varve
