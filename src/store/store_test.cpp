#include "store/store.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <optional>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "store/stored_copies.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::SetMaker;

std::unique_ptr<Store> new_store(FileSystem& fs, const CreateStoreOptions& options = {}) {
  EXPECT_TRUE(Store::create(fs, "/s", options).ok());
  return Store::open(fs, "/s").value();
}

TEST(StoreFolder, IsMadeOnceAndKeepsItsIdAndScores) {
  MemoryFileSystem fs;
  EXPECT_EQ(Store::open(fs, "/s").status().code(), StatusCode::not_found);
  const auto store = new_store(fs, {.algorithm = ScoreAlgorithm::sha256, .score_bytes = 20});
  EXPECT_EQ(store->score().algorithm(), ScoreAlgorithm::sha256);
  EXPECT_EQ(store->score().score_bytes(), 20u);
  EXPECT_EQ(Store::open(fs, "/s").value()->id(), store->id());
  EXPECT_EQ(Store::create(fs, "/s").code(), StatusCode::already_exists);
}

TEST(StoreFolder, IsNotMadeWhereSomethingElseIs) {
  MemoryFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/s").ok());
  ASSERT_TRUE(fs.create("/s/thesis.tex").ok());
  EXPECT_EQ(Store::create(fs, "/s").code(), StatusCode::already_exists);
  EXPECT_EQ(fs.list("/s").value().size(), 1u);
}

TEST(StoreFolder, IsMadeOverTheDraftOfAHeaderButOverNoOtherTemporaryFile) {
  MemoryFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/s").ok());
  const std::string draft = store_header_path("/s") + "." + UniqueId::random().value().hex() + ".tmp";
  for (const std::string& left : {draft, std::string("/s/x.tmp")}) ASSERT_TRUE(fs.create(left).ok());
  EXPECT_EQ(Store::create(fs, "/s").code(), StatusCode::already_exists) << "x.tmp is somebody's";
  EXPECT_EQ(fs.list("/s").value().size(), 2u);
  ASSERT_TRUE(fs.remove("/s/x.tmp").ok());
  EXPECT_TRUE(Store::create(fs, "/s").ok());
  EXPECT_TRUE(Store::open(fs, "/s").ok());
}

/// Has something happen right before a new file gets its name.
class BusyFileSystem final : public ForwardingFileSystem {
 public:
  BusyFileSystem(FileSystem& inner, std::function<void()> other)
      : ForwardingFileSystem(inner), other_(std::move(other)) {}
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    other_();
    return ForwardingFileSystem::rename_no_replace(from, to);
  }

 private:
  const std::function<void()> other_;
};

TEST(StoreFolder, IsOnesIfTwoMakeItAtTheSameTime) {
  MemoryFileSystem fs;
  std::optional<UniqueId> first;
  BusyFileSystem second(fs, [&] { first = new_store(fs)->id(); });
  EXPECT_EQ(Store::create(second, "/s").code(), StatusCode::already_exists);
  EXPECT_EQ(Store::open(fs, "/s").value()->id(), first);
}

TEST(StoreFolder, IsNotMadeOfOneThatHasLostItsHeader) {
  MemoryFileSystem fs;
  ASSERT_TRUE(test::save_numbers(*new_store(fs), {"job", 1}, {1}).ok());
  ASSERT_TRUE(fs.remove(store_header_path("/s")).ok());
  EXPECT_EQ(Store::create(fs, "/s").code(), StatusCode::already_exists);
}

TEST(StoreFolder, SurvivesAPowerCutOnceItIsMade) {
  MemoryFileSystem fs;
  new_store(fs);
  const auto left = fs.after_crash({.kind = CrashPolicy::Kind::drop_unsynced});
  const auto store = Store::open(*left, "/s");
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  EXPECT_TRUE(test::save_numbers(**store, {"job", 1}, {1, 2, 3}).ok());
}

