// What only subsets promise; the contract of all communicators is in communicator_contract.cpp.
#include "comm/communicators.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/bytes.h"

namespace varve {
namespace {

TEST(SubsetCommunicator, WorksBesideCollectiveCallsOfItsParent) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& ranks : make_thread_communicators(4)) {
    threads.emplace_back([parent = std::move(ranks)] {
      std::thread beside([&parent] {
        if (parent->rank() == 2) return;  // need not know of it
        auto subset = make_subset_communicator(*parent, {0, 1, 3}, 7).value();
        for (uint64_t round = 0; round < 100; ++round) {
          uint64_t value = parent->rank() + round;
          ASSERT_TRUE(subset->all_max(std::span(&value, 1)).ok());
          EXPECT_EQ(value, 3 + round);
        }
      });
      for (int round = 0; round < 100; ++round) EXPECT_TRUE(parent->barrier().ok());
      beside.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SubsetCommunicator, OfASubsetUsesItsTags) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& ranks : make_thread_communicators(6)) {
    threads.emplace_back([parent = std::move(ranks)] {
      if (parent->rank() == 0) return;
      auto outer = make_subset_communicator(*parent, {5, 4, 3, 2, 1}, 7).value();
      if (parent->rank() % 2 == 1) {
        auto inner = make_subset_communicator(*outer, {0, 2, 4}, 0).value();
        const auto all = inner->all_gather(as_bytes(std::to_string(parent->rank()))).value();
        EXPECT_EQ(as_text(all[0]), "5");
        EXPECT_EQ(as_text(all[2]), "1");
      }
      EXPECT_TRUE(outer->barrier().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MemberCommunicator, HasARankAsSeveralMembersOnThreadsOfTheirOwn) {
  const std::vector<uint32_t> members{2, 0, 2, 2, 0};
  std::vector<std::thread> threads;
  for (std::unique_ptr<Communicator>& ranks : make_thread_communicators(3)) {
    threads.emplace_back([&members, parent = std::move(ranks)] {
      std::vector<std::thread> own;
      for (uint32_t member = 0; member < members.size(); ++member) {
        if (members[member] != parent->rank()) continue;
        own.emplace_back([&parent, &members, member] {
          auto all = make_member_communicator(*parent, members, member, 7).value();
          ASSERT_EQ(all->rank(), member);
          for (uint32_t round = 0; round < 50; ++round) {
            const auto told = all->all_gather(as_bytes(std::to_string(member + round))).value();
            for (uint32_t from = 0; from < told.size(); ++from)
              EXPECT_EQ(as_text(told[from]), std::to_string(from + round));
            // Each to the next one, which may be of the same rank.
            const auto sent = std::byte(member);
            std::byte got{};
            EXPECT_TRUE(all->send((member + 1) % 5, round % 2, {&sent, 1}).ok());
            EXPECT_TRUE(all->receive((member + 4) % 5, round % 2, {&got, 1}).ok());
            EXPECT_EQ(got, std::byte((member + 4) % 5));
          }
        });
      }
      for (std::thread& thread : own) thread.join();
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto parents = make_thread_communicators(2);
  EXPECT_EQ(make_member_communicator(*parents[0], {0, 1, 1}, 1, 7).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(make_member_communicator(*parents[0], std::vector<uint32_t>(60, 0), 0, 7).status().code(),
            StatusCode::invalid_argument);
}

TEST(SubsetCommunicator, FailsOnAllMembersWhenOneHasEnded) {
  for (uint32_t gone = 0; gone < 5; ++gone) {
    std::vector<std::thread> threads;
    for (std::unique_ptr<Communicator>& ranks : make_thread_communicators(5)) {
      threads.emplace_back([gone, parent = std::move(ranks)] {
        if (parent->rank() == gone) return;
        auto subset = make_subset_communicator(*parent, {0, 1, 2, 3, 4}, 0).value();
        EXPECT_EQ(subset->all_gather({}).status().code(), StatusCode::io_error);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(SubsetCommunicator, HasDifferentRanksOfItsParentThisOneAmongThem) {
  auto parents = make_thread_communicators(3);
  const std::vector<std::vector<uint32_t>> wrong = {{}, {1, 2}, {0, 0}, {0, 3}};
  for (const std::vector<uint32_t>& members : wrong) {
    EXPECT_EQ(make_subset_communicator(*parents[0], members, 0).status().code(), StatusCode::invalid_argument);
  }
}

TEST(SubsetCommunicator, RefusesGarbageThatClaimsToBeLong) {
  auto parents = make_thread_communicators(2);
  auto subset = make_subset_communicator(*parents[0], {0, 1}, 3).value();
  ByteVector header(9, std::byte{0xff});
  header[0] = std::byte{0};
  ASSERT_TRUE(parents[1]->send(0, 3, header).ok());
  EXPECT_EQ(subset->barrier().code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
