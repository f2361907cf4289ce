#include "runtime/cadence.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/memory_file_system.h"

namespace varve {
namespace {

/// One of two ranks, the other of which votes as it was told. Counts calls.
class TwoRanks final : public Communicator {
 public:
  TwoRanks(uint32_t rank, std::vector<uint64_t> others_votes) : rank_(rank), others_votes_(std::move(others_votes)) {}
  int call_count = 0;
  std::vector<uint64_t> my_votes;

  uint32_t rank() const override { return rank_; }
  uint32_t rank_count() const override { return 2; }
  Status all_max(std::span<uint64_t> values) override {
    ++call_count;
    my_votes.assign(values.begin(), values.end());
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], others_votes_.at(i));
    return fails ? Status::io_error("the network is down") : Status();
  }
  bool fails = false;

  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte>) override { return unused(); }
  Result<std::vector<std::byte>> broadcast(std::span<const std::byte>, uint32_t) override { return unused(); }
  Status all_min(std::span<uint64_t>) override { return unused(); }
  Status barrier() override { return unused(); }
  bool concurrent() const override { return false; }
  Status send(uint32_t, uint32_t, std::span<const std::byte>) override { return unused(); }
  Status receive(uint32_t, uint32_t, std::span<std::byte>) override { return unused(); }

 private:
  static Status unused() { return Status::internal("due() must not call this"); }
  uint32_t rank_;
  std::vector<uint64_t> others_votes_;
};

class DueOnAllRanks : public testing::Test {
 protected:
  static constexpr CadenceRule kEveryTenSteps{
      .every_steps = 10, .every_seconds = {}, .mean_time_between_failures = 1e5};
  static constexpr CadenceRule kEveryMinute{.every_steps = {}, .every_seconds = 60, .mean_time_between_failures = 1e5};

  StopRequests stop(std::optional<double> after_seconds = {}) {
    return StopRequests::start({.on_signals = false, .after_seconds = after_seconds, .file = {}}, true, files_, clock_)
        .value();
  }

  /// What the ranks agree on with the step after this one, as a talk of its own.
  Due next(TwoRanks& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step) {
    DueTalk talk(clock_);
    EXPECT_FALSE(talk.ask(ranks, cadence, stop, step)->told);
    EXPECT_EQ(ranks.call_count, 0) << "nobody is waited for";
    const Result<Due> due = talk.ask(ranks, cadence, stop, step + 1);
    EXPECT_TRUE(due.ok() && due->told);
    return due.ok() ? *due : Due();
  }

  MemoryFileSystem files_;
  ManualClock clock_;
};

TEST_F(DueOnAllRanks, NeedsNoWordWhereStepsAloneCount) {
  TwoRanks ranks(1, {0, 0, 0, 0});
  const Cadence cadence(kEveryTenSteps, clock_);
  StopRequests never = stop();
  DueTalk talk(clock_);
  EXPECT_TRUE(talk.ask(ranks, cadence, never, 10)->checkpoint);
  EXPECT_FALSE(talk.ask(ranks, cadence, never, 9)->checkpoint);
  EXPECT_FALSE(talk.is_on());
  EXPECT_EQ(ranks.call_count, 0);
}

TEST_F(DueOnAllRanks, IsDecidedByTheClockOfRankZero) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  clock_.advance(61);
  TwoRanks as_first(0, {0, 0, 0, 0});
  EXPECT_TRUE(next(as_first, cadence, never, 1).checkpoint);
  EXPECT_EQ(as_first.call_count, 1);
  TwoRanks as_second(1, {0, 0, 0, 0});
  EXPECT_FALSE(next(as_second, cadence, never, 1).checkpoint);
  EXPECT_EQ(as_second.my_votes, (std::vector<uint64_t>{0, 0, 0, 0}));
  TwoRanks told(1, {1, 0, 0, 0});
  const Due due = next(told, cadence, never, 1);
  EXPECT_TRUE(due.checkpoint);
  EXPECT_FALSE(due.stop);
}

