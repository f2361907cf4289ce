#include "store/chunk_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "store/stored_copies.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::SetMaker;

constexpr uint64_t kMemoryBytes = 1_MiB;

struct Index : testing::Test {
  Index() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }

  std::unique_ptr<ChunkIndex> open(std::set<ArenaId> excluded = {}) {
    return ChunkIndex::open(*store, std::move(excluded), kMemoryBytes).value();
  }
  /// Seals an arena of these chunks.
  ArenaId seal(const std::vector<uint64_t>& numbers) {
    SetMaker maker(*store);
    std::vector<ByteVector> chunks;
    for (uint64_t number : numbers) chunks.push_back(test::numbered_chunk(number));
    maker.pack(chunks);
    EXPECT_TRUE(maker.seal().ok());
    return maker.arena();
  }
  /// Where the index says that the chunk is; checks that it is there.
  std::optional<ArenaId> find(const ChunkIndex& index, uint64_t number) {
    const ByteVector chunk = test::numbered_chunk(number);
    const auto known = ChunkIndex::Cursor(index).find(store->score()(chunk), chunk.size());
    if (!known) return std::nullopt;
    const Extent range{known->offset, chunk.size()};
    Result<Pack> pack = read_pack(*store, known->pack, std::span(&range, 1));
    EXPECT_TRUE(pack.ok());
    const Result<ByteSpan> bytes = pack->range(known->offset, chunk.size());
    EXPECT_TRUE(bytes.ok() && std::equal(bytes->begin(), bytes->end(), chunk.begin()));
    return known->pack.hint;
  }
  std::vector<std::string> runs() {
    std::vector<std::string> paths;
    for (const DirectoryEntry& entry : fs.list(store->index_path()).value())
      paths.push_back(join_path(store->index_path(), entry.name));
    return paths;
  }
  void damage(const std::string& path, size_t at) {
    ByteVector raw = read_file(fs, path, 64_MiB).value();
    raw[at] ^= std::byte{0x20};
    ASSERT_TRUE(fs.remove(path).ok());
    ASSERT_TRUE(fs.create(path).value()->write_at(0, raw).ok());
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

/// Where something happens just before the runs are listed, or just after one has got its name.
struct EventfulFileSystem final : ForwardingFileSystem {
  EventfulFileSystem(FileSystem& inner, std::string index_path)
      : ForwardingFileSystem(inner), index_path_(std::move(index_path)) {}
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
    if (path == index_path_) before_list();
    return ForwardingFileSystem::list(path);
  }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    VARVE_TRY(ForwardingFileSystem::rename_no_replace(from, to));
    if (to.ends_with(".run")) after_rename(to);
    return {};
  }
  std::function<void()> before_list = [] {};
  std::function<void(const std::string&)> after_rename = [](const std::string&) {};

 private:
  const std::string index_path_;
};

TEST_F(Index, DoesWithoutARunThatAnotherSaveHasMergedAtOnce) {
  seal({1, 2, 3});
  EventfulFileSystem eventful(fs, store->index_path());
  eventful.after_rename = [&](const std::string& run) { ASSERT_TRUE(fs.remove(run).ok()); };
  const auto own = Store::open(eventful, "/s").value();
  const auto index = ChunkIndex::open(*own, {}, kMemoryBytes);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ((*index)->entry_count(), 0u);
  EXPECT_TRUE((*index)->healed().empty());
  EXPECT_EQ(open()->entry_count(), 3u) << "who comes next indexes them again";
}

TEST_F(Index, LeavesRunsOfArenasAloneThatHaveJustCome) {
  seal({1, 2, 3});
  open();
  EventfulFileSystem eventful(fs, store->index_path());
  bool happened = false;
  eventful.before_list = [&] {
    if (std::exchange(happened, true)) return;
    seal({4, 5});
    open();
  };
  const auto own = Store::open(eventful, "/s").value();
  EXPECT_EQ(ChunkIndex::open(*own, {}, kMemoryBytes).value()->entry_count(), 5u);
  EXPECT_EQ(runs().size(), 2u);
}

TEST_F(Index, OfAnEmptyStoreFindsNothing) {
  const auto index = open();
  EXPECT_EQ(index->entry_count(), 0u);
  EXPECT_FALSE(find(*index, 1));
}

TEST_F(Index, FindsEveryChunkOfEveryArenaAndNoOther) {
  const ArenaId first = seal(test::numbers_between(1, 200)), second = seal(test::numbers_between(201, 300));
  const auto index = open();
  EXPECT_EQ(index->entry_count(), 300u);
  for (uint64_t number = 1; number <= 200; ++number) EXPECT_EQ(find(*index, number), first) << number;
  for (uint64_t number = 201; number <= 300; ++number) EXPECT_EQ(find(*index, number), second) << number;
  for (uint64_t number = 301; number <= 500; ++number) EXPECT_FALSE(find(*index, number)) << number;
}

