#include "runtime/run_metrics.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

class OfARun : public testing::Test {
 protected:
  OfARun() { progress_.begin({"memory", "dir:/near", "dir:/far"}, 1); }

  const LevelState& level(size_t i) {
    state_ = progress_.now();
    return state_.levels.at(i);
  }
  double lag(size_t i) {
    const LevelState& one = level(i);
    return lag_seconds(state_, one, kBegin);
  }
  std::string text() const {
    return run_metrics({.job = "heat", .run = "ab", .store = "dir:/near", .begin = kBegin}, RunCosts(), BlockedParts(),
                       progress_.now())
        .text(MetricsFormat::prometheus);
  }
  bool tells(const std::string& line) const { return text().find(line + "\n") != std::string::npos; }

  static constexpr double kBegin = 1000;
  RunProgress progress_;
  RunState state_;
};

TEST_F(OfARun, EachLevelIsSoFarBehindAsItsNewestCheckpointIsOlder) {
  EXPECT_EQ(lag(2), 0) << "there is nothing that it could lack";
  progress_.note_snapshot(10, 1010, true);
  progress_.note_snapshot(20, 1025, true);
  EXPECT_EQ(lag(0), 0);
  EXPECT_EQ(lag(1), 25) << "it has nothing of this run";
  EXPECT_EQ(level(1).waiting, 2u);
  progress_.note_stored(10);
  EXPECT_EQ(lag(1), 15);
  EXPECT_EQ(level(1).newest, 10u);
  progress_.note_stored(20);
  progress_.note_arrived("dir:/far", 10);
  EXPECT_EQ(lag(1), 0);
  EXPECT_EQ(lag(2), 15);
  EXPECT_EQ(level(1).waiting, 0u);
  EXPECT_TRUE(tells("varve_run_level_lag_seconds{job=\"heat\",level=\"dir:/far\"} 15"));
  EXPECT_TRUE(tells("varve_run_level_newest_step{job=\"heat\",level=\"dir:/far\"} 10"));
  EXPECT_TRUE(tells("varve_run_level_newest_timestamp_seconds{job=\"heat\",level=\"dir:/far\"} 1010"));
  EXPECT_TRUE(tells("varve_run_newest_step{job=\"heat\"} 20"));
}

TEST_F(OfARun, FailuresCountAtTheirLevel) {
  progress_.note_snapshot(10, 1010, true);
  progress_.note_not_stored(10);
  progress_.note_failure("dir:/far");
  progress_.note_failure("dir:/far");
  progress_.note_given_up("dir:/far");
  progress_.note_failure("dir:/nowhere");
  EXPECT_EQ(level(1).failures, 1u);
  EXPECT_EQ(level(1).waiting, 0u);
  EXPECT_EQ(level(2).failures, 2u);
  EXPECT_EQ(level(2).given_up, 1u);
  EXPECT_TRUE(tells("varve_run_level_failures_total{job=\"heat\",level=\"dir:/far\"} 2"));
}

TEST_F(OfARun, ARestartIsWhatItsLevelHas) {
  progress_.note_restart(40, 2, 900);
  progress_.note_snapshot(50, 1050, true);
  EXPECT_EQ(level(2).newest, 40u);
  EXPECT_EQ(lag(2), 150);
  EXPECT_FALSE(level(1).newest);
  EXPECT_TRUE(tells("varve_run_restart_step{job=\"heat\"} 40"));
}

TEST_F(OfARun, WhatItGoesBackBehindCountsNoMore) {
  progress_.note_snapshot(10, 1010, true);
  progress_.note_stored(10);
  progress_.note_snapshot(20, 1020, true);
  progress_.note_stored(20);
  progress_.note_restart(10, 1, 1010);
  EXPECT_EQ(level(1).newest, 10u);
  EXPECT_FALSE(level(0).newest);
  EXPECT_EQ(level(1).waiting, 0u);
}

TEST_F(OfARun, ASetIsDurableWhereAllNodesHaveIt) {
  progress_.note_snapshot(10, 1010, true);
  progress_.note_snapshot(20, 1020, true);
  progress_.note_stored(10);
  progress_.note_stored(20);
  progress_.note_on_all_nodes(10);
  EXPECT_EQ(level(1).newest, 10u);
  EXPECT_EQ(lag(1), 10);
  progress_.note_on_all_nodes(20);
  EXPECT_EQ(lag(1), 0);
}

TEST_F(OfARun, TheEndIsTold) {
  EXPECT_TRUE(tells("varve_run_running{job=\"heat\"} 1"));
  progress_.state.ended = 2000;
  progress_.state.failed = true;
  EXPECT_TRUE(tells("varve_run_running{job=\"heat\"} 0"));
  EXPECT_TRUE(tells("varve_run_failed{job=\"heat\"} 1"));
  EXPECT_TRUE(tells("varve_run_end_timestamp_seconds{job=\"heat\"} 2000"));
}

}  // namespace
}  // namespace varve