TEST_F(DueOnAllRanks, StopsAllWhenOneIsAskedTo) {
  const Cadence cadence(kEveryTenSteps, clock_);
  StopRequests limit = stop(100);
  TwoRanks told(0, {0, 1, 0, 0});
  const Due due = next(told, cadence, limit, 3);
  EXPECT_TRUE(due.stop);
  EXPECT_TRUE(due.checkpoint);
  EXPECT_EQ(told.call_count, 1);
  clock_.advance(100);
  TwoRanks telling(1, {0, 0, 0, 0});
  EXPECT_TRUE(next(telling, cadence, limit, 3).stop);
  EXPECT_EQ(telling.my_votes, (std::vector<uint64_t>{0, 1, 0, 0}));
}

TEST_F(DueOnAllRanks, KnowsTheLeastTimeThatIsLeftOnAnyRank) {
  const Cadence cadence(kEveryTenSteps, clock_);
  const double now = static_cast<double>(calendar_seconds());
  const auto ends_in = [&](double seconds) {
    return StopRequests::start({.on_signals = false, .grace = 60, .end_time = now + seconds}, true, files_, clock_)
        .value();
  };
  StopRequests soon = ends_in(30), never = stop(100);
  TwoRanks telling(1, {0, 0, 0, 0});
  const Due own = next(telling, cadence, soon, 3);
  EXPECT_TRUE(own.stop);
  EXPECT_NEAR(own.seconds_left, 30, 2);
  const uint64_t told = telling.my_votes.at(3);
  EXPECT_GT(told, 0u);
  TwoRanks hearing(0, {0, 1, 0, told});
  EXPECT_NEAR(next(hearing, cadence, never, 3).seconds_left, 30, 2);
  StopRequests sooner = ends_in(10);
  TwoRanks later(0, {0, 1, 0, told});
  EXPECT_NEAR(next(later, cadence, sooner, 3).seconds_left, 10, 2);
  TwoRanks silent(0, {0, 1, 0, 0});
  EXPECT_TRUE(std::isinf(next(silent, cadence, never, 3).seconds_left));
}

TEST_F(DueOnAllRanks, IsTalkedAboutNowAndThenWhereStepsAreShort) {
  Cadence cadence(kEveryTenSteps, clock_);
  StopRequests limit = stop(100);
  constexpr uint64_t kSlowerNanoseconds = 5'000'000;
  TwoRanks ranks(0, {0, 0, kSlowerNanoseconds, 0});
  DueTalk talk(clock_);
  int checkpoints = 0, stops = 0;
  for (uint64_t step = 1; step <= 300; ++step) {
    clock_.advance(0.001);
    const Due due = *talk.ask(ranks, cadence, limit, step);
    checkpoints += due.checkpoint ? 1 : 0;
    if (due.checkpoint) cadence.note_checkpoint(step, 0);
    stops += due.stop ? 1 : 0;
  }
  // The other rank takes 5 ms for a step: ten steps are 0.05 s.
  EXPECT_NEAR(ranks.call_count, 30, 2);
  EXPECT_EQ(checkpoints, 30);
  EXPECT_EQ(stops, 0);
  clock_.advance(100);
  uint64_t step = 300;
  while (!talk.ask(ranks, cadence, limit, ++step)->stop) ASSERT_LT(step, 320);
}

TEST_F(DueOnAllRanks, IsTalkedAboutInEachStepThatTakesLong) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(1, {0, 0, 0, 0});
  // As any other, it goes on while one reads it.
  class TickingClock final : public Clock {
   public:
    explicit TickingClock(ManualClock& clock) : clock_(clock) {}
    double seconds() const override {
      clock_.advance(1e-7);
      return clock_.seconds();
    }
    void sleep(double seconds) override { clock_.advance(seconds); }

   private:
    ManualClock& clock_;
  } ticking(clock_);
  DueTalk talk(ticking);
  for (uint64_t step = 1; step <= 200; ++step) {
    clock_.advance(0.2);
    const Due due = *talk.ask(ranks, cadence, never, step);
    ASSERT_EQ(due.told.has_value(), step > 1);
    ASSERT_TRUE(talk.is_on());
  }
}

TEST_F(DueOnAllRanks, SaysWhenItCannotBeAgreedOn) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(0, {0, 0, 0, 0});
  ranks.fails = true;
  DueTalk talk(clock_);
  EXPECT_TRUE(talk.ask(ranks, cadence, never, 1).ok());
  EXPECT_EQ(talk.ask(ranks, cadence, never, 2).status().code(), StatusCode::io_error);
}

