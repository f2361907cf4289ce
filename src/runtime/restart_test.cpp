#include "runtime/restart.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

namespace varve {
namespace {

UniqueId run(uint8_t number) {
  UniqueId id;
  id.bytes[0] = std::byte{number};
  return id;
}

using Memory = std::vector<MemoryStep>;
using Candidates = std::vector<RestartCandidate>;

/// Of which no numbers are known.
std::vector<StoredStep> sets(const std::vector<uint64_t>& steps) {
  std::vector<StoredStep> all;
  for (const uint64_t step : steps) all.push_back({.step = step});
  return all;
}
std::vector<StoreSteps> in_store(const std::vector<uint64_t>& steps) { return {{sets(steps)}}; }

/// What memory candidates compare with.
RestartCandidate in_memory(uint64_t step, const UniqueId& of_run) { return {step, of_run, 0, "memory", 0, 2, {}}; }

/// A set of which nothing but its step is known.
RestartCandidate unread(uint64_t step) {
  RestartCandidate set{step, {}};
  set.is_known = false;
  return set;
}

TEST(RestartCandidates, AreNewestFirstAndMemoryBeforeTheStore) {
  const Memory memory = {{run(1), 7, 2, 0}, {run(1), 9, 2, 0}, {run(1), 9, 2, 1}, {run(1), 7, 2, 1}};
  EXPECT_EQ(restart_candidates(memory, in_store({5, 7, 8})),
            (Candidates{in_memory(9, run(1)), unread(8), in_memory(7, run(1)), unread(7), unread(5)}));
}

TEST(RestartCandidates, InMemoryAreOnesOfWhichTheNodesHaveAllRanksOfTheSameRun) {
  EXPECT_EQ(restart_candidates({{run(1), 9, 2, 0}}, in_store({5})), (Candidates{unread(5)}));
  EXPECT_EQ(restart_candidates({{run(1), 9, 2, 0}, {run(1), 9, 2, 0}}, in_store({5})), (Candidates{unread(5)}));
  EXPECT_EQ(restart_candidates({{run(1), 9, 2, 0}, {run(2), 9, 2, 1}}, in_store({5})), (Candidates{unread(5)}));
  EXPECT_EQ(restart_candidates({{run(1), 9, 2, 0}, {run(1), 8, 2, 1}}, in_store({})), Candidates{});
  EXPECT_EQ(restart_candidates({{run(1), 9, 2, 1}, {run(1), 9, 2, 7}}, in_store({})), Candidates{});
}

TEST(RestartCandidates, AreInTheOrderInWhichTheyWereMadeWhereARunHasGoneBack) {
  const std::vector<StoreSteps> stores = {{{{5, 5}, {6, 8}, {7, 9}, {10, 7}}}};
  std::vector<uint64_t> order;
  for (const RestartCandidate& candidate : restart_candidates({{run(1), 8, 1, 0}}, stores))
    order.push_back(candidate.step);
  EXPECT_EQ(order, (std::vector<uint64_t>{8, 7, 6, 10, 5}));
}

TEST(RestartCandidates, OfOneStepAreTheNearestFirst) {
  const std::vector<StoreSteps> stores = {{sets({7, 8}), "near", 0}, {sets({5, 7, 9}), "far", 1}};
  std::vector<std::string> order;
  for (const RestartCandidate& candidate : restart_candidates({{run(1), 7, 1, 0}}, stores))
    order.push_back(candidate.to_string());
  EXPECT_EQ(order, (std::vector<std::string>{"step 9 in far", "step 8 in near", "step 7 in memory", "step 7 in near",
                                             "step 7 in far", "step 5 in far"}));
}

TEST(RestartCandidates, InMemoryAreNotTheSetOfTheSameStepThatAnotherRunHasMade) {
  Memory memory = {{run(1), 7, 1, 0, run(2), 9}};
  std::vector<StoreSteps> stores = {{{{.step = 7, .number = 7, .made_by = run(1)}, {.step = 8, .number = 8}}}};
  Candidates candidates = restart_candidates(memory, stores);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_TRUE(candidates[0].memory_run);
  EXPECT_FALSE(candidates[0].is_same_checkpoint(candidates[2]));
  EXPECT_FALSE(RestartSelection({.older_than = candidates[1]}).admits(candidates[0]));
  // Its own set is the same, though a drain may have given it another number.
  stores[0].steps[0] = {.step = 7, .number = 10, .made_by = run(2)};
  candidates = restart_candidates(memory, stores);
  EXPECT_TRUE(candidates[0].is_same_checkpoint(candidates[1]));
  // As it could have been the next set, it is older than a later one of its number.
  stores[0].steps[0] = {.step = 8, .number = 9, .made_by = run(2)};
  candidates = restart_candidates(memory, stores);
  EXPECT_EQ(candidates[0].step, 8u);
  EXPECT_TRUE(candidates[1].memory_run);
}

TEST(RestartCandidates, InMemoryAreNotASetOfWhichNobodyKnowsWhoMadeIt) {
  const std::vector<StoreSteps> stores = {{{{.step = 7, .number = 9}}}};
  const Candidates candidates = restart_candidates({{run(1), 7, 1, 0, run(1), 9}}, stores);
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_TRUE(candidates[0].memory_run);
  EXPECT_FALSE(candidates[0].is_same_checkpoint(candidates[1]));
}

TEST(RestartCandidates, InMemoryAreNotASetOfWhichNothingCanBeRead) {
  const Candidates candidates = restart_candidates({{run(1), 7, 1, 0, run(1), 9}}, in_store({7}));
  ASSERT_EQ(candidates.size(), 2u);
  EXPECT_TRUE(candidates[0].memory_run);
  EXPECT_FALSE(candidates[0].is_same_checkpoint(candidates[1]));
}

/// What a rank finds and does, as a test wants them.
struct FakeSide final : RestartSide {
  std::map<uint64_t, Status> outcome_of, glance_of;
  std::optional<uint32_t> level_damaged;
  uint32_t loads = 0;
  Status finish_outcome;
  std::optional<uint64_t> looked, loaded;
  std::map<uint64_t, SetOrigin> origin_of;

