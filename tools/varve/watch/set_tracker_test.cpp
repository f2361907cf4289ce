#include "watch/set_tracker.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

using namespace std::chrono_literals;

struct TrackedSets : testing::Test {
  static FoundSet set(uint64_t step, uint64_t bytes = 1) {
    SourceFile file;
    file.path = "data";
    file.bytes = bytes;
    return {"/run/" + std::to_string(step), step, {file}};
  }
  void see(std::vector<FoundSet> sets) { tracker.update(0, "run", std::move(sets), now); }
  std::optional<uint64_t> due() {
    const SetTracker::Entry* const entry = tracker.next_due(now);
    return entry == nullptr ? std::nullopt : std::optional(entry->name.step);
  }

  SetTracker tracker{10s};
  SetTracker::Time now;
};

TEST_F(TrackedSets, AreDueOnceNothingHasChangedForTheQuietTime) {
  see({set(1)});
  now += 9s;
  EXPECT_FALSE(due());
  see({set(1, 2)});  // it grew
  EXPECT_EQ(tracker.next_time(now + 60s), now + 10s);
  now += 9s;
  see({set(1, 2)});
  EXPECT_FALSE(due());
  now += 1s;
  EXPECT_EQ(due(), 1u);
}

TEST_F(TrackedSets, AreTakenInTheOrderOfTheirSteps) {
  see({set(3), set(10), set(2)});
  now += 10s;
  EXPECT_EQ(due(), 2u);
  SetTracker::settle(*tracker.next_due(now), WatchState::saved);
  EXPECT_EQ(due(), 3u);
}

TEST_F(TrackedSets, AreLeftAloneOnceTheyAreSavedUntilTheyChange) {
  see({set(1)});
  now += 10s;
  SetTracker::settle(*tracker.next_due(now), WatchState::saved);
  now += 100s;
  see({set(1)});
  EXPECT_FALSE(due());
  EXPECT_EQ(tracker.next_time(now + 60s), now + 60s);
  see({set(1, 2)});
  now += 10s;
  EXPECT_EQ(due(), 1u);
}

TEST_F(TrackedSets, AreTriedEverMoreSeldomAfterFailures) {
  see({set(1)});
  now += 10s;
  std::chrono::nanoseconds before{0};
  for (int i = 0; i < 20; ++i) {
    SetTracker::Entry* const entry = tracker.next_due(now);
    ASSERT_NE(entry, nullptr);
    tracker.fail(*entry, Status::io_error("no luck"), now);
    EXPECT_FALSE(due());
    const auto pause = entry->due - now;
    EXPECT_GE(pause, before);
    EXPECT_LE(pause, 600s);
    before = pause;
    now = entry->due;
  }
  EXPECT_EQ(before, 600s);
}

TEST_F(TrackedSets, AreForgottenWhenTheyVanish) {
  see({set(1), set(2)});
  tracker.update(1, "other", {set(1)}, now);
  see({set(2)});
  EXPECT_EQ(tracker.entries().size(), 2u) << "of the other folder, and what is left";
  EXPECT_EQ(tracker.find(0, set(1)), nullptr);
  EXPECT_NE(tracker.find(1, set(1)), nullptr);
}

TEST_F(TrackedSets, ThatLackSomethingAreLookedAtAgain) {
  see({set(1)});
  now += 10s;
  tracker.wait(*tracker.next_due(now), "a file", now);
  EXPECT_FALSE(due());
  now += 10s;
  EXPECT_EQ(due(), 1u);
}

}  // namespace
}  // namespace varve
