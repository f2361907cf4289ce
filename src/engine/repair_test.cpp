#include "engine/repair.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "core/paused_file_system.h"
#include "engine/transfer.h"
#include "sets/fault_kinds.h"
#include "sets/saving.h"
#include "sets/stopping_progress.h"
#include "store/condemn.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::check_numbers;
using test::numbers_between;
using test::rewrite;
using test::save_numbers;

const SetName kFirst{"job", 1}, kSecond{"job", 2};

RepairOptions at_once() {
  RepairOptions options;
  options.thread_count = 1;
  options.wait_seconds = 0;
  return options;
}

/// A store with two sets that share chunks, in an arena each, and a deeper level that has both.
struct Repairing : testing::Test {
  void SetUp() override {
    ASSERT_TRUE(save_numbers(*near, kFirst, numbers_between(1, 40)).ok());
    ASSERT_TRUE(save_numbers(*near, kSecond, numbers_between(21, 60)).ok());
    for (const SetName& name : {kFirst, kSecond}) ASSERT_TRUE(copy_set(*near, *far, name).ok());
  }
  Result<RepairReport> repair(const std::vector<RepairSource>& sources) {
    near->drop_arena_cache();
    return repair_store(*near, sources, at_once());
  }
  std::vector<RepairSource> from_far() const { return {{"far", far.get()}}; }
  void flip_near(uint64_t offset, const ArenaId& arena) {
    rewrite(near_fs, near->arena_path(arena), [&](ByteVector& raw) { raw.at(offset) ^= std::byte{16}; });
    near->drop_arena_cache();
  }
  std::shared_ptr<ArenaReader> arena_of(const SetName& name) const {
    return near->arena(Catalog(*near).read(name).value().groups.at(0).hint).value();
  }
  void expect_whole() const {
    EXPECT_TRUE(check_numbers(*near, kFirst, numbers_between(1, 40)).ok());
    EXPECT_TRUE(check_numbers(*near, kSecond, numbers_between(21, 60)).ok());
    EXPECT_TRUE(test::is_whole(*near));
  }

  MemoryFileSystem near_fs, far_fs;
  std::unique_ptr<Store> near = test::make_store(near_fs), far = test::make_store(far_fs);
};

TEST_F(Repairing, ChangesNothingInAWholeStore) {
  const auto arenas = near->list_arenas().value();
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->before.whole());
  EXPECT_TRUE(report->mended.empty());
  EXPECT_EQ(near->list_arenas().value(), arenas);
}

TEST_F(Repairing, RestsARecordThatWasLostOnNothingThatAPruneMayBeAboutToRemove) {
  std::set<ArenaId> marked;
  for (const ArenaId& arena : near->list_arenas().value()) marked.insert(arena);
  ASSERT_TRUE(near_fs.remove(Catalog(*near).record_path(kFirst)).ok());
  ASSERT_TRUE(condemn_arenas(*near, marked).ok());
  const Result<SetRepair> mended = repair_set(*near, kFirst, from_far(), at_once());
  ASSERT_TRUE(mended.ok() && mended->lost.ok()) << mended.status().to_string();
  // A prune that had seen the set dropped.
  for (const ArenaId& arena : marked) ASSERT_TRUE(near_fs.remove(near->arena_path(arena)).ok());
  near->drop_arena_cache();
  EXPECT_TRUE(check_numbers(*near, kFirst, numbers_between(1, 40)).ok());
}

TEST(Repair, StopsInsideAnArena) {
  test::StoppingProgress progress(1);
  MemoryFileSystem fs;
  const std::unique_ptr<Store> store = test::make_store(fs);
  ASSERT_TRUE(save_numbers(*store, kFirst, numbers_between(1, 400)).ok());
  ASSERT_EQ(store->list_arenas()->size(), 1u);
  EXPECT_EQ(repair_store(*store, {}, at_once(), progress).status().code(), StatusCode::cancelled);
}

TEST_F(Repairing, TakesADamagedPackFromAnotherLevel) {
  const FrameEntry pack = arena_of(kFirst)->index().packs.at(3);
  const ArenaId arena = arena_of(kFirst)->id();
  flip_near(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7, arena);
  EXPECT_FALSE(test::is_whole(*near));
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->before.whole());
  EXPECT_TRUE(report->after.whole());
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].source, "far");
  EXPECT_EQ(report->mended[0].packs, 1u);
  EXPECT_GT(report->mended[0].bytes, 1000u);
  EXPECT_EQ(report->removed_arenas, 1u);
  const auto arenas = near->list_arenas().value();
  EXPECT_EQ(std::count(arenas.begin(), arenas.end(), arena), 0) << "what is damaged is gone";
  expect_whole();
}

