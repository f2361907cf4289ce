#include "comm/communicator_contract.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "core/bytes.h"

namespace varve {
namespace {

/// Bytes that tell which rank made them, and for which round.
ByteVector bytes_of(uint32_t rank, uint32_t round, size_t count) {
  std::mt19937 random(rank * 1000 + round);
  ByteVector bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class CommunicatorContract : public testing::TestWithParam<TestRanks> {
 protected:
  void on_all_ranks(const std::function<void(Communicator&)>& body) { GetParam().run(body); }
};

TEST_P(CommunicatorContract, GivesEveryRankANumberOfItsOwn) {
  on_all_ranks([](Communicator& ranks) {
    ASSERT_LT(ranks.rank(), ranks.rank_count());
    const uint64_t mine = ranks.rank();
    auto all = ranks.all_gather(std::as_bytes(std::span(&mine, 1)));
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    ASSERT_EQ(all->size(), ranks.rank_count());
    for (uint32_t rank = 0; rank < ranks.rank_count(); ++rank) {
      EXPECT_EQ(load_le<uint64_t>((*all)[rank].data()), rank);
    }
  });
}

TEST_P(CommunicatorContract, GathersBytesOfDifferentLengthsByRank) {
  on_all_ranks([](Communicator& ranks) {
    for (uint32_t round = 0; round < 20; ++round) {
      const auto count = [&](uint32_t rank) { return (rank + round) % 4 * 1001; };  // nothing from some
      auto all = ranks.all_gather(bytes_of(ranks.rank(), round, count(ranks.rank())));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      ASSERT_EQ(all->size(), ranks.rank_count());
      for (uint32_t rank = 0; rank < ranks.rank_count(); ++rank) {
        EXPECT_EQ((*all)[rank], bytes_of(rank, round, count(rank)));
      }
    }
  });
}

TEST_P(CommunicatorContract, GathersNothingAtAll) {
  on_all_ranks([](Communicator& ranks) {
    auto all = ranks.all_gather({});
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    EXPECT_EQ(*all, std::vector<ByteVector>(ranks.rank_count()));
  });
}

TEST_P(CommunicatorContract, BroadcastsWhatTheRootGaveAndNothingElse) {
  on_all_ranks([](Communicator& ranks) {
    for (uint32_t root = 0; root < ranks.rank_count(); ++root) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{100'003}}) {
        auto given = ranks.broadcast(bytes_of(ranks.rank(), 7, ranks.rank() == root ? count : 5), root);
        ASSERT_TRUE(given.ok()) << given.status().to_string();
        EXPECT_EQ(*given, bytes_of(root, 7, count));
      }
    }
  });
}

TEST_P(CommunicatorContract, FindsTheSmallestAndTheLargestOfEachElement) {
  on_all_ranks([](Communicator& ranks) {
    const uint64_t rank = ranks.rank(), last = ranks.rank_count() - 1;
    for (uint64_t step = 0; step < 50; ++step) {
      std::vector<uint64_t> smallest = {rank + step, last - rank, ~uint64_t{0} - rank, 0};
      std::vector<uint64_t> largest = smallest;
      ASSERT_TRUE(ranks.all_min(smallest).ok());
      ASSERT_TRUE(ranks.all_max(largest).ok());
      EXPECT_EQ(smallest, (std::vector<uint64_t>{step, 0, ~uint64_t{0} - last, 0}));
      EXPECT_EQ(largest, (std::vector<uint64_t>{last + step, last, ~uint64_t{0}, 0}));
    }
    EXPECT_TRUE(ranks.all_min({}).ok());
  });
}

TEST_P(CommunicatorContract, ReducesInTwoCallsWithOthersInBetween) {
  on_all_ranks([](Communicator& ranks) {
    for (uint64_t round = 0; round < 20; ++round) {
      std::vector<uint64_t> values{ranks.rank() + round, 7, 100 - ranks.rank()};
      ASSERT_TRUE(ranks.begin_all_max(values).ok());
      std::vector<uint64_t> least{ranks.rank() + 3};
      ASSERT_TRUE(ranks.all_min(least).ok());
      ASSERT_TRUE(ranks.barrier().ok());
      ASSERT_TRUE(ranks.finish_all_max(values).ok());
      EXPECT_EQ(least, std::vector<uint64_t>{3});
      EXPECT_EQ(values, (std::vector<uint64_t>{ranks.rank_count() - 1 + round, 7, 100}));
    }
    std::vector<uint64_t> many(100'000, ranks.rank());
    ASSERT_TRUE(ranks.begin_all_max(many).ok());
    ASSERT_TRUE(ranks.finish_all_max(many).ok());
    EXPECT_EQ(many, std::vector<uint64_t>(many.size(), ranks.rank_count() - 1));
  });
}

TEST_P(CommunicatorContract, ReducesManyValues) {
  on_all_ranks([](Communicator& ranks) {
    std::vector<uint64_t> values(10'007);
    std::iota(values.begin(), values.end(), ranks.rank());
    ASSERT_TRUE(ranks.all_max(values).ok());
    EXPECT_EQ(values.front(), ranks.rank_count() - 1);
    EXPECT_EQ(values.back(), 10'006 + ranks.rank_count() - 1);
  });
}

TEST_P(CommunicatorContract, LetsNoRankPassABarrierBeforeAllHaveReachedIt) {
  on_all_ranks([](Communicator& ranks) {
    for (int round = 0; round < 20; ++round) ASSERT_TRUE(ranks.barrier().ok());
  });
}

TEST_P(CommunicatorContract, RefusesRanksThatDoNotExist) {
  on_all_ranks([](Communicator& ranks) {
    EXPECT_EQ(ranks.broadcast({}, ranks.rank_count()).status().code(), StatusCode::invalid_argument);
    if (!ranks.concurrent()) return;
    EXPECT_EQ(ranks.send(ranks.rank_count(), 0, {}).code(), StatusCode::invalid_argument);
    EXPECT_EQ(ranks.receive(ranks.rank_count(), 0, {}).code(), StatusCode::invalid_argument);
  });
}

/// The rank behind this one, and the one before, round and round.
uint32_t next_rank(const Communicator& ranks) { return (ranks.rank() + 1) % ranks.rank_count(); }
uint32_t previous_rank(const Communicator& ranks) {
  return (ranks.rank() + ranks.rank_count() - 1) % ranks.rank_count();
}

TEST_P(CommunicatorContract, RefusesMessagesUnlessItIsConcurrent) {
  on_all_ranks([](Communicator& ranks) {
    if (ranks.concurrent()) return;
    EXPECT_EQ(ranks.send(next_rank(ranks), 0, {}).code(), StatusCode::unsupported);
    EXPECT_EQ(ranks.receive(previous_rank(ranks), 0, {}).code(), StatusCode::unsupported);
  });
}

TEST_P(CommunicatorContract, DeliversTheMessagesOfATagInOrder) {
  on_all_ranks([](Communicator& ranks) {
    if (!ranks.concurrent()) return;
    // Sending may wait for the receiver, so it has a thread of its own.
    std::thread sender([&ranks] {
      for (uint32_t i = 0; i < 50; ++i) {
        EXPECT_TRUE(ranks.send(next_rank(ranks), 5, bytes_of(ranks.rank(), i, i * 100)).ok());
      }
    });
    for (uint32_t i = 0; i < 50; ++i) {
      ByteVector into(i * size_t{100});
      EXPECT_TRUE(ranks.receive(previous_rank(ranks), 5, into).ok());
      EXPECT_EQ(into, bytes_of(previous_rank(ranks), i, i * 100));
    }
    sender.join();
  });
}

TEST_P(CommunicatorContract, KeepsTagsApart) {
  on_all_ranks([](Communicator& ranks) {
    if (!ranks.concurrent()) return;
    std::vector<std::thread> senders;
    for (const uint32_t tag : {1u, 32'767u}) {
      senders.emplace_back(
          [&ranks, tag] { EXPECT_TRUE(ranks.send(next_rank(ranks), tag, bytes_of(ranks.rank(), tag, 70'000)).ok()); });
    }
    for (const uint32_t tag : {32'767u, 1u}) {
      ByteVector into(70'000);
      EXPECT_TRUE(ranks.receive(previous_rank(ranks), tag, into).ok());
      EXPECT_EQ(into, bytes_of(previous_rank(ranks), tag, 70'000));
    }
    for (std::thread& sender : senders) sender.join();
  });
}

TEST_P(CommunicatorContract, NoticesAMessageOfAnotherSizeAndGoesOnWithTheNext) {
  on_all_ranks([](Communicator& ranks) {
    if (!ranks.concurrent()) return;
    const std::vector<size_t> sent = {10, 30, 4096, 8192, 12'288, 0, 20};
    std::thread sender([&] {
      for (const size_t count : sent) {
        EXPECT_TRUE(ranks.send(next_rank(ranks), 3, bytes_of(ranks.rank(), 1, count)).ok());
      }
    });
    for (const size_t count : sent) {
      ByteVector into(20);
      const Status status = ranks.receive(previous_rank(ranks), 3, into);
      EXPECT_EQ(status.code(), count == 20 ? StatusCode::ok : StatusCode::corrupt) << count;
      if (count == 20) {
        EXPECT_EQ(into, bytes_of(previous_rank(ranks), 1, 20));
      }
    }
    sender.join();
  });
}

TEST_P(CommunicatorContract, SendsAndReceivesBesideCollectiveCalls) {
  on_all_ranks([](Communicator& ranks) {
    if (!ranks.concurrent()) return;
    constexpr uint32_t kRounds = 100;
    std::thread sender([&ranks] {
      for (uint32_t i = 0; i < kRounds; ++i) {
        EXPECT_TRUE(ranks.send(next_rank(ranks), 1, bytes_of(ranks.rank(), i, 1000)).ok());
      }
    });
    std::thread receiver([&ranks] {
      ByteVector into(1000);
      for (uint32_t i = 0; i < kRounds; ++i) {
        EXPECT_TRUE(ranks.receive(previous_rank(ranks), 1, into).ok());
        EXPECT_EQ(into, bytes_of(previous_rank(ranks), i, 1000));
      }
    });
    for (uint64_t i = 0; i < kRounds; ++i) {
      uint64_t value = i + ranks.rank();
      EXPECT_TRUE(ranks.all_max(std::span(&value, 1)).ok());
      EXPECT_EQ(value, i + ranks.rank_count() - 1);
    }
    sender.join();
    receiver.join();
  });
}

TEST_P(CommunicatorContract, MayEndOnOneRankBeforeTheOthers) {
  // The ranks of a run end when their functions do: here one after another, without a last meeting.
  on_all_ranks([](Communicator& ranks) {
    ASSERT_TRUE(ranks.barrier().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(ranks.rank()));
  });
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorContract, testing::ValuesIn(ranks_under_test()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace varve
