#include "engine/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "backend/throttled_backend.h"
#include "core/memory_file_system.h"
#include "engine/repair.h"
#include "sets/saving.h"
#include "sets/stopping_progress.h"
#include "store/prune.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::numbers_between;
using test::save_numbers;
using test::SetMaker;

/// What a copying does that always does the same operations in the same order.
TransferOptions in_turn() {
  TransferOptions options;
  options.thread_count = 1;
  options.direct_io = false;
  return options;
}

TransferOptions recoding(const std::string& policy) {
  TransferOptions options = in_turn();
  options.recode = CodecPolicy::parse(policy).value();
  return options;
}

struct Transferring : testing::Test {
  static std::unique_ptr<Store> new_store(FileSystem& fs) { return test::make_store(fs); }

  Result<TransferReport> copy(const SetName& name, const TransferOptions& options = in_turn()) {
    return copy_set(*from, *to, name, options);
  }
  /// Flips a bit in the middle of an arena's frame of this kind.
  static void damage(FileSystem& fs, const Store& store, const ArenaId& arena, uint64_t offset) {
    const std::string path = store.arena_path(arena);
    ByteVector raw = read_file(fs, path, 64_MiB).value();
    ASSERT_LT(offset, raw.size());
    raw[offset] ^= std::byte{4};
    ASSERT_TRUE(fs.remove(path).ok());
    ASSERT_TRUE(fs.create(path).value()->write_at(0, raw).ok());
    store.drop_arena_cache();
  }
  static uint64_t body_offset(const FrameEntry& entry) { return entry.offset + kFrameHeaderBytes + entry.meta_bytes; }

  /// No set, arena, lease or unfinished file.
  static void expect_untouched(const Store& store) {
    EXPECT_TRUE(Catalog(store).sets().value().empty());
    for (const std::string& folder : {store.arenas_path(), store.writers_path(), store.condemned_path()})
      EXPECT_TRUE(store.backend().list(folder).value().empty()) << folder;
  }

  MemoryFileSystem from_fs, to_fs;
  std::unique_ptr<Store> from = new_store(from_fs), to = new_store(to_fs);
};

TEST_F(Transferring, GivesTheSameSetUnderTheSameScores) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 100)).ok());
  const Result<TransferReport> report = copy({"job", 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const SetRecord there = Catalog(*to).read({"job", 1}).value(), source = Catalog(*from).read({"job", 1}).value();
  EXPECT_EQ(there.groups.at(0).root, source.groups.at(0).root);
  EXPECT_NE(there.groups.at(0).hint, source.groups.at(0).hint);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 100)).ok());
  EXPECT_TRUE(test::is_whole(*to));
  EXPECT_FALSE(report->was_there);
  EXPECT_EQ(report->sent_packs, 13u);
  EXPECT_EQ(report->sent_nodes, 2u);
  EXPECT_EQ(report->held_packs, 0u);
  EXPECT_EQ(report->unchecked_packs, 0u);
  EXPECT_EQ(report->sent_bytes, to->arena(there.groups[0].hint).value()->bytes());
  EXPECT_EQ(there.stored_bytes(), report->sent_bytes);
  EXPECT_EQ(there.new_bytes, 100 * test::kNumberedChunkBytes);
  EXPECT_TRUE(to->backend().list(to->writers_path()).value().empty());
}

TEST_F(Transferring, SaysThatASetIsThereAndDoesNothing) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 50)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  const auto arenas = to->list_arenas().value();
  const Result<TransferReport> again = copy({"job", 1});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(again->sent_bytes + again->sent_packs + again->sent_nodes, 0u);
  EXPECT_EQ(to->list_arenas().value(), arenas);
}

TEST_F(Transferring, SaysSoAlsoWhereAPruneHasMarkedTheArena) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 50)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  ASSERT_TRUE(to_fs.create(join_path(to->condemned_path(), to->list_arenas().value().at(0).hex())).ok());
  const Result<TransferReport> again = copy({"job", 1});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(again->sent_bytes, 0u);
}

TEST_F(Transferring, RefusesToReplaceAnotherSetOfThatName) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 50)).ok());
  ASSERT_TRUE(save_numbers(*to, {"job", 1}, numbers_between(2, 50)).ok());
  const Status refused = copy({"job", 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::already_exists);
  EXPECT_EQ(refused.remedy(), Remedy::drop_set_in_one_store);
  EXPECT_EQ(refused.remedy_argument(), "job@1");
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(2, 50)).ok());
}