TEST_F(Repairing, MendsWhateverByteOfAnArenaIsDamaged) {
  const std::shared_ptr<ArenaReader> arena = arena_of(kSecond);
  const uint64_t bytes = arena->bytes();
  const ArenaId id = arena->id();
  const auto pristine = near_fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
  for (uint64_t offset = 0; offset < bytes; offset += 97) {
    const auto fs = pristine->after_crash({.kind = CrashPolicy::Kind::keep_all});
    const auto store = test::open_store(*fs);
    rewrite(*fs, store->arena_path(id), [&](ByteVector& raw) { raw.at(offset) ^= std::byte{1}; });
    const auto report = repair_store(*store, from_far(), at_once());
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    ASSERT_TRUE(report->after.whole()) << "offset " << offset;
    ASSERT_TRUE(check_numbers(*store, kSecond, numbers_between(21, 60)).ok()) << "offset " << offset;
    ASSERT_TRUE(check_numbers(*store, kFirst, numbers_between(1, 40)).ok()) << "offset " << offset;
  }
}

TEST_F(Repairing, BringsBackArenasAndRecordsThatAreGone) {
  for (const ArenaId& arena : near->list_arenas().value()) ASSERT_TRUE(near_fs.remove(near->arena_path(arena)).ok());
  rewrite(near_fs, Catalog(*near).record_path(kFirst), [](ByteVector& raw) { raw.resize(raw.size() / 2); });
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->after.whole());
  EXPECT_EQ(report->mended_sets, (std::vector<SetName>{kFirst, kSecond}));
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].records, 1u);
  EXPECT_EQ(report->mended[0].nodes, 4u);
  expect_whole();
}

TEST_F(Repairing, KnowsARecordOfWhicheverVersionByItsBeginning) {
  rewrite(near_fs, Catalog(*near).record_path(kFirst), [](ByteVector& raw) {
    raw.at(std::string_view("VARVESET").size()) = std::byte{1};
    raw.resize(raw.size() / 2);
  });
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->mended_sets, std::vector<SetName>{kFirst});
  expect_whole();
}

TEST_F(Repairing, RefusesARecordOfWhichNothingIsLeft) {
  rewrite(near_fs, Catalog(*near).record_path(kFirst), [](ByteVector& raw) { raw.clear(); });
  const Result<SetRepair> repaired = repair_set(*near, kFirst, from_far(), at_once());
  EXPECT_EQ(repaired.status().code(), StatusCode::corrupt);
  EXPECT_NE(repaired.status().hint().find("drop the damaged one, and copy it"), std::string::npos);
}

TEST_F(Repairing, ReplacesNoSetThatWasMadeAnewWhileItMended) {
  const std::string record = Catalog(*near).record_path(kFirst);
  rewrite(near_fs, record, [](ByteVector& raw) { raw.back() ^= std::byte{1}; });
  uint64_t made_anew = 0, overtaken = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("paused before operation " + std::to_string(at));
    const auto copy = near_fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
    bool saved = false;
    PausedFileSystem paused(*copy, at, [&] {
      const auto own = Store::open(*copy, near->backend().root()).value();
      (void)Catalog(*own).remove(kFirst);
      saved = save_numbers(*own, kFirst, numbers_between(1001, 1040)).ok();
    });
    bool mended = false;
    {
      const auto own = Store::open(paused, near->backend().root()).value();
      const Result<SetRepair> repaired = repair_set(*own, kFirst, from_far(), at_once());
      mended = repaired.ok() && repaired->lost.ok() && !repaired->mended.empty();
    }
    if (!paused.paused()) {
      EXPECT_TRUE(mended);
      break;
    }
    if (!saved) continue;
    if (mended) {
      ++overtaken;
      continue;
    }
    const auto left = Store::open(*copy, near->backend().root()).value();
    EXPECT_TRUE(check_numbers(*left, kFirst, numbers_between(1001, 1040)).ok());
    ++made_anew;
  }
  EXPECT_GT(made_anew, 5u);
  EXPECT_LE(overtaken, 3u) << "its last look, once it has opened the record, and the commit right behind it are left";
}