TEST_F(DueOnAllRanks, IsAskedAnewAfterACheckpoint) {
  Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(0, {0, 0, 0, 0});
  DueTalk talk(clock_);
  int checkpoints = 0;
  for (uint64_t step = 1; step <= 100; ++step) {
    clock_.advance(7);
    if (!talk.ask(ranks, cadence, never, step)->checkpoint) continue;
    EXPECT_FALSE(talk.is_on()) << "it would say that another one is due";
    cadence.note_checkpoint(step, 0);
    ++checkpoints;
  }
  EXPECT_EQ(checkpoints, 10) << "one step after the one at which a minute has passed";
}

TEST_F(DueOnAllRanks, StopsARunThatMakesACheckpointInEachStep) {
  const Cadence cadence({.every_steps = 1, .every_seconds = {}, .mean_time_between_failures = 1e5}, clock_);
  StopRequests limit = stop(100);
  TwoRanks ranks(0, {0, 1, 0, 0});
  DueTalk talk(clock_);
  const Due first = *talk.ask(ranks, cadence, limit, 1);
  EXPECT_TRUE(first.checkpoint && !first.stop);
  EXPECT_TRUE(talk.ask(ranks, cadence, limit, 2)->stop);
}

TEST_F(DueOnAllRanks, CountsTheTimeThatHasPassedWhileTheyTalked) {
  const Cadence cadence(kEveryTenSteps, clock_);
  StopRequests soon =
      StopRequests::start({.on_signals = false, .grace = 60, .end_time = static_cast<double>(calendar_seconds()) + 30},
                          true, files_, clock_)
          .value();
  TwoRanks ranks(0, {0, 0, 0, 0});
  DueTalk talk(clock_);
  ASSERT_TRUE(talk.ask(ranks, cadence, soon, 1).ok());
  clock_.advance(12);
  EXPECT_NEAR(talk.ask(ranks, cadence, soon, 2)->seconds_left, 18, 2);
}

TEST_F(DueOnAllRanks, StaysSoUntilThereIsACheckpoint) {
  RunCourse course(kEveryMinute, clock_);
  course.watch_for_stops(stop());
  TwoRanks ranks(0, {0, 0, 0, 0});
  clock_.advance(61);
  EXPECT_FALSE(course.agree(ranks, 1, {})->checkpoint);
  EXPECT_TRUE(course.end_talk(ranks)->has_value());
  for (uint64_t step = 2; step < 6; ++step) EXPECT_TRUE(course.agree(ranks, step, {})->checkpoint);
  ASSERT_TRUE(course.end_talk(ranks).ok());
  course.cadence().note_checkpoint(6, 0);
  course.note_made();
  for (uint64_t step = 7; step < 10; ++step) EXPECT_FALSE(course.agree(ranks, step, {})->checkpoint);
}

TEST_F(DueOnAllRanks, TravelsWithWhatTheRanksTellEachOther) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(1, {0, 0, 0, 0, 7, 1});
  DueTalk talk(clock_);
  const std::array<uint64_t, 2> tell{3, 5};
  ASSERT_TRUE(talk.ask(ranks, cadence, never, 1, tell).ok());
  EXPECT_EQ(talk.end(ranks)->told, (std::vector<uint64_t>{7, 5}));
  EXPECT_FALSE(talk.is_on());
}

TEST_F(DueOnAllRanks, BringsALastCheckpointAlsoIfTheStopWasLearntOfInBetween) {
  RunCourse course(kEveryTenSteps, clock_);
  course.watch_for_stops(stop(100));
  TwoRanks ranks(0, {0, 1, 0, 0});
  EXPECT_FALSE(course.agree(ranks, 1, {})->checkpoint);
  EXPECT_TRUE(course.end_talk(ranks)->has_value());
  EXPECT_FALSE(course.end_talk(ranks)->has_value());
  EXPECT_TRUE(course.stop_is_agreed());
  EXPECT_TRUE(course.agree(ranks, 2, {})->checkpoint);
  course.note_made();
  EXPECT_TRUE(course.should_stop());
}

}  // namespace
}  // namespace varve