TEST_F(Transferring, KnowsASetThatWasSavedAnewByItsContentWhateverPacksItLiesIn) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 50)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  // The first one is dropped, and another has some of it when it is saved again.
  ASSERT_TRUE(Catalog(*from).remove({"job", 1}).ok());
  ASSERT_TRUE(prune_store(*from, {}).ok());
  ASSERT_TRUE(save_numbers(*from, {"other", 1}, numbers_between(20, 30)).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 50)).ok());
  ASSERT_NE(Catalog(*from).read({"job", 1})->groups[0].root, Catalog(*to).read({"job", 1})->groups[0].root);
  const auto arenas = to->list_arenas().value();
  EXPECT_TRUE(sets_lacking(*from, *to, "job").value().empty());
  const Result<TransferReport> again = copy({"job", 1});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(to->list_arenas().value(), arenas);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
  // One chunk more, or another order, is another set.
  for (const auto& numbers : {numbers_between(1, 51), std::vector<uint64_t>(50, 7)}) {
    ASSERT_TRUE(Catalog(*from).remove({"job", 1}).ok());
    ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers).ok());
    EXPECT_EQ(copy({"job", 1}).status().code(), StatusCode::already_exists);
    EXPECT_EQ(sets_lacking(*from, *to, "job").value().size(), 1u);
  }
}

TEST_F(Transferring, RefusesStoresWhoseScoresAreOfOtherKinds) {
  MemoryFileSystem fs;
  ASSERT_TRUE(Store::create(fs, "/s", {.algorithm = ScoreFunction::preferred().algorithm(), .score_bytes = 20}).ok());
  const auto other = Store::open(fs, "/s").value();
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, {1}).ok());
  const Status refused = copy_set(*from, *other, {"job", 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
  EXPECT_EQ(refused.remedy(), Remedy::create_store_with_score_bits);
  EXPECT_EQ(refused.remedy_argument(), "256");
}

TEST_F(Transferring, SaysThatTheSourceHasNoSuchSet) {
  EXPECT_EQ(copy({"job", 1}).status().code(), StatusCode::not_found);
  expect_untouched(*to);
}

TEST_F(Transferring, SendsOnlyWhatTheTargetLacks) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 1000)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 2}, numbers_between(101, 1100)).ok());
  const Result<TransferReport> report = copy({"job", 2});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  const uint64_t stored_bytes = 1000 * (test::kNumberedChunkBytes + 32);
  EXPECT_LE(report->sent_bytes, stored_bytes * 11 / 100);
  EXPECT_EQ(report->sent_packs, 13u);
  EXPECT_EQ(report->held_packs, 113u);
  EXPECT_EQ(report->record.new_bytes, 100 * test::kNumberedChunkBytes);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 2}, numbers_between(101, 1100)).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(Transferring, OfASetWhoseDataAreAllThereWritesItsTreeOnly) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 100)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  ASSERT_TRUE(Catalog(*to).remove({"job", 1}).ok());
  const Result<TransferReport> report = copy({"job", 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->was_there);
  EXPECT_EQ(report->sent_bytes, 0u);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 100)).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(Transferring, DoesNotRelyOnArenasThatAPruneHasMarked) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 40)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  const ArenaId marked = to->list_arenas().value().at(0);
  ASSERT_TRUE(to_fs.create(join_path(to->condemned_path(), marked.hex())).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 2}, numbers_between(1, 48)).ok());
  const Result<TransferReport> report = copy({"job", 2});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->held_packs, 0u);
  EXPECT_EQ(report->sent_packs, 6u);
  ASSERT_TRUE(Catalog(*to).remove({"job", 1}).ok());
  ASSERT_TRUE(prune_store(*to, {}).ok());
  EXPECT_FALSE(to_fs.stat(to->arena_path(marked)).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 2}, numbers_between(1, 48)).ok());
}

TEST_F(Transferring, SendsAPackOfWhichTheTargetHasOtherChunks) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 16)).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 2}, {1, 2, 9, 10}).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 3}, {1, 2, 3, 9}).ok());
  ASSERT_TRUE(copy({"job", 2}).ok());
  PruneOptions thin;
  thin.live_share_min = 0.99;
  ASSERT_TRUE(prune_store(*to, thin).ok());
  uint64_t missing_bytes = 0;
  for (const ArenaId& arena : to->list_arenas().value()) {
    for (const FrameEntry& entry : to->arena(arena).value()->index().packs) missing_bytes += entry.missing_bytes;
  }
  ASSERT_GT(missing_bytes, 0u);
  const Result<TransferReport> report = copy({"job", 3});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->held_packs, 1u);  // that of 9
  EXPECT_EQ(report->sent_packs, 1u);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 2}, {1, 2, 9, 10}).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 3}, {1, 2, 3, 9}).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

/// A set that refers to two copies of one pack, each of which lacks what the other has.
LeafLink lay_two_halves(const Store& store, SetMaker& first, SetMaker& second) {
  PackMeta meta;
  meta.class_key = "made_BYTES";
  meta.recipe = {std::byte{0}};
  const ByteVector a = test::numbered_chunk(1), b = test::numbered_chunk(2);
  for (const ByteVector& chunk : {a, b})
    meta.chunks.push_back({static_cast<uint32_t>(chunk.size()), store.score()(chunk)});
  meta.score = pack_score(store.score(), meta.chunks);
  Leaf leaf;
  meta.held_runs = {1, 1};
  leaf.packs.push_back(first.pack(meta, a));
  meta.held_runs = {0, 1, 1};
  leaf.packs.push_back(second.pack(meta, b));
  leaf.files.push_back(SetMaker::plain_file("numbers", {{0, 0, a.size()}, {1, a.size(), b.size()}}));
  return second.root({second.leaf(leaf)});
}

