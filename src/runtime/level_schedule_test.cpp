#include "runtime/level_schedule.h"

#include <gtest/gtest.h>

#include <string>

namespace varve {
namespace {

/// What becomes of the checkpoints 1 to `count`: "m" memory alone, "s" saved, "p" protected, digits: pushed to.
std::string turns(std::string_view levels, int count) {
  LevelSchedule schedule(parse_levels(levels).value());
  std::string text;
  for (int i = 0; i < count; ++i) {
    const LevelDuty duty = schedule.next(false, false);
    text += (text.empty() ? "" : " ") + std::string(duty.save ? "s" : "m") + (duty.protect ? "p" : "");
    for (const uint32_t store : duty.push_to) text += std::to_string(store);
  }
  return text;
}

TEST(LevelSchedule, SavesEachCheckpointOfASingleStore) {
  EXPECT_EQ(turns("memory; /x", 3), "s s s");
  EXPECT_EQ(turns("/x", 3), "s s s");
}

TEST(LevelSchedule, CountsCheckpointsForTheNearestStoreAndItsSetsForWhatIsBehindIt) {
  EXPECT_EQ(turns("memory; /x every=3", 7), "m m s m m s m");
  EXPECT_EQ(turns("memory; local:/n; xor:2 every=2; /x every=3; /y every=4", 8), "s sp s1 sp2 s sp1 s sp2");
  EXPECT_EQ(turns("memory; local:/n every=2; partner; /x every=2", 8), "m sp m sp1 m sp m sp1");
}

TEST(LevelSchedule, SavesWhatMustLastAndThenCountsOn) {
  LevelSchedule schedule(parse_levels("memory; /x every=10; /y every=2").value());
  EXPECT_FALSE(schedule.next(false, false).save);
  EXPECT_TRUE(schedule.next(true, false).save);
  const LevelDuty second = schedule.next(true, false);
  EXPECT_EQ(second.push_to, std::vector<uint32_t>{1});
}

TEST(LevelSchedule, SendsTheLastCheckpointEverywhere) {
  LevelSchedule schedule(parse_levels("memory; local:/n every=5; rs:2+1 every=7; /x every=9; /y every=9").value());
  const LevelDuty last = schedule.next(false, true);
  EXPECT_TRUE(last.save);
  EXPECT_TRUE(last.protect);
  EXPECT_EQ(last.push_to, (std::vector<uint32_t>{1, 2}));
}

}  // namespace
}  // namespace varve
