// The communicators of one process: the contract, and what only they promise.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/communicator_contract.h"
#include "comm/communicators.h"
#include "core/bytes.h"

namespace varve {

namespace {

void run_on_threads(uint32_t rank_count, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& ranks : make_thread_communicators(rank_count)) {
    threads.emplace_back([&body, mine = std::move(ranks)] { body(*mine); });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Every second of twice as many ranks, in the reverse order; the others do nothing.
void run_on_subset(uint32_t rank_count, const std::function<void(Communicator&)>& body) {
  std::vector<uint32_t> members;
  for (uint32_t member = 0; member < rank_count; ++member) members.push_back(2 * (rank_count - member) - 1);
  run_on_threads(2 * rank_count, [&](Communicator& parent) {
    if (parent.rank() % 2 == 0) return;
    auto subset = make_subset_communicator(parent, members, 40);
    ASSERT_TRUE(subset.ok()) << subset.status().to_string();
    EXPECT_EQ(members[(*subset)->rank()], parent.rank());
    body(**subset);
  });
}

/// What threads can gather, made a communicator again.
void run_on_gathering(uint32_t rank_count, const std::function<void(Communicator&)>& body) {
  run_on_threads(rank_count, [&](Communicator& threads) {
    auto ranks = make_gathering_communicator(threads.rank(), rank_count,
                                             [&threads](ByteSpan mine) { return threads.all_gather(mine); });
    ASSERT_TRUE(ranks.ok()) << ranks.status().to_string();
    body(**ranks);
  });
}

}  // namespace

std::vector<TestRanks> ranks_under_test() {
  std::vector<TestRanks> kinds;
  kinds.push_back({"single", [](const auto& body) { body(*make_single_communicator()); }});
  for (const uint32_t count : {1, 2, 3, 8}) {
    kinds.push_back({"threads_" + std::to_string(count), [count](const auto& body) { run_on_threads(count, body); }});
  }
  for (const uint32_t count : {1, 2, 5, 8}) {
    kinds.push_back({"subset_" + std::to_string(count), [count](const auto& body) { run_on_subset(count, body); }});
  }
  for (const uint32_t count : {1, 2, 5}) {
    kinds.push_back(
        {"gathering_" + std::to_string(count), [count](const auto& body) { run_on_gathering(count, body); }});
  }
  return kinds;
}

namespace {

TEST(ThreadCommunicator, LetsNoRankPassABarrierBeforeAllHaveReachedIt) {
  std::atomic<uint32_t> reached = 0;
  run_on_threads(4, [&reached](Communicator& ranks) {
    for (uint32_t round = 1; round <= 100; ++round) {
      ++reached;
      ASSERT_TRUE(ranks.barrier().ok());
      EXPECT_GE(reached.load(), round * 4);
      ASSERT_TRUE(ranks.barrier().ok());
    }
  });
}

TEST(ThreadCommunicator, FailsACollectiveCallForWhichARankNeverComes) {
  auto ranks = make_thread_communicators(3);
  std::thread first([&] { EXPECT_EQ(ranks[0]->barrier().code(), StatusCode::io_error); });
  std::thread second([&] { EXPECT_EQ(ranks[1]->all_gather({}).status().code(), StatusCode::io_error); });
  ranks[2].reset();
  first.join();
  second.join();
  uint64_t value = 1;
  EXPECT_EQ(ranks[0]->all_max(std::span(&value, 1)).code(), StatusCode::io_error);
  EXPECT_EQ(value, 1u);
}

TEST(ThreadCommunicator, FailsAllThatNeedsARankThatHasRevokedItAndItsOwnCalls) {
  auto ranks = make_thread_communicators(3);
  std::byte byte{};
  // Threads beside the program's, of the rank itself and of another one, which wait for messages.
  std::thread own([&] { EXPECT_EQ(ranks[1]->receive(0, 7, {&byte, 1}).code(), StatusCode::io_error); });
  std::thread other([&, into = std::byte{}]() mutable {
    EXPECT_EQ(ranks[0]->receive(1, 7, {&into, 1}).code(), StatusCode::io_error);
  });
  std::thread collective([&] { EXPECT_EQ(ranks[2]->barrier().code(), StatusCode::io_error); });
  ranks[1]->revoke();
  own.join();
  other.join();
  collective.join();
  EXPECT_EQ(ranks[1]->barrier().code(), StatusCode::io_error);
  EXPECT_EQ(ranks[0]->send(1, 7, {&byte, 1}).code(), StatusCode::io_error);
  EXPECT_TRUE(ranks[0]->send(2, 7, {&byte, 1}).ok()) << "of two that are there";
}

TEST(ThreadCommunicator, GivesAllRanksOfOneCallOneOutcomeEvenIfOneEndsRightAfterIt) {
  for (int round = 0; round < 200; ++round) {
    run_on_threads(3, [](Communicator& ranks) { EXPECT_TRUE(ranks.barrier().ok()); });
  }
}

TEST(ThreadCommunicator, DeliversWhatARankSentBeforeItEndedAndThenSaysSo) {
  auto ranks = make_thread_communicators(2);
  ASSERT_TRUE(ranks[1]->send(0, 9, as_bytes("last words")).ok());
  ranks[1].reset();
  ByteVector into(10);
  EXPECT_TRUE(ranks[0]->receive(1, 9, into).ok());
  EXPECT_EQ(as_text(into), "last words");
  EXPECT_EQ(ranks[0]->receive(1, 9, into).code(), StatusCode::io_error);
  EXPECT_EQ(ranks[0]->send(1, 9, into).code(), StatusCode::io_error);
}

TEST(ThreadCommunicator, WakesAReceiverWhoseSenderEnds) {
  auto ranks = make_thread_communicators(2);
  std::thread receiver([&] {
    ByteVector into(1);
    EXPECT_EQ(ranks[0]->receive(1, 0, into).code(), StatusCode::io_error);
  });
  ranks[1].reset();
  receiver.join();
}

TEST(ThreadCommunicator, NoticesThatRanksMakeDifferentCalls) {
  run_on_threads(2, [](Communicator& ranks) {
    const Status status = ranks.rank() == 0 ? ranks.barrier() : ranks.all_gather({}).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  });
  run_on_threads(2, [](Communicator& ranks) {
    std::vector<uint64_t> values(1 + ranks.rank());
    EXPECT_EQ(ranks.all_min(values).code(), StatusCode::invalid_argument);
  });
}

}  // namespace
}  // namespace varve
