#include "watch/set_tracker.h"

#include <gtest/gtest.h>

#include "sets/saving.h"

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

TEST_F(TrackedSets, AreDueOnceTheyWereQuietForLongerIfTheyNeedThat) {
  SetTracker patient(
      10s, [](const FoundSet& found, bool has_changed) { return std::chrono::seconds(has_changed ? 40 : found.step); });
  patient.update(0, "run", {set(1), set(30)}, now);
  EXPECT_EQ(patient.next_time(now + 60s), now + 10s);
  SetTracker::settle(*patient.next_due(now + 10s), WatchState::saved);
  EXPECT_EQ(patient.next_time(now + 60s), now + 30s);
  now += 10s;
  patient.update(0, "run", {set(1), set(30, 2)}, now);  // it grew
  EXPECT_EQ(patient.next_time(now + 60s), now + 40s);
}

FoundSet written_at_seconds(const std::vector<int64_t>& ranks) {
  FoundSet found{"/run/1", 1, {}};
  for (const int64_t at : ranks) {
    SourceFile file;
    file.rank = static_cast<int64_t>(found.files.size());
    file.path = "data." + std::to_string(file.rank);
    file.modified_s = at;
    found.files.push_back(file);
  }
  return found;
}

TEST(ASetOfRanks, IsQuietForAsLongAsItTookToBeWritten) {
  Completeness wanted;
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({0, 1000}), 1000), 0s) << "no ranks are asked for";
  wanted.rank_count = 2;
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1004}), 1004), 4s);
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1004}), 1003), 4s) << "clocks differ";
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1004}), 1007), 1s) << "it is quiet since";
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1004}), 9999), 0s);
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1000}), 1000), 0s);
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({0, 100'000}), 100'000), 600s) << "files of a run that was killed";
  EXPECT_EQ(wanted.quiet_from(written_at_seconds({1000, 1004}), std::nullopt), 4s) << "whatever our own clock says";
  FoundSet with_input = written_at_seconds({100'000, 100'001});
  with_input.files.push_back({});
  EXPECT_EQ(wanted.quiet_from(with_input, 100'001), 1s) << "what is of no rank is older";
}

TEST(AnEndMarker, OfAnEarlierRunDoesNotCount) {
  const test::TempFolder run;
  test::write_file(run / "DONE", "");
  const SourceFile marker = look_at_source(run / "DONE")->self;
  SourceFile data = marker;
  data.path = "data";
  FoundSet found{run.path(), 1, {marker, data}};
  Completeness wanted;
  wanted.end_marker = "DONE";
  EXPECT_EQ(wanted.lacking(found).value(), "");
  found.files[1].modified_s += 100;
  EXPECT_EQ(wanted.lacking(found).value(), "") << "it has its name since";
  found.files[1].changed_s += 100;
  EXPECT_EQ(wanted.lacking(found).value(), "DONE is older than data");
  found.files[1].modified_s -= 100;
  EXPECT_EQ(wanted.lacking(found).value(), "") << "all was copied, the marker first";
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
