#include "runtime/report.h"

#include <gtest/gtest.h>

#include <cmath>

namespace varve {
namespace {

TEST(OverheadModel, AgreesWithThePapersOwnNumber) {
  // Shahzad et al., section VI: n = 2, S = 6.25 GB, B_M = 40 GB/s, m = 7 give 2.2 s.
  const OverheadModel lima{.node_bytes = 6.25e9, .memory_bytes_per_second = 40e9, .io_bytes_per_second = 3e9};
  EXPECT_NEAR(2 * lima.asynchronous_seconds(), 2.2, 0.05);
  EXPECT_DOUBLE_EQ(2 * lima.asynchronous_seconds(), 2.1875);
}

TEST(OverheadModel, GrowsWithNodesOnlyIfTheProgramWaits) {
  OverheadModel model{.node_bytes = 4e9, .memory_bytes_per_second = 40e9, .io_bytes_per_second = 3e9};
  const double alone_waiting = model.synchronous_seconds(), alone_going_on = model.asynchronous_seconds();
  model.node_count = 128;  // 512 GB, as in figure 9
  EXPECT_DOUBLE_EQ(model.synchronous_seconds(), 128 * alone_waiting);
  EXPECT_NEAR(model.synchronous_seconds(), 170.7, 0.05);
  EXPECT_DOUBLE_EQ(model.asynchronous_seconds(), alone_going_on);
}

TEST(OverheadModel, LimitsCheckpointsByTheTimeOfTheirWriting) {
  const OverheadModel model{.node_bytes = 3e9, .memory_bytes_per_second = 40e9, .io_bytes_per_second = 0.1e9};
  EXPECT_EQ(model.asynchronous_checkpoints_max(29.9), 0u);
  EXPECT_EQ(model.asynchronous_checkpoints_max(30), 1u);
  EXPECT_EQ(model.asynchronous_checkpoints_max(3600), 120u);
  EXPECT_EQ(model.asynchronous_checkpoints_max(1e30), UINT64_MAX);
}

TEST(BestInterval, IsYoungsForCheapCheckpointsAndShorterByHalfTheirCost) {
  const double cost = 1, mtbf = 86'400;
  const double young = std::sqrt(2 * cost * mtbf);
  EXPECT_NEAR(best_interval_seconds(cost, mtbf), young - cost + cost / 3, 0.01);
}

TEST(BestInterval, IsTheMeanTimeBetweenFailuresWhereACheckpointTakesLonger) {
  EXPECT_DOUBLE_EQ(best_interval_seconds(3000, 1000), 1000);
  EXPECT_NEAR(best_interval_seconds(1999.9, 1000), std::sqrt(2 * 2000.0 * 1000) * (1 + 1 / 3.0 + 1 / 9.0) - 2000, 1);
  EXPECT_DOUBLE_EQ(best_interval_seconds(0, 1000), 0);
}

TEST(BestInterval, WastesLessThanItsNeighbours) {
  for (const double cost : {0.01, 1.0, 60.0, 600.0}) {
    const double mtbf = 86'400, best = best_interval_seconds(cost, mtbf);
    const double least = expected_waste(best, cost, mtbf);
    EXPECT_LT(least, expected_waste(best * 1.5, cost, mtbf)) << cost;
    EXPECT_LT(least, expected_waste(best / 1.5, cost, mtbf)) << cost;
  }
}

TEST(Waste, IsNeverMoreThanAll) {
  EXPECT_DOUBLE_EQ(expected_waste(1e9, 1, 10), 1);
  EXPECT_DOUBLE_EQ(expected_waste(0, 0, 10), 0);
}

}  // namespace
}  // namespace varve