TEST_F(Repairing, BringsBackNoSetThatWasDroppedMeanwhile) {
  test::PhaseProgress progress([&](std::string_view phase) {
    if (phase == "looking at " + kFirst.to_string()) {
      EXPECT_TRUE(Catalog(*near).remove(kSecond).ok());
    }
    return false;
  });
  for (const ArenaId& arena : near->list_arenas().value()) ASSERT_TRUE(near_fs.remove(near->arena_path(arena)).ok());
  near->drop_arena_cache();
  const auto report = repair_store(*near, from_far(), at_once(), progress);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->mended_sets, std::vector<SetName>{kFirst});
  EXPECT_EQ(Catalog(*near).sets().value(), std::vector<SetName>{kFirst});
}

TEST_F(Repairing, TakesNoOtherSetOfTheSameNameForADamagedRecord) {
  ASSERT_TRUE(Catalog(*near).remove(kFirst).ok());
  {
    test::SetMaker maker(*near);
    const LeafLink root = test::lay_numbers(*near, maker, numbers_between(1001, 1040)).value();
    SetRecord record;
    record.name = kFirst;
    record.created_s = Catalog(*far).read(kFirst)->created_s + 7;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    ASSERT_TRUE(maker.seal().ok());
    ASSERT_TRUE(maker.lease().commit(record).ok());
  }
  rewrite(near_fs, Catalog(*near).record_path(kFirst), [](ByteVector& raw) { raw.back() ^= std::byte{1}; });
  const Result<SetRepair> repaired = repair_set(*near, kFirst, from_far(), at_once());
  EXPECT_EQ(repaired.status().code(), StatusCode::corrupt);
  EXPECT_NE(repaired.status().hint().find("the set of that name in far"), std::string::npos)
      << repaired.status().to_string();
  EXPECT_EQ(Catalog(*near).read(kFirst).status().code(), StatusCode::corrupt) << "nothing took its place";
}

TEST_F(Repairing, MendsANodeThatSeveralGroupsShare) {
  const SetName twins{"twins", 1};
  {
    test::SetMaker maker(*near);
    const LeafLink root = test::lay_numbers(*near, maker, numbers_between(100, 110)).value();
    ASSERT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = twins;
    record.groups.assign(2, GroupRecord{root.score, root.hint, maker.writer().bytes()});
    ASSERT_TRUE(maker.lease().commit(record).ok());
  }
  ASSERT_TRUE(copy_set(*near, *far, twins).ok());
  ASSERT_TRUE(near_fs.remove(near->arena_path(arena_of(twins)->id())).ok());
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->after.whole());
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].nodes, 2u);
  expect_whole();
}

TEST_F(Repairing, PutsAPackTogetherFromChunksOfOtherSets) {
  // A third set has the chunks of the first one's second pack, in packs of its own, as two writers make that do not see
  // each other.
  const auto apart = test::make_store(far_fs, "/apart");
  ASSERT_TRUE(save_numbers(*apart, {"other", 1}, numbers_between(5, 30)).ok());
  ASSERT_TRUE(copy_set(*apart, *near, {"other", 1}).ok());
  const FrameEntry pack = arena_of(kFirst)->index().packs.at(1);
  flip_near(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7, arena_of(kFirst)->id());
  const auto report = repair({});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->after.whole());
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].source, kOwnChunks);
  expect_whole();
}

TEST_F(Repairing, TakesFromEachLevelWhatItHas) {
  const auto farther = test::make_store(far_fs, "/farther");
  ASSERT_TRUE(copy_set(*near, *farther, kSecond).ok());
  // The first level lost the arena of one set, the second one has only that set.
  ASSERT_TRUE(far_fs.remove(far->arena_path(Catalog(*far).read(kSecond).value().groups.at(0).hint)).ok());
  far->drop_arena_cache();
  for (const ArenaId& arena : near->list_arenas().value()) ASSERT_TRUE(near_fs.remove(near->arena_path(arena)).ok());
  const auto report = repair({{"far", far.get()}, {"farther", farther.get()}});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->after.whole());
  EXPECT_EQ(report->mended.size(), 2u);
  expect_whole();
}