TEST(StoreFolder, IsAStoreOrNotWhereverItsMakingCrashes) {
  for (uint64_t at = 0;; ++at) {
    MemoryFileSystem fs;
    {
      FaultyFileSystem faulty(fs, {{.kind = FaultKind::crash, .at_operation = at, .persistent = true, .seed = at}});
      if (Store::create(faulty, "/s").ok()) break;
    }
    std::vector<CrashPolicy> policies = {{.kind = CrashPolicy::Kind::keep_all},
                                         {.kind = CrashPolicy::Kind::drop_unsynced}};
    for (uint64_t seed = 0; seed < 40; ++seed) policies.push_back({.kind = CrashPolicy::Kind::torn, .seed = seed});
    for (const CrashPolicy& policy : policies) {
      const auto left = fs.after_crash(policy);
      const auto store = Store::open(*left, "/s");
      if (store.ok()) {
        EXPECT_TRUE(test::save_numbers(**store, {"job", 1}, {1}).ok());
      } else {
        EXPECT_EQ(store.status().code(), StatusCode::not_found) << store.status().to_string();
        const Status again = Store::create(*left, "/s");
        EXPECT_TRUE(again.ok()) << again.to_string();
      }
    }
  }
}

TEST(StoreFolder, GetsFoldersBackThatACopyHasLeftOutSinceTheyWereEmpty) {
  MemoryFileSystem fs;
  ASSERT_TRUE(Store::create(fs, "/s").ok());
  for (const std::string_view folder : kStoreFolders)
    ASSERT_TRUE(fs.remove_directory(join_path("/s", std::string(folder))).ok());
  const auto store = Store::open(fs, "/s");
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  const Status saved = test::save_numbers(**store, {"job", 1}, {1, 2}, 1);
  EXPECT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_TRUE(test::check_numbers(**store, {"job", 1}, {1, 2}).ok());
}

TEST(StoreFolder, OfEitherScoreLengthHoldsSets) {
  for (size_t score_bytes : {size_t{20}, size_t{32}}) {
    MemoryFileSystem fs;
    const auto store = new_store(fs, {.algorithm = ScoreAlgorithm::sha256, .score_bytes = score_bytes});
    ASSERT_TRUE(test::save_numbers(*store, {"job", 1}, test::numbers_between(1, 30)).ok());
    EXPECT_TRUE(test::check_numbers(*store, {"job", 1}, test::numbers_between(1, 30)).ok());
  }
}

TEST(StoredPack, IsFoundWhereverItIsWhateverTheHint) {
  MemoryFileSystem fs;
  const auto store = new_store(fs);
  SetMaker first(*store), second(*store);
  const PackLink pack = first.pack({test::numbered_chunk(1)});
  second.pack({test::numbered_chunk(2)});
  ASSERT_TRUE(first.seal().ok());
  ASSERT_TRUE(second.seal().ok());
  for (const ArenaId& hint : {first.arena(), second.arena(), UniqueId::random().value()}) {
    EXPECT_TRUE(read_pack(*store, {pack.score, hint}, {}).ok());
  }
  const Status missing = read_pack(*store, {Score{}, first.arena()}, {}).status();
  EXPECT_EQ(missing.code(), StatusCode::corrupt);
  EXPECT_FALSE(missing.subject().empty());
}

TEST(StoredPack, IsDamagedIfItsArenaIsMissing) {
  MemoryFileSystem fs;
  const auto store = new_store(fs);
  SetMaker maker(*store);
  const PackLink pack = maker.pack({test::numbered_chunk(1)});
  ASSERT_TRUE(maker.seal().ok());
  EXPECT_TRUE(check_pack_is_there(*store, pack).ok());
  ASSERT_TRUE(fs.remove(store->arena_path(pack.hint)).ok());
  store->drop_arena_cache();
  EXPECT_TRUE(find_pack_copies(*store, pack.score, pack.hint).value().empty());
  const Status outcomes[] = {read_pack(*store, pack, {}).status(), read_node(*store, Score{}, pack.hint).status(),
                             check_pack_is_there(*store, pack)};
  for (const Status& outcome : outcomes) {
    EXPECT_EQ(outcome.code(), StatusCode::corrupt);
    EXPECT_EQ(outcome.subject(), store->arena_path(pack.hint));
    EXPECT_FALSE(outcome.hint().empty());
  }
}