  Status look(const RestartCandidate& candidate) override {
    looked = candidate.step;
    if (level_damaged == candidate.level) return Status::corrupt("damaged at this level");
    return glance_of[candidate.step];
  }
  Status load() override {
    ++loads;
    loaded.reset();
    return outcome_of[*looked];
  }
  std::optional<SetOrigin> origin() const override {
    const auto found = origin_of.find(looked.value_or(0));
    return found == origin_of.end() ? std::nullopt : std::optional(found->second);
  }
  std::map<uint64_t, Status> mending_of;  ///< of those that can be mended: what comes of it
  uint32_t mendings = 0;
  bool mends_something = true;
  Result<bool> mend(const RestartCandidate& candidate) override {
    ++mendings;
    const auto found = mending_of.find(candidate.step);
    if (found == mending_of.end()) return Status::corrupt("nobody has it");
    VARVE_TRY(found->second);
    outcome_of[candidate.step] = glance_of[candidate.step] = {};
    return mends_something;
  }
  Status finish() override {
    if (finish_outcome.ok()) loaded = looked;
    return finish_outcome;
  }
};

struct Outcome {
  std::vector<FakeSide> sides;
  std::vector<Result<RestartDecision>> decisions;
};

Outcome restart(uint32_t rank_count, const Candidates& candidates,
                const std::function<void(uint32_t rank, FakeSide&)>& prepare) {
  Outcome outcome{std::vector<FakeSide>(rank_count),
                  std::vector<Result<RestartDecision>>(rank_count, Status::internal("not done"))};
  auto ranks = make_thread_communicators(rank_count);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    prepare(rank, outcome.sides[rank]);
    threads.emplace_back(
        [&, rank] { outcome.decisions[rank] = restart_from_newest(*ranks[rank], candidates, outcome.sides[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

const Candidates kThree = {{30, {}}, {20, {}}, {10, {}}};

TEST(Restart, TakesTheNewestIfAllRanksCan) {
  const Outcome outcome = restart(4, kThree, [](uint32_t, FakeSide&) {});
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(outcome.decisions[rank].value().taken->step, 30u);
    EXPECT_TRUE(outcome.decisions[rank].value().warnings.empty());
    EXPECT_EQ(outcome.sides[rank].loaded, 30u);
  }
}

TEST(Restart, OfAllRanksFallsBackTogetherAndSaysWhatWasWrongWhere) {
  const Outcome outcome = restart(4, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 2) side.outcome_of[30] = Status::corrupt("a chunk is damaged", "job@30");
    if (rank == 3) side.outcome_of[20] = Status::not_found("an arena is missing");
  });
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const RestartDecision& decision = outcome.decisions[rank].value();
    EXPECT_EQ(decision.taken->step, 10u);
    EXPECT_EQ(outcome.sides[rank].loaded, 10u);
    EXPECT_EQ(decision.passed_over, (Candidates{{30, {}}, {20, {}}}));
    ASSERT_EQ(decision.warnings.size(), 2u);
    EXPECT_NE(decision.warnings[0].to_string().find("rank 2"), std::string::npos);
    EXPECT_NE(decision.warnings[0].to_string().find("step 30"), std::string::npos);
    EXPECT_NE(decision.warnings[1].to_string().find("rank 3"), std::string::npos);
  }
}

TEST(Restart, DoesNotTakeForDamagedWhatOnlyCannotBeRead) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 1) side.outcome_of[30] = Status::io_error("read: bad disk");
    if (rank == 1) side.outcome_of[20] = Status::io_error("read: bad disk");
    if (rank == 2) side.outcome_of[20] = Status::corrupt("a chunk is damaged");
  });
  for (const Result<RestartDecision>& decision : outcome.decisions) {
    EXPECT_EQ(decision.value().taken->step, 10u);
    EXPECT_EQ(decision.value().unreadable, (Candidates{{30, {}}}));
    EXPECT_EQ(decision.value().damaged, (Candidates{{20, {}}})) << "damaged on one rank is damaged";
  }
}

