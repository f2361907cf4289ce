#include "runtime/cadence.h"

#include <gtest/gtest.h>

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

  MemoryFileSystem files_;
  ManualClock clock_;
  TalkPace pace_{clock_};
};

TEST_F(DueOnAllRanks, NeedsNoWordWhereStepsAloneCount) {
  TwoRanks ranks(1, {0, 0, 0, 0});
  const Cadence cadence(kEveryTenSteps, clock_);
  StopRequests never = stop();
  EXPECT_TRUE(agree_on_due(ranks, cadence, never, pace_, 10)->checkpoint);
  EXPECT_FALSE(agree_on_due(ranks, cadence, never, pace_, 9)->checkpoint);
  EXPECT_EQ(ranks.call_count, 0);
}

TEST_F(DueOnAllRanks, IsDecidedByTheClockOfRankZero) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  clock_.advance(61);
  TwoRanks as_first(0, {0, 0, 0, 0});
  EXPECT_TRUE(agree_on_due(as_first, cadence, never, pace_, 1)->checkpoint);
  EXPECT_EQ(as_first.call_count, 1);
  TwoRanks as_second(1, {0, 0, 0, 0});
  EXPECT_FALSE(agree_on_due(as_second, cadence, never, pace_, 1)->checkpoint);
  EXPECT_EQ(as_second.my_votes, (std::vector<uint64_t>{0, 0, 0, 0}));
  TwoRanks told(1, {1, 0, 0, 0});
  const Due due = *agree_on_due(told, cadence, never, pace_, 1);
  EXPECT_TRUE(due.checkpoint);
  EXPECT_FALSE(due.stop);
}

TEST_F(DueOnAllRanks, StopsAllWhenOneIsAskedTo) {
  const Cadence cadence(kEveryTenSteps, clock_);
  StopRequests limit = stop(100);
  TwoRanks told(0, {0, 1, 0, 0});
  const Due due = *agree_on_due(told, cadence, limit, pace_, 3);
  EXPECT_TRUE(due.stop);
  EXPECT_TRUE(due.checkpoint);
  EXPECT_EQ(told.call_count, 1);
  clock_.advance(100);
  TwoRanks telling(1, {0, 0, 0, 0});
  EXPECT_TRUE(agree_on_due(telling, cadence, limit, pace_, 3)->stop);
  EXPECT_EQ(telling.my_votes, (std::vector<uint64_t>{0, 1, 100'000'000'000, 0}));
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
  const Due own = *agree_on_due(telling, cadence, soon, pace_, 3);
  EXPECT_TRUE(own.stop);
  EXPECT_NEAR(own.seconds_left, 30, 2);
  const uint64_t told = telling.my_votes.at(3);
  EXPECT_GT(told, 0u);
  TwoRanks hearing(0, {0, 1, 0, told});
  EXPECT_NEAR(agree_on_due(hearing, cadence, never, pace_, 3)->seconds_left, 30, 2);
  StopRequests sooner = ends_in(10);
  TwoRanks later(0, {0, 1, 0, told});
  EXPECT_NEAR(agree_on_due(later, cadence, sooner, pace_, 3)->seconds_left, 10, 2);
  TwoRanks silent(0, {0, 1, 0, 0});
  EXPECT_TRUE(std::isinf(agree_on_due(silent, cadence, never, pace_, 3)->seconds_left));
}

TEST_F(DueOnAllRanks, IsTalkedAboutNowAndThenWhereStepsAreShort) {
  Cadence cadence(kEveryTenSteps, clock_);
  StopRequests limit = stop(100);
  constexpr uint64_t kSlowerNanoseconds = 5'000'000;
  TwoRanks ranks(0, {0, 0, kSlowerNanoseconds, 0});
  int checkpoints = 0, stops = 0;
  for (uint64_t step = 1; step <= 300; ++step) {
    clock_.advance(0.001);
    const Due due = *agree_on_due(ranks, cadence, limit, pace_, step);
    checkpoints += due.checkpoint ? 1 : 0;
    if (due.checkpoint) cadence.note_checkpoint(step, 0);
    stops += due.stop ? 1 : 0;
  }
  // The other rank takes 5 ms for a step: ten steps are 0.05 s.
  EXPECT_NEAR(ranks.call_count, 30, 1);
  EXPECT_EQ(checkpoints, 30);
  EXPECT_EQ(stops, 0);
  clock_.advance(100);
  uint64_t step = 300;
  while (!agree_on_due(ranks, cadence, limit, pace_, ++step)->stop) ASSERT_LT(step, 320);
}

TEST_F(DueOnAllRanks, IsTalkedAboutInEachStepThatTakesLong) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(1, {0, 0, 0, 0});
  for (uint64_t step = 1; step <= 10; ++step) {
    clock_.advance(0.2);
    ASSERT_TRUE(agree_on_due(ranks, cadence, never, pace_, step)->talked);
  }
}

TEST_F(DueOnAllRanks, SaysWhenItCannotBeAgreedOn) {
  const Cadence cadence(kEveryMinute, clock_);
  StopRequests never = stop();
  TwoRanks ranks(0, {0, 0, 0, 0});
  ranks.fails = true;
  EXPECT_EQ(agree_on_due(ranks, cadence, never, pace_, 1).status().code(), StatusCode::io_error);
}

}  // namespace
}  // namespace varve