TEST_F(Index, DoesNotTakeAChunkForOneOfAnotherLength) {
  seal({1});
  const auto index = open();
  EXPECT_FALSE(ChunkIndex::Cursor(*index).find(store->score()(test::numbered_chunk(1)), 10));
}

TEST_F(Index, IndexesEachArenaOnce) {
  seal({1, 2, 3});
  open();
  EXPECT_EQ(runs().size(), 1u);
  EXPECT_EQ(open()->run_count(), 1u);
  seal({4});
  const auto index = open();
  EXPECT_EQ(index->run_count(), 2u);
  EXPECT_EQ(index->entry_count(), 4u);
}

TEST_F(Index, TakesUpWhatAWriterAdds) {
  const auto before = open();
  const ArenaId arena = seal({7, 8});
  ChunkIndexEntries entries;
  for (uint32_t chunk : {1u, 0u})
    entries.push_back({store->score()(test::numbered_chunk(7 + chunk)).prefix(), 0, 0, chunk});
  ASSERT_TRUE(before->add({arena}, entries).ok());
  EXPECT_EQ(runs().size(), 1u);
  const auto index = open();
  EXPECT_EQ(find(*index, 7), arena);
  EXPECT_EQ(find(*index, 8), arena);
  EXPECT_EQ(index->run_count(), 1u);
}

TEST_F(Index, MergesRunsAsTheyBecomeManyAndLosesNothing) {
  for (uint64_t number = 1; number <= 60; ++number) {
    seal({2 * number, 2 * number + 1});
    const auto index = open();
    EXPECT_LE(index->run_count(), 9u);
    EXPECT_LE(runs().size(), 9u);
  }
  const auto index = open();
  EXPECT_EQ(index->entry_count(), 120u);
  for (uint64_t number = 2; number <= 121; ++number) EXPECT_TRUE(find(*index, number)) << number;
}

TEST_F(Index, ForgetsArenasThatAreGone) {
  std::vector<ArenaId> arenas;
  for (uint64_t number = 1; number <= 30; ++number) {
    arenas.push_back(seal({number}));
    open();
  }
  for (size_t i = 0; i < arenas.size(); i += 2) ASSERT_TRUE(fs.remove(store->arena_path(arenas[i])).ok());
  store->drop_arena_cache();
  const auto index = open();
  for (uint64_t number = 1; number <= 30; ++number)
    EXPECT_EQ(find(*index, number).has_value(), number % 2 == 0) << number;
  for (const ArenaId& arena : store->list_arenas().value()) ASSERT_TRUE(fs.remove(store->arena_path(arena)).ok());
  store->drop_arena_cache();
  EXPECT_EQ(open()->entry_count(), 0u);
  EXPECT_TRUE(runs().empty());
}

TEST_F(Index, NeverLooksIntoExcludedArenas) {
  const ArenaId first = seal({1, 2}), second = seal({2, 3});
  const auto index = open({first});
  EXPECT_FALSE(find(*index, 1));
  EXPECT_EQ(find(*index, 2), second);
  EXPECT_EQ(find(*index, 3), second);
}

TEST_F(Index, DoesNotOfferChunksThatAPackNoLongerHolds) {
  SetMaker maker(*store);
  PackMeta meta;
  meta.class_key = "made_BYTES";
  meta.recipe = {std::byte{0}};
  for (uint64_t number : {1u, 2u, 3u}) {
    meta.chunks.push_back({test::kNumberedChunkBytes, store->score()(test::numbered_chunk(number))});
  }
  meta.score = pack_score(store->score(), meta.chunks);
  meta.held_runs = {0, 1, 1, 1};
  maker.pack(meta, test::numbered_chunk(2));
  ASSERT_TRUE(maker.seal().ok());
  const auto index = open();
  EXPECT_FALSE(find(*index, 1));
  EXPECT_TRUE(find(*index, 2));
  EXPECT_FALSE(find(*index, 3));
}

TEST_F(Index, ThrowsARunWithADamagedHeaderAwayAndRebuildsIt) {
  seal(test::numbers_between(1, 50));
  open();
  damage(runs().at(0), 30);
  const auto index = open();
  EXPECT_EQ(index->healed().size(), 1u);
  EXPECT_EQ(index->entry_count(), 50u);
  for (uint64_t number = 1; number <= 50; ++number) EXPECT_TRUE(find(*index, number));
  EXPECT_EQ(runs().size(), 1u);
}

