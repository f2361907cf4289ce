#include "runtime/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace varve {
namespace {

/// Four checkpoints of 1 GB on one of two ranks of one node, each blocked 0.1 s, persistent after 5 s, stored in half.
class AfterFourCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 4; ++i) {
      clock_.advance(100);
      ledger_.note_snapshot(
          {.bytes = 1'000'000'000, .copied_bytes = 1'000'000'000, .blocked_seconds = 0.1, .copy_seconds = 0.08});
      ledger_.note_persistent({.bytes = 2'000'000'000,
                               .stored_bytes = 1'000'000'000,
                               .seconds_to_persistent = 5,
                               .seconds = 4.5,
                               .processor_seconds = 4,
                               .times = {.read = 0.25, .score = 0.5, .encode = 1, .write = 2, .sync = 0.125},
                               .effort = {.bytes = {0, 0, 1}, .was_late = true}});
    }
    clock_.advance(8.4);
  }

  ManualClock clock_;
  RunLedger ledger_{clock_};
  ReportContext context_{.rank_count = 2,
                         .node_rank_count = 2,
                         .group_rank_count = 2,
                         .processor_count = 2,
                         .mean_time_between_failures = 86'400,
                         .adapts_effort = true,
                         .memory_bytes_per_second = {}};
};

TEST_F(AfterFourCheckpoints, TheOverheadIsWhatBlockedAndWhatStageTwoTook) {
  const RunJudgement judgement = judge(ledger_.costs(), context_);
  EXPECT_DOUBLE_EQ(judgement.overhead_seconds, 4 * 0.1 + 4 * 4 / 2.0);
  EXPECT_NEAR(judgement.share(judgement.overhead_seconds), 8.4 / 400, 1e-9);
}

TEST_F(AfterFourCheckpoints, ThePredictionIsThatOfThePapersModel) {
  context_.memory_bytes_per_second = 40e9;
  const RunJudgement judgement = judge(ledger_.costs(), context_);
  // m = 2 for the copy, 1 for reading it, 2 for each half byte stored; 2 GB on the node.
  EXPECT_NEAR(*judgement.predicted_seconds, 4 * (2 + 1 + 1) * 2e9 / 40e9, 1e-9);
  EXPECT_NEAR(*judgement.synchronous_seconds, 20, 1e-9) << "each was persistent after 5 s";
  EXPECT_EQ(judgement.checkpoints_max, 81u);
}

TEST_F(AfterFourCheckpoints, TheMemorysBandwidthIsThatOfTheCopiesUnlessItIsKnown) {
  const double bandwidth = 2 * 2e9 / 0.08;  // two ranks at once
  EXPECT_NEAR(*judge(ledger_.costs(), context_).predicted_seconds, 4 * 4 * 2e9 / bandwidth, 1e-9);
}

TEST_F(AfterFourCheckpoints, ManyGroupsOfANodeDisturbTogether) {
  context_.group_rank_count = 1;
  EXPECT_DOUBLE_EQ(disturbance_seconds(4, context_), 4);
  context_.group_rank_count = 2;
  EXPECT_DOUBLE_EQ(disturbance_seconds(4, context_), 2);
  context_.group_rank_count = 64;  // over many nodes
  EXPECT_DOUBLE_EQ(disturbance_seconds(4, context_), 2);
}

