#include "level/node_packs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "snapshot/test_segments.h"

namespace varve {
namespace {

using State = NodePacks::State;
constexpr int kNotPermitted = 77;
constexpr uint64_t kLarge = NodePacks::kPackBytesMax;
constexpr size_t kRoom = NodePacks::kBytes / kLarge;  ///< large packs for which there is room at a time

Score pack(uint32_t number) {
  Score score;
  score.bytes.front() = std::byte(number);
  score.bytes.back() = std::byte(number >> 8);
  return score;
}
PackPlace place(uint64_t number) { return {{}, number}; }

struct Packs : testing::Test {
  test::SegmentFolder folder;
  const std::string path = folder.owner().path("packs");
  NodePacks here{path}, there{path};

  Packs() {
    EXPECT_TRUE(here.begin(place(0)));
    EXPECT_TRUE(there.begin(place(0)));
  }
  /// Packs of one rank lie in the order of their numbers.
  static NodePacks::Held find(NodePacks& packs, uint32_t number, uint64_t bytes = kLarge) {
    return packs.find(pack(number), place(number), bytes);
  }
  static void fill(NodePacks& packs, uint32_t number, uint64_t bytes = kLarge) {
    NodePacks::Held held = find(packs, number, bytes);
    ASSERT_EQ(held.state(), State::to_fill);
    std::fill(held.bytes().begin(), held.bytes().end(), std::byte(number));
    held.publish();
  }
  /// What is found of it.
  static State look(NodePacks& packs, uint32_t number, uint64_t bytes = kLarge) {
    const NodePacks::Held held = find(packs, number, bytes);
    if (held.state() == State::whole) {
      EXPECT_EQ(held.bytes().size(), bytes);
      EXPECT_TRUE(is_of(held.bytes(), number));
    }
    return held.state();
  }
  static bool is_of(ByteSpan bytes, uint32_t number) {
    return std::all_of(bytes.begin(), bytes.end(), [&](std::byte byte) { return byte == std::byte(number); });
  }
};

TEST_F(Packs, ThatOneFillsAreThereForTheOther) {
  fill(here, 7, 1000);
  fill(here, 8, 999);
  EXPECT_EQ(look(there, 7, 1000), State::whole);
  EXPECT_EQ(look(there, 8, 999), State::whole);
  // Nothing is known of a pack of this name and another size.
  EXPECT_EQ(look(there, 7, 1001), State::to_fill);
}

TEST_F(Packs, ThatAreBeingFilledAreOnTheirWayUntilTheyAreGivenUp) {
  {
    const NodePacks::Held filling = find(here, 7);
    ASSERT_EQ(filling.state(), State::to_fill);
    EXPECT_EQ(look(there, 7), State::on_its_way);
    EXPECT_FALSE(there.wait({}));
  }
  EXPECT_EQ(look(there, 7), State::to_fill);
}

TEST_F(Packs, MakeRoomWhenAllArePastThem) {
  for (uint32_t number = 0; number < kRoom; ++number) fill(here, number);
  here.go_on(place(100));
  EXPECT_EQ(look(here, 100), State::no_room);
  EXPECT_EQ(look(here, 100, 1), State::no_room);
  there.go_on(place(1));
  EXPECT_EQ(look(there, 1), State::whole);
  EXPECT_EQ(look(here, 100), State::to_fill);
  EXPECT_EQ(look(here, 101), State::to_fill);  // what was given up is not in the way
  fill(here, 102);
  EXPECT_EQ(look(here, 103), State::no_room);
  EXPECT_EQ(look(there, 1), State::whole);
  // Who has ended needs none.
  there.end();
  EXPECT_EQ(look(here, 103), State::to_fill);
}

TEST_F(Packs, ThatAllWerePastAreNoMoreForWhoBeginsLate) {
  there.end();
  for (uint32_t number = 1; number <= kRoom + 2; ++number) {
    fill(here, number);
    here.go_on(place(number));
  }
  ASSERT_TRUE(there.begin(place(1)));
  EXPECT_EQ(look(there, 1), State::alone);
  EXPECT_EQ(look(there, 2), State::alone);
  EXPECT_EQ(look(there, 3), State::whole);
}

TEST_F(Packs, ThatAreLookedAtStay) {
  for (uint32_t number = 0; number < kRoom; ++number) fill(here, number);
  const NodePacks::Held looking = find(there, 0);
  ASSERT_EQ(looking.state(), State::whole);
  here.end();
  there.go_on(place(1000));
  EXPECT_EQ(look(there, 1000), State::no_room);
  EXPECT_TRUE(is_of(looking.bytes(), 0));
}

TEST_F(Packs, OfAnySizeLieApart) {
  // Each is read again after those behind it were filled, round and round.
  here.end();
  for (uint32_t number = 1; number < 2'000; ++number) {
    const auto bytes_of = [](uint32_t of) { return of * 7919 % kLarge + 1; };
    fill(there, number, bytes_of(number));
    for (uint32_t back = 0; back < 4 && back < number; ++back)
      ASSERT_EQ(look(there, number - back, bytes_of(number - back)), State::whole);
    there.go_on(place(number - std::min(number, 4u)));
  }
}

TEST_F(Packs, ThatAreTooLargeOrHaveNoMemoryAreForNobodyElse) {
  EXPECT_EQ(look(here, 1, kLarge + 1), State::no_room);
  NodePacks nowhere("/no/such/folder/packs");
  EXPECT_FALSE(nowhere.begin(place(0)));
  EXPECT_FALSE(nowhere.wait(std::chrono::milliseconds(1)));
}

TEST_F(Packs, AreForEachAloneWhereMemoryIsShort) {
  const std::filesystem::path small = std::filesystem::temp_directory_path() / ("varve-" + UniqueId::random()->hex());
  ASSERT_TRUE(std::filesystem::create_directory(small));
  const int status = test::run_in_child([&] {
    if (!test::mount_small_memory(small, "2500k")) ::_exit(kNotPermitted);
    NodePacks one(small / "packs"), other(small / "packs");
    ASSERT_TRUE(one.begin(place(0)));
    ASSERT_TRUE(other.begin(place(0)));
    fill(one, 0);
    fill(one, 1);
    EXPECT_EQ(look(one, 2), State::alone);
    EXPECT_EQ(look(other, 2), State::alone);
    EXPECT_EQ(look(other, 1), State::whole);
    fill(other, 3, 1000);
    EXPECT_EQ(look(one, 3, 1000), State::whole);
    one.end();
    other.end();
    if (HasFailure()) ::_exit(1);
  });
  std::filesystem::remove(small);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "this user may not mount a memory file system";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see above";
}

TEST_F(Packs, LeaveNothingBehind) {
  {
    const std::string elsewhere = folder.owner().path("more");
    NodePacks one(elsewhere), other(elsewhere);
    ASSERT_TRUE(one.begin(place(0)));
    ASSERT_TRUE(other.begin(place(0)));
    EXPECT_FALSE(other.begin(place(0)));  // it has begun
    EXPECT_EQ(folder.files().size(), 2u);
  }
  EXPECT_EQ(folder.files().size(), 1u);
}

TEST_F(Packs, AreFilledOnceByThreadsThatAllWantThem) {
  constexpr uint32_t kPacks = 200;
  here.end();
  there.end();
  std::atomic<uint32_t> filled{0};
  std::vector<std::unique_ptr<NodePacks>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<NodePacks>(path));
    ASSERT_TRUE(ranks.back()->begin(place(0)));
  }
  std::vector<std::thread> threads;
  for (const std::unique_ptr<NodePacks>& rank : ranks) {
    threads.emplace_back([&] {
      for (uint32_t number = 0; number < kPacks; ++number) {
        for (;;) {
          NodePacks::Held held = find(*rank, number);
          if (held.state() == State::to_fill) {
            std::fill(held.bytes().begin(), held.bytes().end(), std::byte(number));
            held.publish();
            ++filled;
          }
          if (held.state() == State::whole) {
            EXPECT_TRUE(is_of(held.bytes(), number));
            break;
          }
          rank->wait(std::chrono::milliseconds(1));
        }
        rank->go_on(place(number + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(filled, kPacks);
}

}  // namespace
}  // namespace varve