TEST_F(Transferring, PutsAPackTogetherFromCopiesOfWhichNoneHasAllThatIsNeeded) {
  {
    SetMaker first(*from), second(*from);
    const LeafLink root = lay_two_halves(*from, first, second);
    ASSERT_TRUE(first.seal().ok());
    ASSERT_TRUE(second.commit({"job", 1}, root).ok());
  }
  ASSERT_TRUE(test::check_numbers(*from, {"job", 1}, {1, 2}).ok());
  const Result<TransferReport> report = copy({"job", 1});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->sent_packs, 1u);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, {1, 2}).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(Transferring, RefusesWhatIsDamagedInTheSourceNamesItAndLeavesTheTargetAlone) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 100)).ok());
  const ArenaId arena = from->list_arenas().value().at(0);
  const ArenaIndex index = from->arena(arena).value()->index();
  const auto pristine = from_fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
  std::vector<uint64_t> places = {body_offset(index.packs[6]), index.packs[3].offset + kFrameHeaderBytes + 40};
  for (const FrameEntry& node : index.nodes) places.push_back(body_offset(node));
  for (const bool check_chunks : {true, false}) {
    for (const uint64_t place : places) {
      const auto fs = pristine->after_crash({.kind = CrashPolicy::Kind::keep_all});
      from = test::open_store(*fs);
      damage(*fs, *from, arena, place);
      TransferOptions options = in_turn();
      options.check_chunks = check_chunks;
      const Status refused = copy({"job", 1}, options).status();
      EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
      EXPECT_NE(refused.subject().find(arena.hex()), std::string::npos) << refused.to_string();
      EXPECT_NE(refused.message().find("job@1"), std::string::npos) << refused.to_string();
      expect_untouched(*to);
      from.reset();
    }
  }
}

TEST_F(Transferring, RefusesADamagedRecord) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, {1}).ok());
  const std::string path = Catalog(*from).record_path({"job", 1});
  ByteVector raw = read_file(from_fs, path, 1_MiB).value();
  raw[20] ^= std::byte{1};
  ASSERT_TRUE(from_fs.remove(path).ok());
  ASSERT_TRUE(from_fs.create(path).value()->write_at(0, raw).ok());
  const Status refused = copy({"job", 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::corrupt);
  EXPECT_NE(refused.subject().find("1.set"), std::string::npos) << refused.to_string();
  expect_untouched(*to);
}

/// A set of which one chunk is not what its score says, under checksums that are right.
void save_wrong_chunk(const Store& store) {
  SetMaker maker(store);
  PackMeta meta;
  meta.class_key = "made_BYTES";
  meta.recipe = {std::byte{0}};
  const ByteVector chunk = test::numbered_chunk(1);
  meta.chunks.push_back({static_cast<uint32_t>(chunk.size()), store.score()(chunk)});
  meta.score = pack_score(store.score(), meta.chunks);
  Leaf leaf;
  leaf.packs.push_back(maker.pack(meta, test::numbered_chunk(2)));
  leaf.files.push_back(SetMaker::plain_file("numbers", {{0, 0, chunk.size()}}));
  ASSERT_TRUE(maker.commit({"job", 1}, maker.root({maker.leaf(leaf)})).ok());
}

TEST_F(Transferring, FindsChunksThatDoNotMatchTheirScoresUnlessToldNotToLook) {
  save_wrong_chunk(*from);
  EXPECT_EQ(copy({"job", 1}).status().code(), StatusCode::corrupt);
  expect_untouched(*to);
  TransferOptions trusting = in_turn();
  trusting.check_chunks = false;
  EXPECT_TRUE(copy({"job", 1}, trusting).ok());
}

TEST_F(Transferring, TakesAWholeCopyWhereTheOneThatTheSetNamesIsDamaged) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 8)).ok());
  const ArenaId named = from->list_arenas().value().at(0);
  SetMaker copy_maker(*from);
  std::vector<ByteVector> chunks;
  for (uint64_t number = 1; number <= 8; ++number) chunks.push_back(test::numbered_chunk(number));
  copy_maker.pack(chunks);
  ASSERT_TRUE(copy_maker.seal().ok());
  damage(from_fs, *from, named, body_offset(from->arena(named).value()->index().packs[0]));
  ASSERT_TRUE(copy({"job", 1}).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(Transferring, SendsAgainWhatIsDamagedInTheTargetIfItIsToldToLook) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 40)).ok());
  ASSERT_TRUE(save_numbers(*from, {"job", 2}, numbers_between(1, 48)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  const ArenaId arena = to->list_arenas().value().at(0);
  damage(to_fs, *to, arena, body_offset(to->arena(arena).value()->index().packs[2]));
  TransferOptions careful = in_turn();
  careful.check_held = true;
  const Result<TransferReport> second = copy({"job", 2}, careful);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(second->held_packs, 4u);
  EXPECT_EQ(second->sent_packs, 2u);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 2}, numbers_between(1, 48)).ok());
  // The first set is whole again by this, too.
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 40)).ok());
}