TEST_F(Repairing, LeavesWhatNobodyHasAndSaysSo) {
  const FrameEntry pack = arena_of(kFirst)->index().packs.at(0);
  flip_near(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7, arena_of(kFirst)->id());
  const auto report = repair({});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_FALSE(report->after.whole());
  EXPECT_TRUE(report->mended_sets.empty());
  EXPECT_TRUE(check_numbers(*near, kSecond, numbers_between(21, 60)).ok());
  EXPECT_EQ(check_numbers(*near, kFirst, numbers_between(1, 40)).code(), StatusCode::corrupt);
  // Later a level turns up that has it.
  ASSERT_TRUE(repair(from_far())->after.whole());
  expect_whole();
}

/// Flips a byte in the bodies of the packs of an arena that have these ordinals; returns their scores.
std::vector<Score> flip_packs(FileSystem& fs, const ArenaReader& arena, const std::vector<size_t>& ordinals) {
  std::vector<Score> scores;
  for (const size_t ordinal : ordinals) {
    const FrameEntry& pack = arena.index().packs.at(ordinal);
    rewrite(fs, arena.path(),
            [&](ByteVector& raw) { raw.at(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7) ^= std::byte{16}; });
    scores.push_back(pack.score);
  }
  return scores;
}

size_t harmful_count(const VerifyReport& report) {
  return static_cast<size_t>(std::count_if(report.damages.begin(), report.damages.end(),
                                           [](const Damage& damage) { return !damage.affected_sets.empty(); }));
}

TEST_F(Repairing, MendsTheOtherPacksOfASetIfNobodyHasOne) {
  const std::vector<Score> lost = flip_packs(near_fs, *arena_of(kFirst), {0, 1, 3});
  for (const ArenaId& id : far->list_arenas().value()) {
    const auto arena = far->arena(id).value();
    if (const auto ordinal = arena->find_pack(lost[1])) flip_packs(far_fs, *arena, {*ordinal});
  }
  far->drop_arena_cache();
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_GE(harmful_count(report->before), 3u);
  EXPECT_FALSE(report->after.whole());
  EXPECT_EQ(harmful_count(report->after), 1u);
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].packs, 2u);
  EXPECT_EQ(report->partly_mended_sets, (std::vector<SetName>{kFirst}));
  EXPECT_TRUE(std::find(report->mended_sets.begin(), report->mended_sets.end(), kFirst) == report->mended_sets.end());
  // Nothing is left to be done until somebody turns up who has the last one.
  const auto again = repair(from_far());
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(again->mended.empty());
  EXPECT_EQ(harmful_count(again->after), 1u);
  const auto farther = test::make_store(far_fs, "/farther");
  ASSERT_TRUE(save_numbers(*farther, kFirst, numbers_between(1, 40)).ok());
  ASSERT_TRUE(repair({{"farther", farther.get()}})->after.whole());
  expect_whole();
}

TEST_F(Repairing, MendsTheOtherPacksOfASetIfNobodyHasATreeNode) {
  const SetName twins{"twins", 1};
  std::vector<LeafLink> roots;
  {
    test::SetMaker maker(*near);
    SetRecord record;
    record.name = twins;
    for (const uint32_t begin : {100, 200}) {
      roots.push_back(test::lay_numbers(*near, maker, numbers_between(begin, begin + 10)).value());
      record.groups.push_back({roots.back().score, roots.back().hint, maker.writer().bytes()});
    }
    ASSERT_TRUE(maker.seal().ok());
    ASSERT_TRUE(maker.lease().commit(record).ok());
  }
  ASSERT_TRUE(copy_set(*near, *far, twins).ok());
  const auto flip_node = [](FileSystem& fs, const ArenaReader& arena, const Score& score) {
    const auto ordinal = arena.find_node(score);
    if (!ordinal) return;
    const FrameEntry& node = arena.index().nodes.at(*ordinal);
    rewrite(fs, arena.path(), [&](ByteVector& raw) { raw.at(node.offset + kFrameHeaderBytes + 9) ^= std::byte{1}; });
  };
  const auto arena = near->arena(roots[0].hint).value();
  flip_node(near_fs, *arena, roots[0].score);
  for (const ArenaId& id : far->list_arenas().value()) flip_node(far_fs, *far->arena(id).value(), roots[0].score);
  far->drop_arena_cache();
  flip_packs(near_fs, *arena, {arena->index().packs.size() - 1});
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->partly_mended_sets, (std::vector<SetName>{twins}));
  ASSERT_EQ(report->mended.size(), 1u);
  EXPECT_EQ(report->mended[0].packs, 1u);
  const std::vector<GroupRecord> groups = Catalog(*near).read(twins).value().groups;
  EXPECT_FALSE(test::check_group_numbers(*near, groups.at(0), numbers_between(100, 110)).ok());
  EXPECT_TRUE(test::check_group_numbers(*near, groups.at(1), numbers_between(200, 210)).ok());
}

