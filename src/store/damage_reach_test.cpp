#include "store/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory_file_system.h"
#include "store/prune.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::numbered_chunk;

/// Two sets that share three chunks of a pack of eight.
class DamageReach : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Store::create(fs, "/store").ok());
    store = Store::open(fs, "/store").value();
    ASSERT_TRUE(test::save_numbers(*store, {"run", 1}, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
    ASSERT_TRUE(test::save_numbers(*store, {"run", 2}, {1, 2, 3, 9}).ok());
  }

  /// Flips a bit of chunk `number` in one of the arenas that hold it.
  void damage(uint64_t number, size_t which = 0) {
    const ByteVector chunk = numbered_chunk(number);
    size_t found = 0;
    for (const ArenaId& arena : store->list_arenas().value()) {
      ByteVector raw = read_file(fs, store->arena_path(arena), 1_MiB).value();
      const auto at = std::search(raw.begin(), raw.end(), chunk.begin(), chunk.end());
      if (at == raw.end() || found++ != which) continue;
      *at ^= std::byte{1};
      replace(arena, raw);
    }
    ASSERT_GT(found, which);
  }

  void replace(const ArenaId& arena, ByteSpan raw) {
    ASSERT_TRUE(fs.remove(store->arena_path(arena)).ok());
    ASSERT_TRUE(fs.create(store->arena_path(arena)).value()->write_at(0, raw).ok());
    store->drop_arena_cache();
  }

  std::vector<Damage> damages(bool deep = true) { return verify_store(*store, deep).value().damages; }
  std::vector<std::string> affected() {
    const std::vector<Damage> found = damages();
    return found.size() == 1 ? found[0].affected_sets : std::vector<std::string>{"not one damage"};
  }
  Status check(uint64_t step, const std::vector<uint64_t>& numbers) {
    return test::check_group_numbers(*store, Catalog(*store).read({"run", step}).value().groups.at(0), numbers);
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_F(DamageReach, IsTheSetsThatNeedTheChunkNotAllOfItsPack) {
  damage(5);
  EXPECT_EQ(affected(), (std::vector<std::string>{"run@1"}));
  EXPECT_EQ(damages()[0].affected_files, (std::vector<std::string>{"run@1:numbers"}));
  EXPECT_EQ(check(1, {1, 2, 3, 4, 5, 6, 7, 8}).code(), StatusCode::corrupt);
  EXPECT_TRUE(check(2, {1, 2, 3, 9}).ok());
  EXPECT_TRUE(damages(false).empty());  // only who reads every byte sees it
}

TEST_F(DamageReach, IsAllSetsIfTheyShareTheChunk) {
  damage(2);
  EXPECT_EQ(affected(), (std::vector<std::string>{"run@1", "run@2"}));
  EXPECT_EQ(check(2, {1, 2, 3, 9}).code(), StatusCode::corrupt);
}

TEST_F(DamageReach, IsNobodyIfNoSetNeedsTheChunkAnyMore) {
  damage(5);
  ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
  const std::vector<Damage> found = damages();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].affected_sets.empty());
  EXPECT_FALSE(found[0].disposable);
  // A prune takes what is whole along and leaves the rest behind.
  PruneOptions options;
  options.live_share_min = 1;
  options.wait_seconds = options.silence_seconds = 0;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_TRUE(damages().empty());
  EXPECT_TRUE(check(2, {1, 2, 3, 9}).ok());
}

TEST_F(DamageReach, IsNobodyIfTwoDamagedCopiesHaveAllBetweenThem) {
  test::SetMaker copy(*store);
  std::vector<ByteVector> chunks;
  for (uint64_t number = 1; number <= 8; ++number) chunks.push_back(numbered_chunk(number));
  copy.pack(chunks);
  ASSERT_TRUE(copy.seal().ok());
  damage(2, 0);
  damage(6, 1);
  const std::vector<Damage> found = damages();
  EXPECT_EQ(found.size(), 2u);
  for (const Damage& each : found) EXPECT_TRUE(each.affected_sets.empty());
  EXPECT_TRUE(check(1, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
}

}  // namespace
}  // namespace varve