TEST_F(Transferring, MakesGoodWhatASetThatIsThereHasLost) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 40)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  const ArenaId arena = to->list_arenas().value().at(0);
  const FrameEntry root = to->arena(arena).value()->index().nodes.back();
  damage(to_fs, *to, arena, body_offset(root));
  ASSERT_FALSE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 40)).ok());
  const Result<TransferReport> mended = copy({"job", 1});
  ASSERT_TRUE(mended.ok()) << mended.status().to_string();
  EXPECT_TRUE(mended->was_there);
  EXPECT_EQ(mended->sent_nodes, 1u);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 40)).ok());
  ASSERT_TRUE(to_fs.remove(to->arena_path(arena)).ok());
  to->drop_arena_cache();
  ASSERT_TRUE(copy({"job", 1}).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 40)).ok());
  EXPECT_TRUE(test::is_whole(*to));
  // What was made good stays when space is given back.
  ASSERT_TRUE(prune_store(*to, {}).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 40)).ok());
}

TEST_F(Transferring, DoesNotCountOnAnArenaWhoseIndexIsDamaged) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 40)).ok());
  ASSERT_TRUE(copy({"job", 1}).ok());
  const ArenaId arena = to->list_arenas().value().at(0);
  damage(to_fs, *to, arena, to->arena(arena).value()->bytes() - 60);
  ASSERT_TRUE(save_numbers(*from, {"job", 2}, numbers_between(1, 40)).ok());
  const Result<TransferReport> report = copy({"job", 2});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->held_packs, 0u);
}

TEST_F(Transferring, StopsWhenItIsAskedToAndLeavesNothing) {
  test::StoppingProgress progress(1);
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 400)).ok());
  EXPECT_EQ(copy_set(*from, *to, {"job", 1}, in_turn(), progress).status().code(), StatusCode::cancelled);
  expect_untouched(*to);
}

TEST_F(Transferring, OverASlowLinkTakesItsTime) {
  ManualClock clock;
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 1000)).ok());
  ThrottledBackend slow(to->backend(), 100e3, clock);
  const auto target = Store::open(slow).value();
  ASSERT_TRUE(copy_set(*from, *target, {"job", 1}, in_turn()).ok());
  EXPECT_GT(clock.seconds(), 9);
  EXPECT_LT(clock.seconds(), 20);
}

// Parts: what several stores have of one set

struct TransferringParts : Transferring {
  const UniqueId run = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();
  MemoryFileSystem other_fs;
  std::unique_ptr<Store> other = new_store(other_fs);

  PartName part(uint32_t ordinal, uint32_t count = 2) const { return {{"job", 7}, run, ordinal, count}; }
  /// A set of two groups, made of parts as well.
  static void save_two_groups(const Store& store, const UniqueId& of_run) {
    for (uint32_t ordinal = 0; ordinal < 2; ++ordinal) {
      SetMaker maker(store);
      const LeafLink root =
          test::lay_numbers(store, maker, numbers_between(100 * ordinal + 1, 100 * ordinal + 50)).value();
      ASSERT_TRUE(maker.seal().ok());
      SetRecord record;
      record.name = {"job", 7};
      record.rank_count = 1;
      record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
      ASSERT_TRUE(maker.lease().publish_part({record.name, of_run, ordinal, 2}, record).ok());
    }
    ASSERT_TRUE(complete_set(store, of_run, {"job", 7}, 2).ok());
  }
  /// Saves a set of one group in the place of the one that is there, as a run has made it.
  static void save_anew(const Store& store, const std::vector<uint64_t>& numbers, uint64_t number,
                        const UniqueId& made_by) {
    Catalog(store).remove({"job", 7}).ignore("it may be the first");
    SetMaker maker(store);
    const LeafLink root = test::lay_numbers(store, maker, numbers).value();
    ASSERT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = {"job", 7};
    record.number = number;
    record.run = made_by;
    record.rank_count = 1;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    ASSERT_TRUE(maker.lease().commit(record).ok());
  }
};