TEST_F(Index, OnlyMissesWhatDamagedRunsHide) {
  seal(test::numbers_between(1, 50));
  open();
  const std::string path = runs().at(0);
  const ByteVector whole = read_file(fs, path, 1_MiB).value();
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 400; ++trial) {
    ByteVector damaged = whole;
    for (int flips = 0; flips < 20; ++flips)
      damaged[64 + random() % (damaged.size() - 64)] = static_cast<std::byte>(random());
    for (const std::string& run : runs()) ASSERT_TRUE(fs.remove(run).ok());
    ASSERT_TRUE(fs.create(path).value()->write_at(0, damaged).ok());
    const auto index = open();
    // find() checks that what is found is true.
    for (uint64_t number = 1; number <= 60; number += 7) find(*index, number);
  }
}

TEST_F(Index, OfAnotherStoreOrCutOffIsThrownAway) {
  seal({1, 2, 3});
  open();
  const std::string path = runs().at(0);
  const ByteVector whole = read_file(fs, path, 1_MiB).value();
  for (size_t bytes : {size_t{0}, size_t{10}, size_t{63}, size_t{64}, whole.size() - 1}) {
    ASSERT_TRUE(fs.remove(path).ok());
    ASSERT_TRUE(fs.create(path).value()->write_at(0, ByteSpan(whole).first(bytes)).ok());
    const auto index = open();
    EXPECT_TRUE(find(*index, 2));
    for (const std::string& run : runs()) ASSERT_TRUE(fs.remove(run).ok());
    ASSERT_TRUE(fs.create(path).value()->write_at(0, whole).ok());
  }
  MemoryFileSystem other_fs;
  ASSERT_TRUE(Store::create(other_fs, "/s").ok());
  const auto other = Store::open(other_fs, "/s").value();
  ASSERT_TRUE(other_fs.create(join_path(other->index_path(), base_name(path))).value()->write_at(0, whole).ok());
  EXPECT_EQ(ChunkIndex::open(*other, {}, kMemoryBytes).value()->healed().size(), 1u);
}

TEST_F(Index, RunKnowsWhetherItIsWhole) {
  seal(test::numbers_between(1, 50));
  open();
  const std::string path = runs().at(0);
  EXPECT_TRUE(ChunkIndexRun::open(store->backend(), path, store->id()).value()->verify().ok());
  damage(path, 100);
  EXPECT_EQ(ChunkIndexRun::open(store->backend(), path, store->id()).value()->verify().code(), StatusCode::corrupt);
}

TEST_F(Index, RunGivesAllOfOnePrefixAndNoOther) {
  // In one bucket, far more than are usual, some of them equal.
  std::vector<uint64_t> prefixes;
  for (uint64_t i = 0; i < 700; ++i) prefixes.push_back(1'000 + 10 * i);
  for (const uint64_t many : {1'000, 4'000, 7'990}) prefixes.insert(prefixes.end(), 200, many);
  std::sort(prefixes.begin(), prefixes.end());
  const std::string path = join_path(store->index_path(), UniqueId::random().value().hex() + ".run");
  uint32_t next = 0;
  const RunTable table{{UniqueId::random().value()}, RunScope::all(), prefixes.size()};
  ASSERT_TRUE(write_index_run(store->backend(), path, store->id(), table, [&] {
                const ChunkIndexEntry entry{prefixes[next], 0, next, 0};
                ++next;
                return entry;
              }).ok());
  const auto run = ChunkIndexRun::open(store->backend(), path, store->id()).value();
  for (uint64_t prefix = 990; prefix < 8'010; ++prefix) {
    std::vector<ChunkCandidate> found;
    run->find(prefix, found);
    const auto [begin, end] = std::equal_range(prefixes.begin(), prefixes.end(), prefix);
    ASSERT_EQ(found.size(), static_cast<size_t>(end - begin)) << prefix;
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i].pack, static_cast<uint32_t>(begin - prefixes.begin() + static_cast<ptrdiff_t>(i)));
  }
}

TEST_F(Index, RunHoldsPagesThatAreLookedAtOftenAndNotThoseWhereNothingIsFound) {
  constexpr uint64_t entries = 50'000, far = UINT64_MAX / entries;
  const std::string path = join_path(store->index_path(), UniqueId::random().value().hex() + ".run");
  uint32_t next = 0;
  const RunTable table{{UniqueId::random().value()}, RunScope::all(), entries};
  ASSERT_TRUE(write_index_run(store->backend(), path, store->id(), table, [&] {
                const ChunkIndexEntry entry{far * next, 0, next, 0};
                ++next;
                return entry;
              }).ok());
  constexpr int64_t room = 16_MiB;
  const auto budget = std::make_shared<PageBudget>(room);
  const auto run = ChunkIndexRun::open(store->backend(), path, store->id(), budget).value();
  const auto held = [&] {
    int64_t left = room;
    while (left > 0 && !budget->take(left)) left -= 4096;
    budget->give_back(left);
    return room - left;
  };
  const auto look = [&](uint64_t offset) {
    std::vector<ChunkCandidate> found;
    for (uint64_t number = 0; number < entries; ++number) run->find(far * number + offset, found);
    return found.size();
  };
  EXPECT_EQ(look(1), 0u);
  // The filter, and where buckets begin.
  EXPECT_LE(held(), 128 * 1024);
  EXPECT_EQ(look(0), entries);
  EXPECT_GE(held(), 900 * 1024);
}

/// Fails to read what is beyond some bytes of index runs, or to open these at all.
class BadRuns final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (!path.ends_with(".run")) return ForwardingFileSystem::open_read(path);
    if (!opening.ok()) return opening;
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::open_read(path));
    return std::unique_ptr<File>(std::make_unique<BadFile>(std::move(file), good_bytes));
  }
  uint64_t good_bytes = UINT64_MAX;
  Status opening;

 private:
  class BadFile final : public ForwardingFile {
   public:
    BadFile(std::unique_ptr<File> inner, uint64_t good_bytes)
        : ForwardingFile(std::move(inner)), good_bytes_(good_bytes) {}
    Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
      if (offset + into.size() > good_bytes_) return Status::io_error("a bad sector");
      return ForwardingFile::read_at(offset, into);
    }

   private:
    const uint64_t good_bytes_;
  };
};

