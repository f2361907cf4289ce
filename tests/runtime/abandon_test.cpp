#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <mutex>

#include "core/sync.h"
#include "runtime/ranks.h"

// Ranks that give a session up after one of them has died, and go on in the same processes.

namespace varve {
namespace {

using test::run_ranks;
using test::SessionPlace;

constexpr uint64_t kCells = 10'007;

/// One rank's block of an array whose content depends on all steps before, and not on how it is divided.
class Block {
 public:
  Block(uint32_t rank, uint32_t rank_count)
      : begin_(kCells * rank / rank_count), cells_(kCells * (rank + 1) / rank_count - begin_) {
    for (uint64_t i = 0; i < cells_.size(); ++i) cells_[i] = static_cast<double>(begin_ + i);
  }
  Status protect(Session& session) {
    ArrayShape shape;
    shape.cells = {cells_.size()};
    shape.global_cells = {kCells};
    shape.global_offset = {begin_};
    VARVE_TRY(session.protect("cells", std::span(cells_), shape));
    return session.protect("sum", sum_);
  }
  void compute(uint64_t step) {
    for (double& cell : cells_) cell = 0.75 * cell + 1e-3 * static_cast<double>(step % 11);
    sum_ = sum_ * 31 + step;
  }
  void put(std::vector<double>& whole) const {
    std::copy(cells_.begin(), cells_.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin_));
  }
  uint64_t sum() const { return sum_; }

 private:
  uint64_t begin_;
  std::vector<double> cells_;
  uint64_t sum_ = 0;
};

struct WholeState {
  std::vector<double> cells = std::vector<double>(kCells);
  uint64_t sum = 0;
  bool operator==(const WholeState&) const = default;
};

/// What a run in peace comes to.
WholeState state_at(uint64_t steps) {
  Block all(0, 1);
  for (uint64_t step = 1; step <= steps; ++step) all.compute(step);
  WholeState state;
  all.put(state.cells);
  state.sum = all.sum();
  return state;
}

/// Sessions that ranks of this process have given up; they stay to the end, as those of a program may.
class GivenUp {
 public:
  void add(Session session) {
    const std::lock_guard lock(mutex_);
    sessions_.push_back(std::move(session));
  }

 private:
  std::mutex mutex_;
  std::vector<Session> sessions_;
};

Result<Session> open_block(std::unique_ptr<Communicator> ranks, const SessionOptions& options, Block& block) {
  VARVE_ASSIGN(Session session, Session::open(std::move(ranks), options));
  VARVE_TRY(block.protect(session));
  return session;
}

/// Computes to `last`, with a checkpoint at every second step, and gives the session up in the middle of a step.
void compute_and_give_up(uint32_t rank_count, const SessionOptions& options, uint64_t last, GivenUp& given_up) {
  // A rank that gives up while others are behind fails their checkpoints, and they are told: here all come so far.
  std::barrier all_have_come(static_cast<std::ptrdiff_t>(rank_count));
  run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    Block block(rank, rank_count);
    Result<Session> session = open_block(std::move(ranks), options, block);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const auto from = session->restart();
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    for (uint64_t step = from->value_or(0) + 1; step <= last; ++step) {
      block.compute(step);
      if (step % 2 != 0) continue;
      const Status made = session->checkpoint(step);
      ASSERT_TRUE(made.ok()) << made.to_string();
    }
    block.compute(last + 1);
    all_have_come.arrive_and_wait();
    EXPECT_TRUE(session->abandon().ok());
    EXPECT_EQ(session->checkpoint(last + 2).code(), StatusCode::invalid_argument);
    EXPECT_TRUE(session->finish().ok());
    given_up.add(std::move(*session));
  });
}

SessionOptions mostly_in_memory(const SessionPlace& place) {
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "memory; dir:" + place.store + " every=4";
  options.when_busy = WhenBusy::two_slots;
  return options;
}