TEST_F(TransferringParts, MakesOneSetOfWhatSeveralStoresHave) {
  save_two_groups(*from, run);
  ASSERT_TRUE(save_numbers(*other, {"job", 7}, numbers_between(1, 80)).ok());
  const Result<TransferReport> first = copy_part(*from, *to, part(0), in_turn());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(first->record.groups.size(), 2u);
  EXPECT_TRUE(Catalog(*to).sets().value().empty()) << "a part is no set";
  EXPECT_EQ(complete_set(*to, run, {"job", 7}, 2).status().code(), StatusCode::not_found);
  const Result<TransferReport> second = copy_part(*other, *to, part(1), in_turn());
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_GT(second->held_packs, 0u) << "what the first part brought is not sent again";
  const Result<SetRecord> set = complete_set(*to, run, {"job", 7}, 2);
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  ASSERT_EQ(set->groups.size(), 3u);
  EXPECT_EQ(set->groups[0].root, Catalog(*from).read({"job", 7}).value().groups[0].root);
  EXPECT_TRUE(test::check_group_numbers(*to, set->groups[0], numbers_between(1, 50)).ok());
  EXPECT_TRUE(test::check_group_numbers(*to, set->groups[1], numbers_between(101, 150)).ok());
  EXPECT_TRUE(test::check_group_numbers(*to, set->groups[2], numbers_between(1, 80)).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(TransferringParts, GivesEachGroupAnArenaOfItsOwnEvenIfTheTargetHasAllOfIt) {
  save_two_groups(*from, run);
  const Result<TransferReport> first = copy_part(*from, *to, part(0, 1), in_turn());
  ASSERT_TRUE(first.ok());
  const Result<TransferReport> again = copy_part(*from, *to, part(0, 1), in_turn());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(again->sent_bytes, 0u);
  EXPECT_EQ(again->record.groups.at(0).hint, first->record.groups.at(0).hint) << "it is what lies there";
  ASSERT_TRUE(remove_part(*to, part(0, 1)).ok());
  const Result<TransferReport> second = copy_part(*from, *to, part(0, 1), in_turn());
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_EQ(second->sent_packs, 0u);
  std::set<ArenaId> arenas;
  for (const auto* report : {&*first, &*second}) {
    for (const GroupRecord& group : report->record.groups) {
      EXPECT_TRUE(arenas.insert(group.hint).second) << "a part that was there before does not come back the same";
      EXPECT_TRUE(to->arena(group.hint).ok());
    }
  }
  EXPECT_EQ(arenas.size(), 4u);
  ASSERT_TRUE(complete_set(*to, run, {"job", 7}, 1).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(TransferringParts, TakesThePlaceOfOneThatIsLeftOfAnotherSetOfTheStep) {
  const UniqueId earlier_run = UniqueId::parse("ff0102030405060708090a0b0c0d0e0f").value();
  const std::vector<uint64_t> numbers = numbers_between(1, 50);
  save_anew(*other, numbers_between(201, 230), 4, run);
  ASSERT_TRUE(copy_part(*other, *to, part(1), in_turn()).ok());
  const auto leave = [&](const std::vector<uint64_t>& of, uint64_t number, const UniqueId& made_by) {
    save_anew(*from, of, number, made_by);
    ASSERT_TRUE(copy_part(*from, *to, part(0), in_turn()).ok());
  };
  const std::vector<std::function<void()>> earlier = {
      [&] { leave(numbers, 4, earlier_run); },
      [&] { leave(numbers, 3, run); },
      [&] { leave(numbers_between(301, 340), 4, run); },
  };
  for (const auto& leave_one : earlier) {
    leave_one();
    const SetRecord left = read_part(*to, part(0)).value();
    save_anew(*from, numbers, 4, run);
    const Result<TransferReport> report = copy_part(*from, *to, part(0), in_turn());
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->was_there);
    const SetRecord there = read_part(*to, part(0)).value();
    EXPECT_EQ(there.groups.at(0).hint, report->record.groups.at(0).hint);
    EXPECT_NE(there.groups.at(0).hint, left.groups.at(0).hint);
    EXPECT_TRUE(copy_part(*from, *to, part(0), in_turn())->was_there);
  }
  const Result<SetRecord> set = complete_set(*to, run, {"job", 7}, 2);
  ASSERT_TRUE(set.ok()) << set.status().to_string();
  EXPECT_EQ(set->number, 4u);
  EXPECT_EQ(set->run, run);
  EXPECT_TRUE(test::check_group_numbers(*to, set->groups.at(0), numbers).ok());
  EXPECT_TRUE(test::check_group_numbers(*to, set->groups.at(1), numbers_between(201, 230)).ok());
  EXPECT_TRUE(test::is_whole(*to));
}

TEST_F(TransferringParts, StayIfDamageInTheSourceKeepsThemFromBeingCompared) {
  save_anew(*from, numbers_between(1, 50), 4, run);
  ASSERT_TRUE(copy_part(*from, *to, part(0), in_turn()).ok());
  // The same again, but some of it in another set's packs, which are lost then.
  ASSERT_TRUE(Catalog(*from).remove({"job", 7}).ok());
  ASSERT_TRUE(prune_store(*from, {}).ok());
  ASSERT_TRUE(save_numbers(*from, {"other", 1}, numbers_between(20, 30)).ok());
  const ArenaId lost = from->list_arenas().value().at(0);
  save_anew(*from, numbers_between(1, 50), 4, run);
  ASSERT_TRUE(from_fs.remove(from->arena_path(lost)).ok());
  from->drop_arena_cache();
  EXPECT_EQ(copy_part(*from, *to, part(0), in_turn()).status().code(), StatusCode::corrupt);
  const Result<SetRecord> left = read_part(*to, part(0));
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_TRUE(test::check_group_numbers(*to, left->groups.at(0), numbers_between(1, 50)).ok());
}

TEST_F(TransferringParts, AreNotPublishedNorIsASetIfTheyMayNotBe) {
  save_two_groups(*from, run);
  TransferOptions options = in_turn();
  options.may_publish = [] { return Status::busy("another run has taken this job over"); };
  EXPECT_EQ(copy_set(*from, *to, {"job", 7}, options).status().code(), StatusCode::busy);
  EXPECT_EQ(copy_part(*from, *to, part(0), options).status().code(), StatusCode::busy);
  EXPECT_TRUE(Catalog(*to).sets().value().empty());
  EXPECT_TRUE(list_parts(*to).value().empty());
  EXPECT_TRUE(to->backend().list(to->writers_path()).value().empty());
}

TEST_F(TransferringParts, LeavesNothingBehindThatCountsIfTheSourceIsDamaged) {
  save_two_groups(*from, run);
  const auto arena = from->arena(Catalog(*from).read({"job", 7}).value().groups[1].hint).value();
  damage(from_fs, *from, arena->id(), body_offset(arena->index().packs[0]));
  EXPECT_EQ(copy_part(*from, *to, part(0), in_turn()).status().code(), StatusCode::corrupt);
  EXPECT_TRUE(list_parts(*to).value().empty());
  EXPECT_TRUE(to->backend().list(to->writers_path()).value().empty());
}

TEST_F(Transferring, ReplacesAnotherSetOfThatNameOnlyIfItIsTold) {
  ASSERT_TRUE(save_numbers(*from, {"job", 1}, numbers_between(1, 100)).ok());
  ASSERT_TRUE(save_numbers(*to, {"job", 1}, numbers_between(50, 150)).ok());
  EXPECT_EQ(copy({"job", 1}).status().code(), StatusCode::already_exists);
  TransferOptions options = in_turn();
  options.if_exists = IfExists::replace;
  const Result<TransferReport> report = copy({"job", 1}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->was_there);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 100)).ok());
}

