#include "store/condemn.h"

#include <gtest/gtest.h>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "store/prune.h"
#include "store/stored_copies.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::numbers_between;

struct Condemning : testing::Test {
  Condemning() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }
  ArenaId arena_of(uint64_t step) { return Catalog(*store).read({"job", step}).value().groups.at(0).hint; }
  uint64_t arena_bytes(uint64_t step) { return fs.stat(store->arena_path(arena_of(step))).value().bytes; }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

TEST_F(Condemning, KeepsNewSetsFromReferringToAnArena) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, numbers_between(1, 100)).ok());
  ASSERT_TRUE(test::save_numbers(*store, {"job", 2}, numbers_between(1, 100)).ok());
  EXPECT_LT(arena_bytes(2), arena_bytes(1) / 2) << "all is known";
  ASSERT_TRUE(condemn_arenas(*store, {arena_of(1)}).ok());
  ASSERT_TRUE(condemn_arenas(*store, {arena_of(1)}).ok()) << "again";
  ASSERT_TRUE(test::save_numbers(*store, {"job", 3}, numbers_between(1, 100)).ok());
  EXPECT_GE(arena_bytes(3), arena_bytes(1)) << "all is written anew";
  for (uint64_t step : {1, 2, 3}) {
    EXPECT_TRUE(test::check_numbers(*store, {"job", step}, numbers_between(1, 100)).ok());
  }
}

TEST_F(Condemning, LosesNothingWhenAPruneTakesItUp) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, numbers_between(1, 100)).ok());
  const ArenaId condemned = arena_of(1);
  ASSERT_TRUE(condemn_arenas(*store, {condemned}).ok());
  PruneOptions options;
  options.wait_seconds = 0;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_FALSE(fs.stat(store->arena_path(condemned)).ok());
  EXPECT_TRUE(list_condemned(*store).value().empty());
  EXPECT_TRUE(test::check_numbers(*store, {"job", 1}, numbers_between(1, 100)).ok());
  EXPECT_TRUE(verify_store(*store, true).value().damages.empty());
}

TEST_F(Condemning, TellsWhatIsDamagedFromWhatCannotBeRead) {
  ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, numbers_between(1, 100)).ok());
  const ArenaId arena = arena_of(1);
  const Score root = Catalog(*store).read({"job", 1}).value().groups.at(0).root;
  const Root tree = read_root(*store, root, arena).value();
  const PackLink pack = read_leaf(*store, tree.leaves.at(0)).value().packs.at(0);
  const CopyFaults none = faults_of_pack(*store, pack);
  EXPECT_TRUE(none.damaged.empty() && none.unreadable.empty());
  for (const FaultKind kind : {FaultKind::failed_read, FaultKind::flipped_bit}) {
    FaultyFileSystem counting(fs);
    const auto opened = Store::open(counting, "/s").value();
    const uint64_t before = counting.operation_count().reading;
    FaultyFileSystem faulty(fs, {{.kind = kind, .at_operation = before, .persistent = true}});
    const auto bad = Store::open(faulty, "/s").value();
    const bool unreadable = kind == FaultKind::failed_read;
    for (const CopyFaults& faults : {faults_of_pack(*bad, pack), faults_of_node(*bad, root, arena)}) {
      EXPECT_EQ(faults.unreadable.contains(arena), unreadable);
      EXPECT_EQ(faults.damaged.contains(arena), !unreadable);
    }
    EXPECT_EQ(read_root(*bad, root, arena).status().code(), unreadable ? StatusCode::io_error : StatusCode::corrupt);
  }
}

TEST_F(Condemning, DoesNotMarkWhatIsGone) {
  ASSERT_TRUE(condemn_arenas(*store, {UniqueId::random().value()}).ok());
  EXPECT_TRUE(list_condemned(*store).value().empty());
}

}  // namespace
}  // namespace varve
