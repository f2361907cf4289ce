#include "engine/effort_pace.h"

#include <gtest/gtest.h>

#include "core/work_meter.h"

namespace varve {
namespace {

constexpr uint64_t kPack = 1 << 20;

/// Saves of 1 GiB on two threads, of packs that shrink to two thirds and take a millisecond to encode.
class SavesUnderWay : public testing::Test {
 protected:
  void begin(double spare_seconds) { pace_.begin(1024 * kPack, 2, {.until = clock_.seconds() + spare_seconds}); }
  void begin(double spare_seconds, double processor_seconds) {
    pace_.begin(1024 * kPack, 2, {.until = clock_.seconds() + spare_seconds, .processor_seconds = processor_seconds});
  }
  void write(double milliseconds_per_megabyte, uint64_t megabytes = 64) {
    meter_.add(WorkKind::write, megabytes << 20,
               static_cast<int64_t>(1e6 * milliseconds_per_megabyte * double(megabytes)));
  }
  PackEffort save_pack(uint64_t stored_bytes = kPack * 2 / 3, const std::string& class_key = "a") {
    const PackEffort effort = pace_.choose(class_key, kPack);
    pace_.note_encoded(class_key, effort, kPack, stored_bytes, 1e-3);
    pace_.note_placed(kPack);
    return effort;
  }
  void save_packs(int count, uint64_t stored_bytes = kPack * 2 / 3) {
    for (int i = 0; i < count; ++i) save_pack(stored_bytes);
  }