/// The same set, saved in two stores by itself.
struct SavedTwice : Transferring {
  /// It has other trees in `sharing`, where other@1 has some of it. Returns that set's arena, of which it needs packs.
  ArenaId save_in(const Store& sharing, const Store& plain) {
    EXPECT_TRUE(save_numbers(sharing, {"other", 1}, numbers_between(17, 32)).ok());
    const ArenaId shared = sharing.list_arenas().value().at(0);
    EXPECT_TRUE(save_numbers(sharing, {"job", 1}, numbers_between(1, 50)).ok());
    EXPECT_TRUE(save_numbers(plain, {"job", 1}, numbers_between(1, 50)).ok());
    EXPECT_FALSE(same_trees(Catalog(*from).read({"job", 1}).value(), Catalog(*to).read({"job", 1}).value()));
    return shared;
  }
  static void lose(FileSystem& fs, const Store& store, const ArenaId& arena) {
    ASSERT_TRUE(fs.remove(store.arena_path(arena)).ok());
    store.drop_arena_cache();
  }
  ContentComparison comparison() const {
    return compare_content(*from, Catalog(*from).read({"job", 1}).value(), *to, Catalog(*to).read({"job", 1}).value());
  }
  static bool says(std::string_view text, std::string_view what) { return text.find(what) != std::string_view::npos; }
  static TransferOptions deeply() {
    TransferOptions options = in_turn();
    options.check_held = true;
    return options;
  }
};