TEST_F(Repairing, LeavesADamagedRecordIfSomethingOfItsSetIsNowhere) {
  const std::vector<Score> lost = flip_packs(near_fs, *arena_of(kFirst), {0});
  for (const ArenaId& id : far->list_arenas().value()) {
    const auto arena = far->arena(id).value();
    if (const auto ordinal = arena->find_pack(lost[0])) flip_packs(far_fs, *arena, {*ordinal});
  }
  far->drop_arena_cache();
  rewrite(near_fs, Catalog(*near).record_path(kFirst), [](ByteVector& raw) { raw[20] ^= std::byte{1}; });
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->mended_sets.empty());
  EXPECT_EQ(Catalog(*near).read(kFirst).status().code(), StatusCode::corrupt);
}

TEST_F(Repairing, DoesNotTrustASource) {
  const FrameEntry pack = arena_of(kFirst)->index().packs.at(0);
  flip_near(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7, arena_of(kFirst)->id());
  for (const ArenaId& arena : far->list_arenas().value()) {
    const auto reader = far->arena(arena).value();
    for (const FrameEntry& other : reader->index().packs) {
      if (other.score != pack.score) continue;
      rewrite(far_fs, far->arena_path(arena), [&](ByteVector& raw) {
        raw.at(other.offset + kFrameHeaderBytes + other.meta_bytes + 9) ^= std::byte{1};
      });
    }
  }
  far->drop_arena_cache();
  const auto report = repair(from_far());
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->after.whole());
  EXPECT_NE(check_numbers(*near, kFirst, numbers_between(1, 40)).code(), StatusCode::ok);
}

struct InterruptedRepair : Repairing, testing::WithParamInterface<FaultKind> {};

TEST_P(InterruptedRepair, HarmsNothingAndIsDoneAgain) {
  const FrameEntry pack = arena_of(kFirst)->index().packs.at(2);
  flip_near(pack.offset + kFrameHeaderBytes + pack.meta_bytes + 7, arena_of(kFirst)->id());
  rewrite(near_fs, Catalog(*near).record_path(kSecond), [](ByteVector& raw) { raw[20] ^= std::byte{1}; });
  uint64_t operation = 0, whole = 0;
  for (;; ++operation) {
    const auto fs = near_fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
    FaultyFileSystem faulty(*fs, {{.kind = GetParam(), .at_operation = operation}});
    {
      const auto store = test::open_store(faulty);
      if (repair_store(*store, from_far(), at_once()).ok() && !faulty.struck()) break;
    }
    const auto left = GetParam() == FaultKind::crash ? fs->after_crash({.kind = CrashPolicy::Kind::drop_unsynced})
                                                     : fs->after_crash({.kind = CrashPolicy::Kind::keep_all});
    const auto store = test::open_store(*left);
    const auto again = repair_store(*store, from_far(), at_once());
    ASSERT_TRUE(again.ok()) << again.status().to_string() << "\n" << faulty.trace();
    // The lease of a writer that could not remove it holds up the removal of damaged arenas, no more.
    for (const Damage& damage : again->after.damages) ASSERT_TRUE(damage.affected_sets.empty()) << faulty.trace();
    if (again->after.whole()) ++whole;
    ASSERT_TRUE(check_numbers(*store, kFirst, numbers_between(1, 40)).ok()) << faulty.trace();
    ASSERT_TRUE(check_numbers(*store, kSecond, numbers_between(21, 60)).ok()) << faulty.trace();
  }
  EXPECT_GT(operation, 10u);
  EXPECT_GE(whole + 2, operation);
}

INSTANTIATE_TEST_SUITE_P(EveryFault, InterruptedRepair,
                         testing::Values(FaultKind::crash, FaultKind::no_space, FaultKind::io_error,
                                         FaultKind::short_write, FaultKind::failed_sync, FaultKind::failed_rename),
                         test::fault_name);

}  // namespace
}  // namespace varve