  ManualClock clock_;
  EffortPace pace_{clock_};
  WorkMeter meter_;
  WorkMeter::Scope metered_{&meter_};
};

TEST_F(SavesUnderWay, CompressAsWasAskedForWhileThereIsTime) {
  begin(/*spare_seconds=*/10);
  write(0.4);
  save_packs(100);
  const EffortOutcome outcome = pace_.end();
  EXPECT_EQ(outcome.bytes[0], 100 * kPack);
  EXPECT_EQ(outcome.mostly(), PackEffort::asked);
  EXPECT_FALSE(outcome.was_late || outcome.was_awaited);
}

TEST_F(SavesUnderWay, StoreWhatTakesLongerToCompressThanItSavesTheStore) {
  // 0.5 s for all of it on two threads: too long. A third of 0.4 ms is less than half of 1 ms.
  begin(/*spare_seconds=*/0.1);
  write(0.4);
  save_packs(200);
  const EffortOutcome outcome = pace_.end();
  EXPECT_EQ(outcome.mostly(), PackEffort::none);
  EXPECT_TRUE(outcome.was_late);
  EXPECT_FALSE(outcome.was_awaited);
  EXPECT_GT(outcome.bytes[1], 0u) << "now and then one shows whether that is still right";
}

TEST_F(SavesUnderWay, CompressFastRatherThanStoreIfThatCostsLess) {
  begin(10);
  write(0.4);
  save_packs(10);
  begin(/*spare_seconds=*/-1);
  write(0.4);
  for (int i = 0; i < 50; ++i) {
    // As asked takes too long for what it saves; fast saves less, in a fifth of the time.
    EXPECT_EQ(pace_.choose("a", kPack), PackEffort::fast) << i;
    pace_.note_encoded("a", PackEffort::fast, kPack, kPack * 7 / 10, 2e-4);
    pace_.note_placed(kPack);
  }
}

TEST_F(SavesUnderWay, CompressFastIfThereIsTimeForThatAlone) {
  begin(10);
  write(0.1);
  save_packs(10);
  begin(/*spare_seconds=*/0.2);
  write(0.1);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(pace_.choose("a", kPack), PackEffort::fast) << i;
    pace_.note_encoded("a", PackEffort::fast, kPack, kPack * 99 / 100, 2e-4);
    pace_.note_placed(kPack);
  }
}

TEST_F(SavesUnderWay, StoreWhereTheProgramLacksWhatCompressingTakes) {
  // Two threads save a third of a millisecond of writing in half a millisecond each.
  begin(/*spare_seconds=*/1, /*processor_seconds=*/0.1);
  write(0.9);
  save_packs(100, kPack / 3);
  EXPECT_EQ(save_pack(kPack / 3), PackEffort::none) << "it is written in time";
  EXPECT_TRUE(pace_.end().was_late);
  begin(/*spare_seconds=*/0.7, /*processor_seconds=*/0.1);
  EXPECT_NE(save_pack(kPack / 3), PackEffort::none) << "0.9 s is not in time";
  pace_.hurry(true);
  EXPECT_NE(save_pack(kPack / 3), PackEffort::none) << "somebody waits";
  pace_.hurry(false);
  begin(/*spare_seconds=*/1);
  EXPECT_EQ(save_pack(kPack / 3), PackEffort::asked) << "there are processors that the program does not use";
}

TEST_F(SavesUnderWay, TakeNoMoreOfTheProcessorsThanTheProgramCanSpare) {
  // All of it takes 1.024 s of them.
  begin(10, 1.1);
  write(0.1);
  save_packs(1024);
  EXPECT_EQ(pace_.end().bytes[0], 1024 * kPack);
  begin(10, 1.0);
  write(0.1);
  save_packs(1024);
  const EffortOutcome outcome = pace_.end();
  EXPECT_LE(outcome.bytes[0] + outcome.bytes[1], 1001 * kPack);
  EXPECT_GT(outcome.bytes[0], 900 * kPack);
}

TEST_F(SavesUnderWay, CompressForASlowStoreHoweverLittleTimeThereIs) {
  begin(/*spare_seconds=*/-1);
  write(10);
  save_packs(100);
  EXPECT_EQ(pace_.end().bytes[2], 0u);
}

TEST_F(SavesUnderWay, KnowFromEarlierOnesWhatToDoFromTheFirstPackOn) {
  begin(0.1);
  write(0.4);
  save_packs(100);
  pace_.end();
  WorkMeter next;
  const WorkMeter::Scope metered(&next);
  begin(0.1);
  EXPECT_EQ(save_pack(), PackEffort::none);
  begin(10);
  EXPECT_EQ(save_pack(), PackEffort::asked) << "there is time again";
}

TEST_F(SavesUnderWay, HurryWhileSomebodyWaits) {
  begin(10);
  write(0.4);
  save_packs(2);
  pace_.hurry(true);
  save_packs(2);
  EXPECT_EQ(save_pack(), PackEffort::none);
  pace_.hurry(false);
  EXPECT_EQ(save_pack(), PackEffort::asked);
  const EffortOutcome outcome = pace_.end();
  EXPECT_TRUE(outcome.was_awaited);
  EXPECT_FALSE(outcome.was_late);
}

TEST_F(SavesUnderWay, HaveTimeForTheLittleThatIsNew) {
  begin(0.1);
  write(0.4);
  for (int i = 0; i < 64; ++i) {
    save_pack();
    pace_.note_placed(15 * kPack);  // known
  }
  pace_.end();
  begin(0.1);
  EXPECT_EQ(save_pack(), PackEffort::asked) << "a sixteenth of 0.5 s";
}

TEST_F(SavesUnderWay, LookAtEachClassByItself) {
  begin(-1);
  write(0.4);
  for (int i = 0; i < 20; ++i) {
    save_pack(kPack * 2 / 3, "noise");
    pace_.note_encoded("smooth", pace_.choose("smooth", kPack), kPack, kPack / 50, 1e-4);
  }
  EXPECT_EQ(pace_.choose("noise", kPack), PackEffort::none);
  EXPECT_EQ(pace_.choose("smooth", kPack), PackEffort::fast);
}

TEST_F(SavesUnderWay, FindOutThatAClassHasBecomeWorthIt) {
  begin(-1);
  write(0.4);
  save_packs(20);
  EXPECT_EQ(save_pack(), PackEffort::none);
  int packs = 0;
  while (packs < 2000 && save_pack(kPack / 100) != PackEffort::fast) ++packs;
  EXPECT_LT(packs, 64);
}

}  // namespace
}  // namespace varve
