#include "comm/gather.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

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

}  // namespace
}  // namespace varve