TEST(Restart, SaysThatThereMayBeWholeCheckpointsIfSomeCannotBeRead) {
  const Outcome outcome = restart(2, {{30, {}}}, [](uint32_t rank, FakeSide& side) {
    if (rank == 1) side.outcome_of[30] = Status::io_error("read: bad disk");
  });
  for (const auto& decision : outcome.decisions) EXPECT_EQ(decision.status().code(), StatusCode::io_error);
}

TEST(Restart, ReadsNothingOfWhatAnotherRankLacks) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 1) side.glance_of[30] = Status::not_found("there is no such set on this node");
  });
  for (uint32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(outcome.decisions[rank].value().taken->step, 20u);
    EXPECT_EQ(outcome.decisions[rank].value().damaged, (Candidates{{30, {}}}));
    EXPECT_EQ(outcome.sides[rank].loads, 1u);
  }
}

TEST(Restart, MendsWhatIsDamagedBeforeItFallsBackToAnOlderStep) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 1) side.outcome_of[30] = Status::corrupt("damaged");
    side.mending_of[30] = {};
  });
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const RestartDecision& decision = outcome.decisions[rank].value();
    EXPECT_EQ(decision.taken->step, 30u);
    EXPECT_EQ(decision.mended, (Candidates{{30, {}}}));
    EXPECT_TRUE(decision.damaged.empty());
    ASSERT_EQ(decision.warnings.size(), 2u);
    EXPECT_NE(decision.warnings[1].to_string().find("mended"), std::string::npos);
    EXPECT_EQ(outcome.sides[rank].loaded, 30u);
  }
}

TEST(Restart, TakesNothingThatIsMendedOnSomeRanksOnly) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    side.outcome_of[30] = Status::corrupt("damaged");
    side.mending_of[30] = rank == 2 ? Status::corrupt("nobody has it") : Status();
  });
  for (const auto& decision : outcome.decisions) {
    EXPECT_EQ(decision.value().taken->step, 20u);
    EXPECT_TRUE(decision.value().mended.empty());
    EXPECT_EQ(decision.value().damaged, (Candidates{{30, {}}}));
  }
}

