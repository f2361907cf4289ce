#include "level/push_queue.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/sync.h"

namespace varve {
namespace {

/// A queue at the end of a run: a thread has everything tried, and the test is who brings the sets there.
class PushQueueAtTheEnd : public testing::Test {
 protected:
  PushQueueAtTheEnd() {
    queue.take_up({}, /*all=*/true);
    queue.note(1, 1, false);
    queue.note(2, 2, false);
  }
  ~PushQueueAtTheEnd() override { queue.stop(); }

  /// What try_all() says if attempts end as `outcome` says, the first one of which is number 1.
  Status try_all(const std::function<Status(int attempt)>& outcome) {
    Status said;
    Thread waiting = start_thread([&] { said = queue.try_all(moment_after(std::chrono::seconds(30))); }).value();
    if (!queue.next()) queue.await(std::chrono::seconds(30));
    while (const std::optional<uint64_t> step = queue.next()) {
      const Status pushed = outcome(++attempts);
      if (!pushed.ok()) queue.note_failure(pushed);
      queue.note_outcome(*step, pushed, false);
    }
    waiting.join();
    return said;
  }

  /// An attempt of before the end, which leaves the queue alone until somebody asks.
  void fail_once_before() {
    ASSERT_EQ(queue.next(), 1u);
    queue.note_outcome(1, away, false);
    ASSERT_EQ(queue.next(), std::nullopt);
  }

  const LevelSpec level = parse_levels("memory; /x")->back();
  const Status away = Status::io_error("the server was restarted");
  PushQueue queue{level};
  int attempts = 0;
};

TEST_F(PushQueueAtTheEnd, AFailureThatMayPassIsTriedOnceAgain) {
  fail_once_before();
  EXPECT_TRUE(try_all([&](int attempt) { return attempt == 1 ? away : Status(); }).ok());
  EXPECT_TRUE(queue.owed_steps().steps.empty());
  EXPECT_EQ(attempts, 3);
}

TEST_F(PushQueueAtTheEnd, WhatGoesOnFailingIsToldAndOwed) {
  fail_once_before();
  EXPECT_EQ(try_all([&](int) { return away; }).code(), StatusCode::io_error);
  EXPECT_EQ(queue.owed_steps().steps, (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(attempts, 2);
}

TEST_F(PushQueueAtTheEnd, WhatCannotPassIsNotTriedAgain) {
  fail_once_before();
  EXPECT_EQ(try_all([](int) { return Status::already_exists("another set of that name"); }).code(),
            StatusCode::already_exists);
  EXPECT_EQ(queue.owed_steps().steps, (std::set<uint64_t>{1, 2}));
  EXPECT_EQ(attempts, 2);
}

TEST(APushQueue, TakesUpWhatSomebodyElseHasSavedInThePlaceOfASetThatWasBrought) {
  const LevelSpec level = parse_levels("memory; /x")->back();
  PushQueue queue(level);
  queue.take_up({.owed = {}, .seen = {{10, 1}}}, /*all=*/true);
  queue.note(50, 5, false);
  ASSERT_EQ(queue.next(), 50u);
  queue.note_outcome(50, {}, false);
  EXPECT_FALSE(queue.owes(50, 5));
  EXPECT_FALSE(queue.has_overlooked(50, 5));
  EXPECT_FALSE(queue.has_overlooked(10, 1));
  queue.forget(60);
  for (const uint64_t step : {50, 60}) {
    EXPECT_TRUE(queue.has_overlooked(step, 9));
    EXPECT_TRUE(queue.await(std::nullopt).looks);
    queue.take_up({.owed = {{.step = step, .number = 9}}, .seen = {{step, 9}}}, /*all=*/true);
    EXPECT_TRUE(queue.owes(step, 9));
    EXPECT_FALSE(queue.has_overlooked(step, 9));
    ASSERT_EQ(queue.next(), step);
    queue.note_outcome(step, {}, false);
    EXPECT_FALSE(queue.owes(step, 9));
  }
}

}  // namespace
}  // namespace varve
