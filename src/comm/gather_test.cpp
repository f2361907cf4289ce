#include "comm/gather.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "comm/agreement.h"

namespace varve {
namespace {

/// What each member gets when each gives its place as text, so many times.
std::vector<std::vector<ByteVector>> play(const std::vector<uint32_t>& members, uint32_t rank_count) {
  auto ranks = make_thread_communicators(rank_count);
  std::vector<std::vector<ByteVector>> got(members.size());
  std::vector<std::thread> threads;
  for (size_t place = 0; place < members.size(); ++place) {
    threads.emplace_back([&, place] {
      const std::string mine(place % 5, static_cast<char>('a' + place % 26));
      auto all = gather_to_first(*ranks[members[place]], members, place, as_bytes(mine));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      got[place] = std::move(*all);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return got;
}

TEST(GatherToFirst, GivesTheFirstMemberWhatEachGaveInTheirOrder) {
  for (const uint32_t count : {1u, 2u, 3u, 7u, 8u, 33u}) {
    std::vector<uint32_t> members;
    for (uint32_t i = 0; i < count; ++i) members.push_back(2 * i + 1);
    const auto got = play(members, 2 * count);
    ASSERT_EQ(got.front().size(), count);
    for (size_t place = 0; place < count; ++place) {
      EXPECT_EQ(as_text(got[0][place]), std::string(place % 5, static_cast<char>('a' + place % 26)));
      EXPECT_EQ(got[place].empty(), place > 0);
    }
  }
}

TEST(GatherToFirst, FailsIfWhatAMemberSaysMakesNoSense) {
  auto ranks = make_thread_communicators(2);
  std::thread other([&] {
    const std::vector<std::byte> length(8, std::byte{0xff});
    EXPECT_TRUE(ranks[1]->send(0, 20, length).ok());
  });
  const std::vector<uint32_t> members = {0, 1};
  EXPECT_EQ(gather_to_first(*ranks[0], members, 0, {}).status().code(), StatusCode::corrupt);
  other.join();
}

/// What each rank is told when each says `said[rank]`.
std::vector<std::vector<Told>> tell(const std::vector<std::string>& said) {
  auto ranks = make_thread_communicators(static_cast<uint32_t>(said.size()));
  std::vector<std::vector<Told>> told(said.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < said.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto all = gather_told(*ranks[rank], as_bytes(said[rank]));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      told[rank] = std::move(*all);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return told;
}

TEST(GatherTold, TellsAllRanksWhatSomeSay) {
  const std::string much = "what all say is much alike, but for its end: ";
  const std::vector<std::vector<std::string>> trials = {
      {""},         {"alone"},         {"", "", ""},           {"", "", "one", ""},
      {"", "last"}, {"first", "", ""}, {"", "a", "", "", "b"}, {much + "1", much + "2", "", much + "3", much},
      {"a", "a"},
  };
  for (const std::vector<std::string>& said : trials) {
    std::vector<std::pair<uint32_t, std::string>> expected;
    for (uint32_t rank = 0; rank < said.size(); ++rank) {
      if (!said[rank].empty()) expected.emplace_back(rank, said[rank]);
    }
    for (const std::vector<Told>& told : tell(said)) {
      std::vector<std::pair<uint32_t, std::string>> got;
      for (const Told& of_rank : told) got.emplace_back(of_rank.rank, as_text(of_rank.bytes));
      EXPECT_EQ(got, expected);
    }
  }
}

TEST(GatherTold, FailsOnAllRanksIfOneLacksMemory) {
  auto ranks = make_thread_communicators(2);
  std::thread other([&] {
    std::array<uint64_t, 2> who = {UINT64_MAX - 1, 2};
    EXPECT_TRUE(ranks[1]->all_max(who).ok());
    EXPECT_TRUE(ranks[1]->broadcast({}, 0).ok());
    const std::vector<std::byte> lacks(1, std::byte{0});
    EXPECT_TRUE(ranks[1]->all_gather(lacks).ok());
  });
  EXPECT_EQ(gather_told(*ranks[0], as_bytes(std::string_view("something"))).status().code(),
            StatusCode::resource_limit);
  other.join();
}

/// What each of so many ranks learns when the first makes what `make` gives.
std::vector<Result<ByteVector>> follow(uint32_t rank_count, const std::function<Result<ByteVector>()>& make) {
  auto ranks = make_thread_communicators(rank_count);
  std::vector<Result<ByteVector>> learned(rank_count, Status::internal("nothing"));
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      learned[rank] = told_by_first(*ranks[rank], [&]() -> Result<ByteVector> {
        EXPECT_EQ(rank, 0u);
        return make();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return learned;
}

TEST(ToldByFirst, GivesAllRanksWhatTheFirstMakesEvenNothing) {
  for (const std::string text : {"", "what it found"}) {
    for (const uint32_t count : {1u, 4u}) {
      for (const auto& learned :
           follow(count, [&] { return ByteVector(as_bytes(text).begin(), as_bytes(text).end()); })) {
        ASSERT_TRUE(learned.ok()) << learned.status().to_string();
        EXPECT_EQ(as_text(*learned), text);
      }
    }
  }
}

TEST(ToldByFirst, GivesAllRanksWhyTheFirstCouldNot) {
  for (const uint32_t count : {1u, 4u}) {
    for (const auto& learned : follow(count, [] { return Status::io_error("the disk does not answer", "/a/store"); })) {
      EXPECT_EQ(learned.status().code(), StatusCode::io_error);
      EXPECT_EQ(learned.status().subject(), "/a/store");
    }
    for (const auto& learned : follow(count, []() -> Result<ByteVector> { throw std::bad_alloc(); }))
      EXPECT_EQ(learned.status().code(), StatusCode::resource_limit);
  }
}

}  // namespace
}  // namespace varve