TEST(StoredPack, IsTakenFromAnotherArenaIfOneCopyIsDamagedOrLacksChunks) {
  MemoryFileSystem fs;
  const auto store = new_store(fs);
  SetMaker damaged(*store), whole(*store), thin(*store);
  const ByteVector a = test::numbered_chunk(1), b = test::numbered_chunk(2);
  const PackLink pack = damaged.pack({a, b});
  whole.pack({a, b});
  {
    PackMeta meta;
    meta.class_key = "made_BYTES";
    meta.recipe = {std::byte{0}};
    for (const ByteVector& chunk : {a, b})
      meta.chunks.push_back({static_cast<uint32_t>(chunk.size()), store->score()(chunk)});
    meta.score = pack.score;
    meta.held_runs = {1, 1};
    thin.pack(meta, a);
  }
  for (SetMaker* maker : {&damaged, &whole, &thin}) ASSERT_TRUE(maker->seal().ok());
  ByteVector raw = read_file(fs, store->arena_path(damaged.arena()), 1_MiB).value();
  raw[500] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(store->arena_path(damaged.arena())).ok());
  ASSERT_TRUE(fs.create(store->arena_path(damaged.arena())).value()->write_at(0, raw).ok());
  const Extent all{0, a.size() + b.size()};
  for (const ArenaId& hint : {damaged.arena(), thin.arena(), whole.arena()}) {
    Result<Pack> found = read_pack(*store, {pack.score, hint}, std::span(&all, 1));
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_TRUE(found->range(0, all.bytes).ok());
  }
}

SetRecord arbitrary_record(const ScoreFunction& score) {
  SetRecord record;
  record.name = {"job", *rc::gen::arbitrary<uint64_t>()};
  record.created_s = *rc::gen::arbitrary<int64_t>();
  record.scheme = *rc::gen::arbitrary<std::string>();
  record.policy = "balanced";
  record.chunker = "fixed:8192";
  record.match = *rc::gen::arbitrary<std::string>();
  record.rank_count = *rc::gen::arbitrary<uint64_t>();
  record.file_count = *rc::gen::arbitrary<uint64_t>();
  record.raw_bytes = *rc::gen::arbitrary<uint64_t>();
  record.new_bytes = *rc::gen::arbitrary<uint64_t>();
  for (auto count = *rc::gen::inRange<uint64_t>(0, 10); count > 0; --count) {
    record.groups.push_back(
        {score(as_bytes(std::to_string(count))), UniqueId::random().value(), *rc::gen::arbitrary<uint64_t>()});
  }
  return record;
}

RC_GTEST_PROP(SetRecord, ComesBackAsItWasAndIsRefusedDamagedOrCutOff, ()) {
  const ScoreFunction score = ScoreFunction::create(ScoreAlgorithm::sha256, *rc::gen::element<size_t>(20, 32)).value();
  const SetRecord record = arbitrary_record(score);
  const ByteVector raw = encode_set_record(record, score);
  const Result<SetRecord> decoded = decode_set_record(raw, score);
  RC_ASSERT(decoded.ok());
  RC_ASSERT(decoded->name == record.name);
  RC_ASSERT(decoded->created_s == record.created_s);
  RC_ASSERT(decoded->scheme == record.scheme && decoded->policy == record.policy);
  RC_ASSERT(decoded->chunker == record.chunker && decoded->match == record.match);
  RC_ASSERT(decoded->rank_count == record.rank_count && decoded->file_count == record.file_count);
  RC_ASSERT(decoded->raw_bytes == record.raw_bytes && decoded->new_bytes == record.new_bytes);
  RC_ASSERT(std::equal(decoded->groups.begin(), decoded->groups.end(), record.groups.begin(), record.groups.end(),
                       [](const GroupRecord& a, const GroupRecord& b) {
                         return a.root == b.root && a.hint == b.hint && a.arena_bytes == b.arena_bytes;
                       }));
  for (size_t bytes = 0; bytes < raw.size(); ++bytes)
    RC_ASSERT(!decode_set_record(ByteSpan(raw).first(bytes), score).ok());
  for (size_t bit = *rc::gen::inRange<size_t>(0, 8); bit < 8 * raw.size(); bit += 8) {
    ByteVector damaged = raw;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    RC_ASSERT(!decode_set_record(damaged, score).ok());
  }
}

TEST(SetRecord, OfANewerVersionIsUnsupported) {
  const ScoreFunction score = ScoreFunction::preferred();
  SetRecord record;
  record.name = {"job", 1};
  ByteVector raw = encode_set_record(record, score);
  raw[8] = std::byte{3};
  raw.resize(raw.size() - score.score_bytes());
  const Score sum = score(raw);
  ByteWriter w(raw);
  write_score(w, sum, score.score_bytes());
  EXPECT_EQ(decode_set_record(raw, score).status().code(), StatusCode::unsupported);
}

TEST(JobName, IsWhatAFileMayBeCalled) {
  for (const char* good : {"run", "a.b", "enzo cosmology", "x-1", "\xc3\xa4", "1"})
    EXPECT_TRUE(check_job_name(good).ok()) << good;
  for (const char* bad : {"", ".", "..", ".hidden", "-x", "a/b", "a@b", "a\nb", "a\x7f"})
    EXPECT_FALSE(check_job_name(bad).ok()) << bad;
  EXPECT_TRUE(check_job_name(std::string(100, 'x')).ok());
  EXPECT_FALSE(check_job_name(std::string(101, 'x')).ok());
}