TEST(Restart, MendsTheNearerSetAfterItHasTakenTheFartherOne) {
  const Candidates two = {{30, {}, 0, "near"}, {30, {}, 1, "far"}, {20, {}}};
  Outcome outcome = restart(2, two, [](uint32_t, FakeSide& side) {
    side.level_damaged = 0;
    side.mending_of[30] = {};
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const RestartDecision& decision = outcome.decisions[rank].value();
    EXPECT_EQ(decision.taken, two[1]);
    EXPECT_EQ(decision.mended, (Candidates{two[0]}));
    EXPECT_EQ(outcome.sides[rank].mendings, 1u);
    EXPECT_TRUE(decision.damaged.empty());
  }
  // What is lacking lies on nodes that this run has not: what protects the set is to stay.
  outcome = restart(2, two, [](uint32_t, FakeSide& side) {
    side.level_damaged = 0;
    side.mending_of[30] = {};
    side.mends_something = false;
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const RestartDecision& decision = outcome.decisions[rank].value();
    EXPECT_EQ(decision.taken, two[1]);
    EXPECT_TRUE(decision.mended.empty());
    EXPECT_EQ(decision.damaged, (Candidates{two[0]}));
  }
}

TEST(Restart, DoesNotMixWhatDifferentRunsMade) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    side.origin_of[30] = {run(rank == 1 ? 2 : 1), 3};
    side.origin_of[20] = {run(1), 3};
  });
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const RestartDecision& decision = outcome.decisions[rank].value();
    EXPECT_EQ(decision.taken->step, 20u);
    EXPECT_EQ(decision.damaged, (Candidates{{30, {}}}));
    ASSERT_EQ(decision.warnings.size(), 1u);
    EXPECT_NE(decision.warnings[0].to_string().find("different runs"), std::string::npos);
  }
}

TEST(Restart, FailsOnAllRanksAndTouchesNothingIfOneRefuses) {
  const Outcome outcome = restart(3, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 0) side.glance_of[30] = Status::corrupt("damaged");
    if (rank == 1) side.glance_of[20] = Status::invalid_argument("'density' has another size");
  });
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const Status& refused = outcome.decisions[rank].status();
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
    EXPECT_EQ(refused.to_string().find("neither old nor new"), std::string::npos);
    EXPECT_EQ(outcome.sides[rank].loads, 0u);
  }
}

TEST(Restart, SaysSoIfWhatIsProtectedIsWrittenWhenItFails) {
  const Outcome outcome = restart(2, {{30, {}}, {20, {}}}, [](uint32_t rank, FakeSide& side) {
    if (rank == 0) side.outcome_of[30] = Status::corrupt("damaged");
    side.glance_of[20] = Status::corrupt("damaged, too");
  });
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const Status& failed = outcome.decisions[rank].status();
    EXPECT_EQ(failed.code(), StatusCode::corrupt);
    EXPECT_NE(failed.to_string().find("neither old nor new"), std::string::npos);
    EXPECT_FALSE(outcome.sides[rank].loaded);
  }
}

TEST(Restart, FailsIfThereAreCheckpointsButNoneIsWhole) {
  const Outcome outcome =
      restart(2, {{30, {}}}, [](uint32_t, FakeSide& side) { side.outcome_of[30] = Status::corrupt("damaged"); });
  EXPECT_EQ(outcome.decisions[0].status().code(), StatusCode::corrupt);
  EXPECT_EQ(outcome.decisions[1].status().code(), StatusCode::corrupt);
}

TEST(Restart, FailsOnAllRanksIfOneCannotTakeOverWhatAllHaveLoaded) {
  const Outcome outcome = restart(2, kThree, [](uint32_t rank, FakeSide& side) {
    if (rank == 1) side.finish_outcome = Status::io_error("the disk went away");
  });
  EXPECT_EQ(outcome.decisions[0].status().code(), StatusCode::io_error);
  EXPECT_EQ(outcome.decisions[1].status().code(), StatusCode::io_error);
}

TEST(Restart, FindsNothingWhereThereIsNothing) {
  const Outcome outcome = restart(2, {}, [](uint32_t, FakeSide&) {});
  EXPECT_FALSE(outcome.decisions[0].value().taken);
  EXPECT_FALSE(outcome.decisions[1].value().taken);
}

}  // namespace
}  // namespace varve