TEST_F(Index, ThatTheDiskDoesNotGiveFindsNothingAndIsMadeAnew) {
  seal(test::numbers_between(1, 2000));
  open();
  BadRuns bad(fs);
  const auto own = Store::open(bad, "/s").value();
  bad.good_bytes = 8192;
  {
    const auto index = ChunkIndex::open(*own, {}, kMemoryBytes).value();
    std::vector<ChunkCandidate> found;
    for (uint64_t number = 1; number <= 2000; ++number)
      index->find(own->score()(test::numbered_chunk(number)).prefix(), found);
    EXPECT_LT(found.size(), 2000u);
    ASSERT_EQ(runs().size(), 1u);
    const ArenaId arena = seal({5000});
    ASSERT_TRUE(index->add({arena}, {}).ok());
    EXPECT_EQ(index->healed().size(), 1u);
  }
  bad.good_bytes = UINT64_MAX;
  const auto index = open();
  for (const uint64_t number : {1, 1000, 2000}) EXPECT_TRUE(find(*index, number));
}

TEST_F(Index, ThatCannotBeOpenedNowStaysAndStopsNobody) {
  seal({1, 2, 3});
  open();
  const std::vector<std::string> before = runs();
  BadRuns bad(fs);
  const auto own = Store::open(bad, "/s").value();
  for (const Status& refusal : {Status::from_errno(EMFILE, "open", ""), Status::from_errno(EACCES, "open", "")}) {
    bad.opening = refusal;
    const auto index = ChunkIndex::open(*own, {}, kMemoryBytes);
    ASSERT_TRUE(index.ok()) << index.status().to_string();
    EXPECT_FALSE(index.value()->healed().empty());
    EXPECT_TRUE(fs.stat(before.at(0)).ok());
  }
}

TEST_F(Index, ThatCannotBeWrittenStopsNobody) {
  seal({1, 2, 3});
  FaultyFileSystem full(fs, {{.kind = FaultKind::no_space, .at_operation = 0, .persistent = true}});
  const auto own = Store::open(full, "/s").value();
  const auto index = ChunkIndex::open(*own, {}, kMemoryBytes);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(index.value()->incomplete().code(), StatusCode::no_space);
}

TEST_F(Index, HoldsItselfToItsMemory) {
  // More entries than fit: several runs are written, and all is found.
  for (uint64_t first = 1; first <= 400; first += 100) seal(test::numbers_between(first, first + 99));
  const auto index = ChunkIndex::open(*store, {}, 0).value();
  EXPECT_EQ(index->entry_count(), 400u);
  for (uint64_t number = 1; number <= 400; number += 3) EXPECT_TRUE(find(*index, number));
}

TEST_F(Index, LooksIntoManyPacksThroughOneSmallCursor) {
  for (uint64_t number = 1; number <= 200; ++number) seal({number});
  const auto index = ChunkIndex::open(*store, {}, 0).value();
  ChunkIndex::Cursor cursor(*index);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t number = 1; number <= 200; ++number) {
      EXPECT_TRUE(cursor.find(store->score()(test::numbered_chunk(number)), test::kNumberedChunkBytes)) << number;
    }
  }
}

}  // namespace
}  // namespace varve