struct CatalogTest : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = new_store(fs);
  Catalog catalog{*store};
};

TEST_F(CatalogTest, ListsSetsByJobAndStep) {
  for (const SetName& name :
       {SetName{"b", 10}, SetName{"a", 7}, SetName{"b", 9}, SetName{"b", UINT64_MAX}, SetName{"b", 0}}) {
    ASSERT_TRUE(test::save_numbers(*store, name, {1}).ok());
  }
  EXPECT_EQ(catalog.jobs().value(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(catalog.steps("b").value(), (std::vector<uint64_t>{0, 9, 10, UINT64_MAX}));
  EXPECT_TRUE(catalog.steps("c").value().empty());
  const std::vector<SetName> all = {{"a", 7}, {"b", 0}, {"b", 9}, {"b", 10}, {"b", UINT64_MAX}};
  EXPECT_EQ(catalog.sets().value(), all);
}

TEST_F(CatalogTest, KnowsInWhichOrderSetsWereCommitted) {
  for (const uint64_t step : {9u, 10u, 3u, 12u, 4u}) ASSERT_TRUE(test::save_numbers(*store, {"a", step}, {1}).ok());
  ASSERT_TRUE(catalog.remove({"a", 12}).ok());
  EXPECT_EQ(catalog.steps_by_age("a").value(), (std::vector<uint64_t>{9, 10, 3, 4}));
  EXPECT_TRUE(catalog.steps_by_age("c").value().empty());
}

TEST_F(CatalogTest, IgnoresWhatIsNotARecordsName) {
  ASSERT_TRUE(test::save_numbers(*store, {"a", 7}, {1}).ok());
  for (const char* name : {"08.set", "+8.set", "8.set.tmp", "x.set", ".set", "99999999999999999999.set", "8 .set"}) {
    ASSERT_TRUE(fs.create("/s/sets/a/" + std::string(name)).ok());
  }
  ASSERT_TRUE(fs.create("/s/sets/file").ok());
  ASSERT_TRUE(fs.create_directory("/s/sets/.hidden").ok());
  EXPECT_EQ(catalog.sets().value(), (std::vector<SetName>{{"a", 7}}));
}

TEST_F(CatalogTest, ResolvesJobAndStepOrTheNewest) {
  ASSERT_TRUE(test::save_numbers(*store, {"a", 7}, {1}).ok());
  ASSERT_TRUE(test::save_numbers(*store, {"a", 30}, {1}).ok());
  EXPECT_EQ(catalog.resolve("a").value(), (SetName{"a", 30}));
  EXPECT_EQ(catalog.resolve("a@7").value(), (SetName{"a", 7}));
  EXPECT_EQ(catalog.resolve("a@0007").value(), (SetName{"a", 7}));
  EXPECT_EQ(catalog.resolve("a@8").status().code(), StatusCode::not_found);
  EXPECT_EQ(catalog.resolve("b").status().code(), StatusCode::not_found);
  EXPECT_EQ(catalog.resolve("a@7x").status().code(), StatusCode::not_found) << "it may be a tag";
  for (const char* bad : {"a@x!", "a@", "a@b/c", "../a@1", "../a@x"}) {
    EXPECT_EQ(catalog.resolve(bad).status().code(), StatusCode::invalid_argument) << bad;
  }
}

TEST_F(CatalogTest, RemovesASetAndTheLastOnesFolder) {
  ASSERT_TRUE(test::save_numbers(*store, {"a", 1}, {1}).ok());
  ASSERT_TRUE(test::save_numbers(*store, {"a", 2}, {1}).ok());
  ASSERT_TRUE(catalog.remove({"a", 1}).ok());
  EXPECT_EQ(catalog.remove({"a", 1}).code(), StatusCode::not_found);
  EXPECT_EQ(catalog.read({"a", 1}).status().code(), StatusCode::not_found);
  EXPECT_TRUE(catalog.read({"a", 2}).ok());
  ASSERT_TRUE(catalog.remove({"a", 2}).ok());
  EXPECT_TRUE(catalog.jobs().value().empty());
  EXPECT_TRUE(test::save_numbers(*store, {"a", 3}, {1}).ok());
}

}  // namespace
}  // namespace varve
