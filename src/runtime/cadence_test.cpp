#include "runtime/cadence.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/checkpoint_duty.h"
#include "runtime/report.h"

namespace varve {
namespace {

constexpr double kDay = 86'400;

CadenceRule by_steps(uint64_t steps) {
  return {.every_steps = steps, .every_seconds = {}, .mean_time_between_failures = kDay};
}
CadenceRule by_seconds(double seconds) {
  return {.every_steps = {}, .every_seconds = seconds, .mean_time_between_failures = kDay};
}
CadenceRule automatic(double mean_time_between_failures) {
  return {.every_steps = {}, .every_seconds = {}, .mean_time_between_failures = mean_time_between_failures};
}

TEST(CadenceBySteps, IsDueAtEachMultiple) {
  ManualClock clock;
  Cadence cadence(by_steps(10), clock);
  for (uint64_t step = 0; step <= 100; ++step) {
    const bool due = cadence.due(step);
    EXPECT_EQ(due, step > 0 && step % 10 == 0) << step;
    if (due) cadence.note_checkpoint(step, 0.1);
  }
  EXPECT_TRUE(cadence.by_steps_alone());
  EXPECT_FALSE(cadence.interval_seconds().has_value());
}

TEST(CadenceBySteps, MissesNoMultipleWhenStepsAreSkipped) {
  ManualClock clock;
  Cadence cadence(by_steps(10), clock);
  EXPECT_FALSE(cadence.due(7));
  EXPECT_TRUE(cadence.due(14));
  cadence.note_checkpoint(14, 0.1);
  EXPECT_FALSE(cadence.due(14));
  EXPECT_FALSE(cadence.due(19));
  EXPECT_TRUE(cadence.due(21));
}

TEST(CadenceBySteps, StaysDueUntilTheCheckpointIsMade) {
  ManualClock clock;
  Cadence cadence(by_steps(10), clock);
  EXPECT_TRUE(cadence.due(10));
  EXPECT_TRUE(cadence.due(11));
  cadence.note_skipped(11);
  EXPECT_FALSE(cadence.due(12));
}

TEST(CadenceBySteps, GoesOnFromARestart) {
  ManualClock clock;
  Cadence cadence(by_steps(10), clock);
  cadence.note_restart(40);
  EXPECT_FALSE(cadence.due(40));
  EXPECT_FALSE(cadence.due(49));
  EXPECT_TRUE(cadence.due(50));
}

TEST(CadenceBySeconds, CountsFromTheBeginOfTheLastCheckpoint) {
  ManualClock clock;
  Cadence cadence(by_seconds(60), clock);
  clock.advance(59);
  EXPECT_FALSE(cadence.due(1));
  clock.advance(1);
  EXPECT_TRUE(cadence.due(2));
  clock.advance(5);
  cadence.note_checkpoint(2, 5);
  clock.advance(54);
  EXPECT_FALSE(cadence.due(3));
  clock.advance(1);
  EXPECT_TRUE(cadence.due(4));
  EXPECT_FALSE(cadence.by_steps_alone());
}

TEST(CadenceBySecondsAndSteps, IsDueByEither) {
  ManualClock clock;
  Cadence cadence({.every_steps = 100, .every_seconds = 60, .mean_time_between_failures = kDay}, clock);
  EXPECT_FALSE(cadence.by_steps_alone());
  EXPECT_TRUE(cadence.due(100));
  cadence.note_checkpoint(100, 0);
  EXPECT_FALSE(cadence.due(101));
  clock.advance(60);
  EXPECT_TRUE(cadence.due(102));
}

TEST(AutomaticCadence, BeginsAfterTenMinutesOrAHundredthOfTheTimeBetweenFailures) {
  ManualClock clock;
  EXPECT_DOUBLE_EQ(*Cadence(automatic(kDay), clock).interval_seconds(), 600);
  EXPECT_DOUBLE_EQ(*Cadence(automatic(3600), clock).interval_seconds(), 36);
  EXPECT_FALSE(Cadence(automatic(kDay), clock).best_interval().has_value());
}

TEST(AutomaticCadence, FollowsDalyOnceTheCostIsKnown) {
  ManualClock clock;
  Cadence cadence(automatic(kDay), clock);
  cadence.note_checkpoint(1, 2.0);
  const double interval = *cadence.interval_seconds();
  EXPECT_DOUBLE_EQ(interval, best_interval_seconds(2.0, kDay));
  clock.advance(interval - 1);
  EXPECT_FALSE(cadence.due(2));
  clock.advance(1.5);
  EXPECT_TRUE(cadence.due(3));
}

TEST(AutomaticCadence, CountsWhatStageTwoTakesAway) {
  ManualClock clock;
  Cadence cadence(automatic(kDay), clock);
  cadence.note_checkpoint(1, 0.5);
  cadence.note_persistent(4, 1.5);
  EXPECT_DOUBLE_EQ(*cadence.best_interval(), best_interval_seconds(2.0, kDay));
}

TEST(AutomaticCadence, IsNeverShorterThanACheckpointTakesToBecomePersistent) {
  ManualClock clock;
  Cadence cadence(automatic(100), clock);
  cadence.note_checkpoint(1, 0.001);
  cadence.note_persistent(30);
  EXPECT_DOUBLE_EQ(*cadence.interval_seconds(), 30);
}

TEST(AutomaticCadence, IsNotNothingWhereCheckpointsCostNothing) {
  ManualClock clock;
  Cadence cadence(automatic(kDay), clock);
  cadence.note_checkpoint(1, 0);
  EXPECT_GT(*cadence.interval_seconds(), 1);
}

TEST(AutomaticCadence, LearnsFromEachCheckpoint) {
  ManualClock clock;
  Cadence cadence(automatic(kDay), clock);
  cadence.note_checkpoint(1, 100);
  for (uint64_t step = 2; step < 40; ++step) cadence.note_checkpoint(step, 1);
  EXPECT_NEAR(*cadence.interval_seconds(), best_interval_seconds(1, kDay), 0.1);
}

TEST(DrainPace, HasTimeOnlyAfterACheckpointThatWasWrittenEarly) {
  DrainPace pace;
  EXPECT_FALSE(pace.begin(100)) << "of the first nobody knows";
  pace.end(102);
  EXPECT_TRUE(pace.begin(110)) << "a fifth of the time";
  pace.end(114);
  EXPECT_TRUE(pace.begin(120)) << "it took longer since it was out of the way";
  pace.end(126);
  EXPECT_FALSE(pace.begin(130)) << "more than half of the time";
  pace.end(133);
  EXPECT_FALSE(pace.begin(140)) << "not in a hurry, and yet more than a quarter";
  pace.end(142);
  EXPECT_TRUE(pace.begin(150));
  pace.end(165);
  EXPECT_FALSE(pace.begin(160)) << "the next one came before it was written";
}

TEST(DrainPace, SparesAShareOfTheIntervalTheFirstOfWhichBeginsWithTheProgram) {
  DrainPace pace(/*now=*/100);
  pace.begin(108);
  const auto spare_until = [&pace] { return pace.spare(/*has_processors=*/false, /*processor_count=*/2).until; };
  EXPECT_DOUBLE_EQ(spare_until(), 108 + 2);
  EXPECT_DOUBLE_EQ(pace.spare(false, 2).processor_seconds, 8 * 2 * 0.05);
  EXPECT_DOUBLE_EQ(pace.spare(/*has_processors=*/true, 2).until, 108 + 6);
  EXPECT_TRUE(std::isinf(pace.spare(true, 2).processor_seconds));
  pace.end(109);
  EXPECT_TRUE(pace.begin(120));
  EXPECT_DOUBLE_EQ(spare_until(), 120 + 6) << "low priority gave way";
  pace.end(127);
  EXPECT_FALSE(pace.begin(132));
  EXPECT_DOUBLE_EQ(spare_until(), 132 + 3);
}

}  // namespace
}  // namespace varve