TEST_F(SavedTwice, CannotBeComparedIfTheTargetHasLostSomethingWhichIsToBeDroppedThere) {
  const ArenaId lost = save_in(*to, *from);
  EXPECT_EQ(comparison().sameness, Sameness::same);
  lose(to_fs, *to, lost);
  EXPECT_EQ(comparison().sameness, Sameness::unknown);
  EXPECT_TRUE(comparison().source_unread.ok());
  EXPECT_EQ(comparison().there_unread.code(), StatusCode::corrupt);
  EXPECT_EQ(sets_lacking(*from, *to, "job").value().size(), 1u);
  for (const TransferOptions& options : {in_turn(), deeply()}) {
    const Status refused = copy({"job", 1}, options).status();
    EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
    EXPECT_TRUE(says(refused.message(), "the target, ")) << refused.to_string();
    EXPECT_TRUE(says(refused.subject(), lost.hex())) << refused.to_string();
    EXPECT_TRUE(says(refused.hint(), "drop the damaged one in " + to->path())) << refused.to_string();
  }
  // What the hint says does it.
  ASSERT_TRUE(Catalog(*to).remove({"job", 1}).ok());
  ASSERT_TRUE(copy({"job", 1}, deeply()).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
}

TEST_F(SavedTwice, CannotBeComparedIfTheSourceHasLostSomethingAndTheTargetsIsToBeKept) {
  const ArenaId lost = save_in(*from, *to);
  lose(from_fs, *from, lost);
  EXPECT_EQ(comparison().sameness, Sameness::unknown);
  EXPECT_TRUE(comparison().there_unread.ok());
  EXPECT_EQ(sets_lacking(*from, *to, "job").value().size(), 1u);
  const Status refused = copy({"job", 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
  EXPECT_TRUE(says(refused.message(), "damaged in the source")) << refused.to_string();
  EXPECT_TRUE(says(refused.subject(), lost.hex())) << refused.to_string();
  EXPECT_TRUE(says(refused.hint(), "keep job@1 in " + to->path())) << refused.to_string();
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
}

TEST_F(SavedTwice, IsToBeDroppedNowhereIfBothHaveLostSomething) {
  ASSERT_TRUE(save_numbers(*from, {"another", 1}, numbers_between(1, 8)).ok());
  const ArenaId lost_in_source = from->list_arenas().value().at(0);
  lose(to_fs, *to, save_in(*to, *from));
  lose(from_fs, *from, lost_in_source);
  EXPECT_EQ(comparison().source_unread.code(), StatusCode::corrupt);
  EXPECT_EQ(comparison().there_unread.code(), StatusCode::corrupt);
  const Status refused = copy({"job", 1}).status();
  EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
  EXPECT_TRUE(says(refused.message(), "damaged in both stores")) << refused.to_string();
  EXPECT_TRUE(says(refused.hint(), "drop neither")) << refused.to_string();
}

TEST_F(SavedTwice, IsComparedByWhateverCopyOfATableIsWhole) {
  const ArenaId shared = save_in(*to, *from);
  SetMaker copies(*to);
  for (const uint64_t first : {17, 25}) {
    std::vector<ByteVector> chunks;
    for (uint64_t number = first; number < first + 8; ++number) chunks.push_back(test::numbered_chunk(number));
    copies.pack(chunks);
  }
  ASSERT_TRUE(copies.seal().ok());
  const uint64_t table = to->arena(shared).value()->index().packs[0].offset + kFrameHeaderBytes + 40;
  damage(to_fs, *to, shared, table);
  EXPECT_EQ(comparison().sameness, Sameness::same) << comparison().there_unread.to_string();
  const Result<TransferReport> report = copy({"job", 1}, deeply());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->was_there);
}

TEST_F(SavedTwice, IsReadInTheTargetIfItIsToldToLookAndMendedByARepair) {
  const ArenaId shared = save_in(*to, *from);
  const Result<TransferReport> whole = copy({"job", 1}, deeply());
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_TRUE(whole->was_there);
  damage(to_fs, *to, shared, body_offset(to->arena(shared).value()->index().packs[0]));
  ASSERT_FALSE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
  const Status refused = copy({"job", 1}, deeply()).status();
  EXPECT_EQ(refused.code(), StatusCode::corrupt) << refused.to_string();
  EXPECT_TRUE(says(refused.subject(), shared.hex())) << refused.to_string();
  EXPECT_TRUE(says(refused.hint(), "repair the store " + to->path())) << refused.to_string();
  ASSERT_TRUE(repair_store(*to, {{"from", from.get()}}).ok());
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
  EXPECT_TRUE(copy({"job", 1}, deeply()).ok());
}

TEST_F(SavedTwice, IsReplacedIfItIsDamagedInTheTargetAndMayBe) {
  const ArenaId shared = save_in(*to, *from);
  damage(to_fs, *to, shared, body_offset(to->arena(shared).value()->index().packs[0]));
  TransferOptions options = deeply();
  options.if_exists = IfExists::replace;
  const Result<TransferReport> report = copy({"job", 1}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->was_there);
  EXPECT_TRUE(test::check_numbers(*to, {"job", 1}, numbers_between(1, 50)).ok());
}

TEST_F(Transferring, ListsTheSetsThatTheTargetLacks) {
  for (const SetName& name : {SetName{"a", 1}, SetName{"a", 10}, SetName{"a", 9}, SetName{"b", 2}})
    ASSERT_TRUE(save_numbers(*from, name, {name.step}).ok());
  ASSERT_TRUE(copy({"a", 9}).ok());
  EXPECT_EQ(sets_lacking(*from, *to, "").value(), (std::vector<SetName>{{"a", 1}, {"a", 10}, {"b", 2}}));
  EXPECT_EQ(sets_lacking(*from, *to, "a").value(), (std::vector<SetName>{{"a", 1}, {"a", 10}}));
  EXPECT_TRUE(sets_lacking(*from, *to, "c").value().empty());
}

/// A smooth field, which shrinks best along its dimensions.
ByteVector smooth_field(size_t side, double phase) {
  ByteVector bytes(side * side * 8);
  for (size_t y = 0; y < side; ++y) {
    for (size_t x = 0; x < side; ++x) {
      const double value = 1000 * phase + static_cast<double>(3 * x + 5 * y) + static_cast<double>(x * y) / 64;
      std::memcpy(bytes.data() + 8 * (y * side + x), &value, 8);
    }
  }
  return bytes;
}

/// Two ranks' files of numbers, saved with a codec, and what they were.
struct Recoding : Transferring {
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank)
      test::write_file(folder / ("rank" + std::to_string(rank) + ".dat"), smooth_field(200, rank + 1));
    test::write_file(folder / "notes.txt", test::random_bytes(3000, 9));
    SaveOptions options = test::save_options("run", 1);
    options.variables.layouts.raw = parse_raw_description("f64:200,200").value();
    options.codec = CodecPolicy::parse("zstd:1").value();
    ASSERT_TRUE(save_folder(*from, folder.path(), options, test::layout_service()).ok());
    saved = test::snapshot_of(folder.path());
  }
  void expect_same() {
    EXPECT_EQ(Catalog(*from).read({"run", 1}).value().groups.at(0).root,
              Catalog(*to).read({"run", 1}).value().groups.at(0).root);
    EXPECT_TRUE(test::is_whole(*to));
    EXPECT_TRUE(test::restores_as(*to, {"run", 1}, saved));
  }
  std::set<std::string> chains() {
    std::set<std::string> names;
    for (const ArenaId& id : to->list_arenas().value()) {
      const auto arena = to->arena(id).value();
      for (size_t i = 0; i < arena->index().packs.size(); ++i)
        names.insert(recipe_name(arena->read_pack_meta(i).value().recipe).value());
    }
    return names;
  }

  test::TempFolder folder;
  test::Snapshot saved;
};

