// No shortage of memory ends a program, or has ranks wait for one that cannot go on: one of two finds no memory at each
// of its allocations in turn.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "comm/communicators.h"
#include "count/counted_heap.h"
#include "varve/session.h"

namespace varve::count {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint64_t kCells = 6000;

/// A rank's part of an array whose cells hold their ordinals, and the step added.
struct Program {
  Program(uint32_t rank, uint32_t rank_count) : first(kCells * rank / rank_count) {
    field.resize(kCells * (rank + 1) / rank_count - first);
    set(0);
  }
  void set(uint64_t step) { std::iota(field.begin(), field.end(), static_cast<double>(first + 1000 * step)); }
  bool is(uint64_t step) const {
    for (size_t i = 0; i < field.size(); ++i) {
      if (field[i] != static_cast<double>(first + 1000 * step + i)) return false;
    }
    return true;
  }
  Status protect(Session& session) {
    return session.protect("field", std::span<double>(field),
                           ArrayShape{.cells = {field.size()}, .global_cells = {kCells}, .global_offset = {first}});
  }
  uint64_t first;
  std::vector<double> field;
  uint64_t loaded = 0;  ///< the step from which it goes on
};

class RefusedMemory : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& folder : {folder_, memory_}) std::filesystem::create_directories(folder);
    // Two checkpoints, of which there may be more.
    play(kRanks, [](Session& session, Program& program, uint32_t) {
      ASSERT_FALSE(session.restart().value());
      for (const uint64_t step : {1, 2}) {
        program.set(step);
        ASSERT_TRUE(session.checkpoint(step, Persistence::now).ok());
      }
      ASSERT_TRUE(session.finish().ok());
    });
  }
  void TearDown() override {
    for (const std::string& folder : {folder_, memory_}) std::filesystem::remove_all(folder);
  }

  SessionOptions options() const {
    SessionOptions options;
    options.store = folder_ + "/store";
    options.job = "job";
    options.shared_memory = memory_;
    options.stop_on_signals = false;
    options.print_warnings = false;
    options.timeline = "none";
    options.wait_limit = 2;
    return options;
  }

  /// A run by so many ranks, each in a thread, that do this.
  void play(uint32_t rank_count, const std::function<void(Session&, Program&, uint32_t rank)>& act) {
    auto ranks = make_thread_communicators(rank_count);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < rank_count; ++rank) {
      threads.emplace_back([&, rank] {
        Result<Session> session = Session::open(std::move(ranks[rank]), options());
        ASSERT_TRUE(session.ok()) << session.status().to_string();
        Program program(rank, rank_count);
        ASSERT_TRUE(program.protect(*session).ok());
        act(*session, program, rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Rank 1 runs short after so many allocations of `act`, and stays until all others are back from it, too: whether it
  /// did run short. Before that, all go on from the same step.
  bool run_short(uint32_t rank_count, uint64_t allocations, const std::function<Status(Session&, Program&)>& before,
                 const std::function<Status(Session&, Program&)>& act) {
    SCOPED_TRACE(fmt::format("{} ranks, {} allocations", rank_count, allocations));
    bool ran_short = false;
    std::atomic<uint32_t> back = 0;
    std::vector<uint64_t> loaded(rank_count);
    play(rank_count, [&](Session& session, Program& program, uint32_t rank) {
      ASSERT_TRUE(before(session, program).ok());
      loaded[rank] = program.loaded;
      if (rank == 1) HeapOfThread::run_short_after(allocations);
      const Status outcome = act(session, program);
      if (rank == 1) ran_short = HeapOfThread::has_run_short();
      const StatusCode code = outcome.code();
      EXPECT_TRUE(code == StatusCode::ok || code == StatusCode::resource_limit || code == StatusCode::io_error)
          << outcome.to_string();
      ++back;
      if (rank != 1) return;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (back < rank_count && std::chrono::steady_clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(back, rank_count) << "others wait for this rank: " << outcome.to_string();
    });
    EXPECT_EQ(std::set<uint64_t>(loaded.begin(), loaded.end()).size(), 1u);
    return ran_short;
  }

  const std::string folder_ = fmt::format("/tmp/varve_refused_memory_test.{}", ::getpid());
  const std::string memory_ = fmt::format("/dev/shm/varve_refused_memory_test.{}", ::getpid());
};

Status nothing(Session&, Program&) { return {}; }

/// What is loaded is what was saved.
Status restart(Session& session, Program& program) {
  const Result<std::optional<uint64_t>> step = session.restart();
  VARVE_TRY(step.status());
  EXPECT_TRUE(*step && program.is(**step));
  program.loaded = step->value_or(0);
  return {};
}

Status restart_from_the_second(Session& session, Program& program) {
  VARVE_TRY(restart(session, program));
  EXPECT_EQ(program.loaded, 2u) << "nothing is wrong with it";
  return {};
}

TEST_F(RefusedMemory, OfOneRankLetsNoOtherWaitAtARestart) {
  for (const uint32_t rank_count : {kRanks, kRanks + 1}) {
    uint64_t allocations = 0;
    while (run_short(rank_count, allocations, nothing, restart_from_the_second) && !HasFailure()) ++allocations;
    EXPECT_GT(allocations, 50u);
  }
}

TEST_F(RefusedMemory, OfOneRankLetsNoOtherWaitAtACheckpointAndTheNextRunGoesOn) {
  uint64_t allocations = 0;
  const auto checkpoint = [](Session& session, Program& program) {
    program.set(program.loaded + 1);
    return session.checkpoint(program.loaded + 1, Persistence::now);
  };
  while (run_short(kRanks, allocations, restart, checkpoint) && !HasFailure()) ++allocations;
  EXPECT_GT(allocations, 10u);
  play(kRanks, [](Session& session, Program& program, uint32_t) { EXPECT_TRUE(restart(session, program).ok()); });
}

}  // namespace
}  // namespace varve::count
