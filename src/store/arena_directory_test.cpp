#include "store/store.h"

#include <gtest/gtest.h>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "store/stored_copies.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::SetMaker;

struct Directory : testing::Test {
  void SetUp() override {
    ASSERT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(counting, "/s").value();
    for (uint64_t i = 0; i < kArenas; ++i) packs.push_back(add(i));
  }
  PackLink add(uint64_t number) {
    SetMaker maker(*store);
    const PackLink link = maker.pack({test::numbered_chunk(number)});
    EXPECT_TRUE(maker.seal().ok());
    return link;
  }
  uint64_t reads_of(const std::function<void()>& action) {
    const uint64_t before = counting.operation_count().reading;
    action();
    return counting.operation_count().reading - before;
  }

  static constexpr uint64_t kArenas = 300;  // more than a store keeps open
  MemoryFileSystem fs;
  FaultyFileSystem counting{fs};
  std::unique_ptr<Store> store;
  std::vector<PackLink> packs;
  const ArenaId elsewhere = UniqueId::random().value();
};

TEST_F(Directory, SparesALookIntoAllArenasForEachPackWhoseHintFails) {
  auto read_all = [&] {
    for (const PackLink& pack : packs) ASSERT_TRUE(read_pack(*store, {pack.score, elsewhere}, {}).ok());
  };
  EXPECT_LT(reads_of(read_all), 12 * kArenas);
  EXPECT_LT(reads_of(read_all), 10 * kArenas);
}

TEST_F(Directory, FindsWhatHasMovedSinceItLooked) {
  ASSERT_TRUE(read_pack(*store, {packs[7].score, elsewhere}, {}).ok());
  const PackLink moved = add(7);
  ASSERT_EQ(moved.score, packs[7].score);
  ASSERT_TRUE(fs.remove(store->arena_path(packs[7].hint)).ok());
  store->drop_arena_cache();
  const auto places = find_pack_copies(*store, moved.score, packs[7].hint).value();
  ASSERT_EQ(places.size(), 1u);
  EXPECT_EQ(places[0].arena->id(), moved.hint);
  EXPECT_TRUE(read_pack(*store, {packs[8].score, elsewhere}, {}).ok());
}

TEST_F(Directory, GivesAllCopiesWhereAllAreWanted) {
  ASSERT_EQ(find_pack_copies(*store, packs[3].score, elsewhere, true).value().size(), 1u);
  add(3);
  EXPECT_EQ(find_pack_copies(*store, packs[3].score, packs[3].hint, true).value().size(), 2u);
  EXPECT_EQ(find_pack_copies(*store, packs[3].score, packs[3].hint, false).value().size(), 1u);
}

TEST_F(Directory, TellsWhichArenasAreWorthALook) {
  const ArenaId arena = packs[3].hint;
  EXPECT_EQ(store->directory().listing(*store, std::vector<Score>{packs[3].score, Score{}}).value(),
            std::vector<ArenaId>{arena});
  const PackLink again = add(3);
  EXPECT_EQ(store->directory().listing(*store, std::vector<Score>{packs[3].score}).value().size(), 2u);
  ASSERT_TRUE(fs.remove(store->arena_path(arena)).ok());
  EXPECT_EQ(store->directory().listing(*store, std::vector<Score>{packs[3].score}).value(),
            std::vector<ArenaId>{again.hint});
  const uint64_t reads =
      reads_of([&] { ASSERT_TRUE(store->directory().listing(*store, std::vector<Score>{again.score}).ok()); });
  EXPECT_LT(reads, 5u);
}

TEST_F(Directory, LooksIntoArenasWithADamagedIndexEachTime) {
  const std::string path = store->arena_path(packs[5].hint);
  ByteVector raw = read_file(fs, path, 1_MiB).value();
  raw[raw.size() - 50] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(path).ok());
  ASSERT_TRUE(fs.create(path).value()->write_at(0, raw).ok());
  store->drop_arena_cache();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(read_pack(*store, {packs[5].score, elsewhere}, {}).ok());
  EXPECT_EQ(read_pack(*store, {Score{}, elsewhere}, {}).status().code(), StatusCode::corrupt);
}

}  // namespace
}  // namespace varve