TEST_F(Recoding, ShrinksPacksAlongTheirDimensionsAndKeepsAllScores) {
  const Result<TransferReport> report = copy({"run", 1}, recoding("best"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GT(report->recoded_packs, 0u);
  EXPECT_LT(report->recoded_to_bytes, report->recoded_from_bytes / 2);
  EXPECT_EQ(report->record.policy, "best");
  expect_same();
  const std::set<std::string> found = chains();
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const std::string& name) {
    return name.starts_with("lorenzo");
  })) << *found.begin();
}

TEST_F(Recoding, IsAsGoodAsIfTheSetHadBeenSavedThatWay) {
  MemoryFileSystem fs;
  const auto store = new_store(fs);
  SaveOptions options = test::save_options("run", 1);
  options.variables.layouts.raw = parse_raw_description("f64:200,200").value();
  options.codec = CodecPolicy::parse("best").value();
  const Result<SaveReport> direct = save_folder(*store, folder.path(), options, test::layout_service());
  ASSERT_TRUE(direct.ok());
  const Result<TransferReport> report = copy({"run", 1}, recoding("best"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_LE(report->sent_bytes, direct->record.stored_bytes() * 101 / 100);
}

TEST_F(Recoding, KeepsWhatItWouldMakeLarger) {
  const Result<TransferReport> plain = copy({"run", 1});
  ASSERT_TRUE(plain.ok());
  MemoryFileSystem fs;
  to_fs.remove(Catalog(*to).record_path({"run", 1})).ignore("made anew");
  to = new_store(fs);
  const Result<TransferReport> report = copy({"run", 1}, recoding("store"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->recoded_packs, 0u);
  EXPECT_EQ(report->record.policy, "zstd:1");
  EXPECT_EQ(report->sent_bytes, plain->sent_bytes);
  expect_same();
}

TEST_F(Recoding, OnSeveralThreadsIsTheSame) {
  TransferOptions options = recoding("balanced");
  options.thread_count = 4;
  options.memory_bytes = 1;  // one pack at a time
  const Result<TransferReport> report = copy({"run", 1}, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  expect_same();
}

TEST_F(Recoding, WorksOnPacksThatWereThinned) {
  test::write_file(folder / "rank0.dat", smooth_field(200, 5));
  SaveOptions options = test::save_options("run", 2);
  options.variables.layouts.raw = parse_raw_description("f64:200,200").value();
  options.codec = CodecPolicy::parse("zstd:1").value();
  ASSERT_TRUE(save_folder(*from, folder.path(), options, test::layout_service()).ok());
  ASSERT_TRUE(Catalog(*from).remove({"run", 1}).ok());
  PruneOptions thin;
  thin.live_share_min = 0.99;
  ASSERT_TRUE(prune_store(*from, thin).ok());
  const Result<TransferReport> report = copy({"run", 2}, recoding("best"));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(test::is_whole(*to));
  EXPECT_TRUE(test::restores_as(*to, {"run", 2}, test::snapshot_of(folder.path())));
}

}  // namespace
}  // namespace varve