TEST_F(AfterFourCheckpoints, TheBestIntervalFollowsFromTheMeasuredCost) {
  const RunJudgement judgement = judge(ledger_.costs(), context_);
  EXPECT_DOUBLE_EQ(*judgement.best_interval_seconds, best_interval_seconds(8.4 / 4, 86'400));
  EXPECT_NEAR(*judgement.interval_seconds, 102.1, 1e-9);
  context_.mean_time_between_failures = 1;
  EXPECT_DOUBLE_EQ(*judge(ledger_.costs(), context_).best_interval_seconds, 5)
      << "one must be persistent before the next";
}

TEST_F(AfterFourCheckpoints, TheReportIsAFewLines) {
  ledger_.note_skipped();
  EXPECT_EQ(
      report_text(ledger_.costs(), context_),
      "checkpoints         4 begun, 4 persistent, 1 skipped, 0 failed, in 6.81 min\n"
      "program blocked     0.40 s (0.100 %): 0.10 s for each checkpoint, 0.10 s at most\n"
      "overhead            at most 8.40 s (2.10 %), with 16.0 s of processor time of the checkpoint thread\n"
      "  by the model      0.64 s (0.160 %)\n"
      "  if it had waited  20.0 s (5.00 %)\n"
      "time to persistent  5.00 s for each, 5.00 s at most\n"
      "bytes               954 MiB in each checkpoint of this rank; its group: 7.45 GiB → 3.73 GiB stored (2.00x)\n"
      "effort              balanced for 0 checkpoints, fast for 0, none for 4; 4 lacked time\n"
      "where time went     waiting for room 0.080 s, copying 0.32 s; then reading 1.00 s, hashing 2.00 s, "
      "encoding 4.00 s, writing 8.00 s, syncing 0.50 s, without a processor 0.000 s\n"
      "interval            102 s; best would be 10.0 min, with a failure every 24.0 h\n");
}

TEST_F(AfterFourCheckpoints, JsonHasTheSameFacts) {
  const std::string line = report_json(ledger_.costs(), context_);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["checkpoint_count"], 4);
  EXPECT_EQ(json["stored_bytes"], 4'000'000'000u);
  EXPECT_NEAR(json["overhead_share"].get<double>(), 0.021, 1e-9);
  EXPECT_NEAR(json["synchronous_seconds"].get<double>(), 20, 1e-9);
  EXPECT_EQ(json["checkpoints_max"], 81);
  EXPECT_EQ(json["encode_seconds"], 4);
  EXPECT_EQ(json["starved_seconds"], 0);
  EXPECT_EQ(json["effort"], "balanced");
  EXPECT_EQ(json["no_effort_count"], 4);
  EXPECT_EQ(json["late_effort_count"], 4);
  EXPECT_EQ(json["awaited_effort_count"], 0);
}

TEST_F(AfterFourCheckpoints, TheRunsTimeStandsStillAfterItsEnd) {
  ledger_.note_end();
  clock_.advance(1000);
  ledger_.note_end();
  EXPECT_DOUBLE_EQ(ledger_.costs().run_seconds, 408.4);
}

TEST(ReportOfARun, WithoutCheckpointsIsOneLineAndClaimsNothing) {
  ManualClock clock;
  const RunLedger ledger(clock);
  clock.advance(90);
  EXPECT_EQ(report_text(ledger.costs(), {}),
            "checkpoints         0 begun, 0 persistent, 0 skipped, 0 failed, in 90.0 s\n");
  const auto json = nlohmann::json::parse(report_json(ledger.costs(), {}));
  EXPECT_TRUE(json["best_interval_seconds"].is_null());
  EXPECT_TRUE(json["predicted_seconds"].is_null());
}

TEST(ReportOfARun, OfLentGridsKnowsNoBandwidthFromTheLittleThatWasCopied) {
  ManualClock clock;
  RunLedger ledger(clock);
  ledger.note_snapshot(
      {.bytes = 1'000'000'000, .copied_bytes = 200, .blocked_seconds = 0.0005, .copy_seconds = 0.0004});
  ledger.note_persistent(
      {.bytes = 1'000'000'000, .stored_bytes = 0, .seconds_to_persistent = 2, .seconds = 2, .processor_seconds = 1});
  clock.advance(100);
  EXPECT_FALSE(judge(ledger.costs(), {}).predicted_seconds.has_value());
  EXPECT_NE(report_text(ledger.costs(), {}).find("by the model      not known"), std::string::npos);
  const RunJudgement judgement = judge(ledger.costs(), {.memory_bytes_per_second = 10e9});
  EXPECT_NEAR(*judgement.predicted_seconds, 0.1, 1e-6) << "read once";
}

TEST(ReportOfARun, ThatFailedToWriteSaysSo) {
  ManualClock clock;
  RunLedger ledger(clock);
  ledger.note_snapshot({.bytes = 1000, .copied_bytes = 1000, .blocked_seconds = 0.1, .copy_seconds = 0.1});
  ledger.note_failed();
  ledger.note_blocked(1.4);
  clock.advance(100);
  const std::string text = report_text(ledger.costs(), {.mean_time_between_failures = 3600});
  EXPECT_NE(text.find("1 begun, 0 persistent, 0 skipped, 1 failed"), std::string::npos) << text;
  EXPECT_NE(text.find("program blocked     1.50 s"), std::string::npos) << text;
  EXPECT_EQ(text.find("time to persistent"), std::string::npos) << text;
}

}  // namespace
}  // namespace varve
