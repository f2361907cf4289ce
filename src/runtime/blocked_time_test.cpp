#include "runtime/blocked_time.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

class OfBlockedTime : public testing::Test {
 protected:
  double of(BlockedCause cause) const { return time_.so_far().of(cause); }

  ManualClock clock_;
  BlockedTime time_{clock_};
};

TEST_F(OfBlockedTime, EachMomentOfACallHasOneCause) {
  clock_.advance(100);  // the program computes
  {
    const BlockedTime::Part call(time_, BlockedCause::other);
    clock_.advance(1);
    {
      const BlockedTime::Part room(time_, BlockedCause::room);
      clock_.advance(2);
      const BlockedTime::Part copy(time_, BlockedCause::copy);
      clock_.advance(4);
    }
    clock_.advance(8);
  }
  clock_.advance(100);
  EXPECT_EQ(of(BlockedCause::other), 9);
  EXPECT_EQ(of(BlockedCause::room), 2);
  EXPECT_EQ(of(BlockedCause::copy), 4);
  EXPECT_EQ(time_.so_far().total(), 15);
}

TEST_F(OfBlockedTime, WhatGoesOnCounts) {
  const BlockedTime::Part call(time_, BlockedCause::store);
  clock_.advance(3);
  EXPECT_EQ(of(BlockedCause::store), 3);
  clock_.advance(1);
  EXPECT_EQ(of(BlockedCause::store), 4);
}

TEST_F(OfBlockedTime, DifferencesAreOfEachCause) {
  const BlockedParts before = time_.so_far();
  {
    const BlockedTime::Part call(time_, BlockedCause::ranks);
    clock_.advance(2);
  }
  const BlockedParts since = time_.so_far() - before;
  EXPECT_EQ(since.of(BlockedCause::ranks), 2);
  EXPECT_EQ(since.total(), 2);
}

TEST_F(OfBlockedTime, CausesHaveNamesOfTheirOwn) {
  for (size_t i = 0; i < kBlockedCauses; ++i) {
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(blocked_cause_name(static_cast<BlockedCause>(i)), blocked_cause_name(static_cast<BlockedCause>(j)));
  }
}

}  // namespace
}  // namespace varve