TEST(AnAbandonedSession, IsGoneOnFromInMemoryByTheRanksThatAreLeft) {
  for (const auto& [before, after] : {std::pair(8u, 7u), {3u, 2u}, {4u, 4u}, {2u, 1u}}) {
    SCOPED_TRACE(before);
    const SessionPlace place;
    const SessionOptions options = mostly_in_memory(place);
    GivenUp given_up;
    compute_and_give_up(before, options, 6, given_up);
    EXPECT_GT(place.memory_files(), 0u) << "nothing is left to go on from";
    WholeState reached;
    run_ranks(after, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      Block block(rank, after);
      Result<Session> session = open_block(std::move(ranks), options, block);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const auto points = session->restart_points();
      ASSERT_TRUE(points.ok() && !points->empty());
      EXPECT_EQ(points->front().place, "memory");
      EXPECT_EQ(points->front().rank_count, before);
      const auto from = session->restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      ASSERT_EQ(*from, 6u);
      for (uint64_t step = 7; step <= 11; ++step) {
        block.compute(step);
        if (step % 2 != 0) continue;
        const Status made = session->checkpoint(step);
        EXPECT_TRUE(made.ok()) << made.to_string();
      }
      block.put(reached.cells);
      if (rank == 0) reached.sum = block.sum();
      EXPECT_TRUE(session->finish().ok());
    });
    EXPECT_EQ(reached, state_at(11));
    EXPECT_EQ(place.memory_files(), 0u) << "of the run that was given up, or the one after it";
  }
}

TEST(AnAbandonedSession, MayBeFollowedByOneThatIsAbandonedToo) {
  const SessionPlace place;
  const SessionOptions options = mostly_in_memory(place);
  GivenUp given_up;
  uint64_t last = 4;
  for (const uint32_t rank_count : {6u, 5u, 4u, 3u}) {
    compute_and_give_up(rank_count, options, last, given_up);
    if (HasFailure()) return;
    last += 2;
  }
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    Block block(rank, 2);
    Result<Session> session = open_block(std::move(ranks), options, block);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const auto from = session->restart();
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(*from, last - 2);
    EXPECT_TRUE(session->finish().ok());
  });
  EXPECT_EQ(place.memory_files(), 0u);
}

TEST(AnAbandonedSession, KeepsTheJobAsLongAsOneRankHasNotGivenItUp) {
  const SessionPlace place;
  const SessionOptions options = mostly_in_memory(place);
  std::atomic<uint32_t> gone = 0;
  std::atomic<bool> looked = false;
  run_ranks(3, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    Block block(rank, 3);
    Result<Session> session = open_block(std::move(ranks), options, block);
    ASSERT_TRUE(session.ok() && session->restart().ok() && session->checkpoint(1).ok());
    if (rank == 2) {
      while (!looked) std::this_thread::yield();
      EXPECT_TRUE(session->abandon().ok());
      return;
    }
    EXPECT_TRUE(session->abandon().ok());
    ++gone;
    if (rank != 0) return;
    while (gone < 2) std::this_thread::yield();
    EXPECT_EQ(Session::open(options).status().code(), StatusCode::busy);
    looked = true;
  });
  const auto free = Session::open(options);
  EXPECT_TRUE(free.ok()) << free.status().to_string();
}

/// Groups of a set whose last part never comes, and ranks that wait for each other: nobody waits for who is gone.
TEST(AnAbandonedSession, WaitsForNobody) {
  const SessionPlace place;
  SessionOptions options = place.options();
  options.group = "rank";
  options.when_busy = WhenBusy::two_slots;
  options.wait_limit = 3600;
  GivenUp given_up;
  const Moment begin = MonotonicClock::now();
  run_ranks(8, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    Block block(rank, 8);
    Result<Session> session = open_block(std::move(ranks), options, block);
    ASSERT_TRUE(session.ok() && session->restart().ok());
    block.compute(1);
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    block.compute(2);
    if (rank == 3) {
      // It "dies": the others are in a collective call by now, or on their way there.
      EXPECT_TRUE(session->abandon().ok());
      given_up.add(std::move(*session));
      return;
    }
    EXPECT_TRUE(session->checkpoint(2).ok());
    EXPECT_EQ(session->wait().code(), StatusCode::io_error);
    EXPECT_TRUE(session->abandon().ok());
    given_up.add(std::move(*session));
  });
  WholeState reached;
  run_ranks(7, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    Block block(rank, 7);
    Result<Session> session = open_block(std::move(ranks), options, block);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const auto from = session->restart();
    ASSERT_TRUE(from.ok()) << from.status().to_string();
    ASSERT_EQ(*from, 1u) << "of step 2 one rank has nothing";
    block.compute(2);
    block.put(reached.cells);
    if (rank == 0) reached.sum = block.sum();
    EXPECT_TRUE(session->checkpoint(2, Persistence::now).ok());
    EXPECT_TRUE(session->finish().ok());
  });
  EXPECT_EQ(reached, state_at(2));
  EXPECT_LT(MonotonicClock::now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace varve
