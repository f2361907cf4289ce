#include "store/kept_index.h"

#include <gtest/gtest.h>

#include <optional>

#include "core/memory_file_system.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::SetMaker;

constexpr uint64_t kIndexBytes = 1_MiB;

struct Kept : testing::Test {
  Kept() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }

  /// Lays down an arena of this chunk alone.
  ArenaId seal(uint64_t number) {
    SetMaker maker(*store);
    maker.pack({test::numbered_chunk(number)});
    EXPECT_TRUE(maker.seal().ok());
    return maker.arena();
  }
  ChunkIndexEntry entry_of(uint64_t number) { return {.prefix = score_of(number).prefix()}; }
  Score score_of(uint64_t number) { return store->score()(test::numbered_chunk(number)); }
  std::optional<ArenaId> find(const ChunkIndex& index, uint64_t number) {
    const auto known = ChunkIndex::Cursor(index).find(score_of(number), test::kNumberedChunkBytes);
    return known ? std::optional(known->pack.hint) : std::nullopt;
  }
  /// A save of this chunk; returns its arena.
  ArenaId save(KeptIndex& kept, uint64_t number) {
    EXPECT_TRUE(kept.open(kIndexBytes).ok());
    const ArenaId arena = seal(number);
    EXPECT_TRUE(kept.add({arena}, {entry_of(number)}).ok());
    return arena;
  }
  size_t run_count() { return fs.list(store->index_path()).value().size(); }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_F(Kept, KnowsWhatItHasLaidDownAndTellsOthersLater) {
  KeptIndex kept(*store, ChunkIndex::Upkeep::others);
  const ArenaId first = save(kept, 1), second = save(kept, 2);
  ChunkIndex& index = **kept.open(kIndexBytes);
  EXPECT_EQ(find(index, 1), first);
  EXPECT_EQ(find(index, 2), second);
  EXPECT_EQ(run_count(), 0u);
  ASSERT_TRUE(kept.share().ok());
  EXPECT_EQ(run_count(), 1u);
  KeptIndex other(*store, ChunkIndex::Upkeep::others);
  EXPECT_EQ(find(**other.open(kIndexBytes), 2), second);
}

TEST_F(Kept, LooksIntoNoArenaThatIsExcludedOrGone) {
  KeptIndex kept(*store, ChunkIndex::Upkeep::others);
  const ArenaId first = save(kept, 1), second = save(kept, 2);
  ChunkIndex& index = **kept.open(kIndexBytes);
  index.exclude({first});
  EXPECT_EQ(find(index, 1), std::nullopt);
  EXPECT_EQ(find(**kept.open(kIndexBytes), 1), first);
  ASSERT_TRUE(fs.remove(store->arena_path(second)).ok());
  store->drop_arena_cache();
  EXPECT_EQ(find(**kept.open(kIndexBytes), 2), std::nullopt);
}

TEST_F(Kept, WritesARunForSomeSaves) {
  KeptIndex kept(*store, ChunkIndex::Upkeep::others);
  std::vector<ArenaId> arenas;
  for (uint64_t number = 0; number < 20; ++number) arenas.push_back(save(kept, number));
  EXPECT_EQ(run_count(), 2u);
  for (uint64_t number = 0; number < arenas.size(); ++number)
    EXPECT_EQ(find(**kept.open(kIndexBytes), number), arenas[number]);
  EXPECT_EQ(find(**KeptIndex(*store, ChunkIndex::Upkeep::others).open(kIndexBytes), 3), arenas[3]);
}

TEST_F(Kept, SharesWhatItHoldsBeforeThatBecomesTooMuch) {
  KeptIndex kept(*store, ChunkIndex::Upkeep::others);
  std::vector<ArenaId> arenas;
  const auto save_of_two = [&](uint64_t number) {
    ASSERT_TRUE(kept.open(5 * sizeof(ChunkIndexEntry)).ok());
    SetMaker maker(*store);
    maker.pack({test::numbered_chunk(number), test::numbered_chunk(number + 1)});
    ASSERT_TRUE(maker.seal().ok());
    arenas.push_back(maker.arena());
    ChunkIndexEntry second = entry_of(number + 1);
    second.chunk = 1;
    ASSERT_TRUE(kept.add({maker.arena()}, {second, entry_of(number)}).ok());
  };
  save_of_two(10);
  save_of_two(20);
  EXPECT_EQ(run_count(), 0u);
  save_of_two(30);
  EXPECT_EQ(run_count(), 1u) << "of the first two: six are more than it may hold";
  const ChunkIndex& index = **kept.open(kIndexBytes);
  EXPECT_EQ(index.held_bytes(), 2 * sizeof(ChunkIndexEntry));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(find(index, 10 * (i + 1)), arenas[i]);
    EXPECT_EQ(find(index, 10 * (i + 1) + 1), arenas[i]);
  }
}

TEST_F(Kept, HasFewRunsHoweverLongItGoesOn) {
  KeptIndex kept(*store, ChunkIndex::Upkeep::others);
  std::vector<ArenaId> arenas;
  for (uint64_t number = 0; number < 200; ++number) arenas.push_back(save(kept, number));
  EXPECT_LE(run_count(), 9u);
  ChunkIndex& index = **kept.open(kIndexBytes);
  for (uint64_t number = 0; number < arenas.size(); ++number) EXPECT_EQ(find(index, number), arenas[number]);
}

TEST_F(Kept, LeavesUpkeepToOthers) {
  std::vector<ArenaId> arenas;
  for (uint64_t number = 0; number < 12; ++number) {
    KeptIndex kept(*store, ChunkIndex::Upkeep::others);
    arenas.push_back(save(kept, number));
    ASSERT_TRUE(kept.share().ok());
  }
  const ArenaId unknown = seal(100);
  KeptIndex some(*store, ChunkIndex::Upkeep::others);
  EXPECT_LT((*some.open(kIndexBytes))->run_count(), arenas.size());
  EXPECT_EQ(find(**some.open(kIndexBytes), 100), std::nullopt);
  EXPECT_EQ(run_count(), arenas.size());

  KeptIndex all(*store, ChunkIndex::Upkeep::here);
  ChunkIndex& index = **all.open(kIndexBytes);
  EXPECT_EQ(find(index, 100), unknown);
  for (uint64_t number = 0; number < arenas.size(); ++number) EXPECT_EQ(find(index, number), arenas[number]);
  EXPECT_LT(run_count(), arenas.size());
}

TEST_F(Kept, LooksForNothingWhereNothingWas) {
  EXPECT_TRUE(ChunkIndex::would_be_empty(*store));
  KeptIndex kept(*store, ChunkIndex::Upkeep::here, /*begins_empty=*/true);
  const ArenaId others = seal(1);
  EXPECT_FALSE(ChunkIndex::would_be_empty(*store));
  EXPECT_TRUE((*kept.open(kIndexBytes))->finds_nothing());
  const ArenaId own = save(kept, 2);
  ChunkIndex& index = **kept.open(kIndexBytes);
  EXPECT_FALSE(index.finds_nothing());
  EXPECT_EQ(find(index, 1), std::nullopt);
  EXPECT_EQ(find(index, 2), own);
  // What has come since is seen when all is looked at again.
  for (uint64_t number = 3; number < 70; ++number) save(kept, number);
  EXPECT_EQ(find(**kept.open(kIndexBytes), 1), others);
}

}  // namespace
}  // namespace varve
