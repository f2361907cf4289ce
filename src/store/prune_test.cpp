#include "store/prune.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "core/paused_file_system.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::numbers_between;
using test::SetMaker;

struct Prune : testing::Test {
  Prune() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }

  void save(const SetName& name, const std::vector<uint64_t>& numbers) {
    const Status saved = test::save_numbers(*store, name, numbers);
    ASSERT_TRUE(saved.ok()) << saved.to_string();
  }
  testing::AssertionResult holds(const SetName& name, const std::vector<uint64_t>& numbers) {
    const Status status = test::check_numbers(*store, name, numbers);
    return status.ok() ? testing::AssertionSuccess() : testing::AssertionFailure() << status.to_string();
  }
  void drop(const SetName& name) { ASSERT_TRUE(Catalog(*store).remove(name).ok()); }

  static PruneOptions at_once() {
    PruneOptions options;
    options.wait_seconds = 0;
    options.silence_seconds = options.wait_seconds;
    return options;
  }
  PruneReport prune(const PruneOptions& options = at_once()) {
    Result<PruneReport> report = prune_store(*store, options);
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    return report.ok() ? *report : PruneReport{};
  }
  uint64_t arena_bytes() {
    uint64_t bytes = 0;
    for (const ArenaId& id : store->list_arenas().value()) bytes += fs.stat(store->arena_path(id)).value().bytes;
    return bytes;
  }
  bool whole() { return verify_store(*store, true).value().damages.empty(); }
  size_t entries(const std::string& folder) { return fs.list(folder).value().size(); }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
};

/// Does something right before the file of this number is opened for reading.
class BeforeOpening final : public ForwardingFileSystem {
 public:
  BeforeOpening(FileSystem& inner, int number, std::function<void()> act)
      : ForwardingFileSystem(inner), left_(number), act_(std::move(act)) {}
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (left_-- == 0) act_();
    return ForwardingFileSystem::open_read(path);
  }
  bool has_acted() const { return left_ < 0; }

 private:
  int left_;
  std::function<void()> act_;
};

TEST_F(Prune, IsNoDamageToWhoVerifiesBesideIt) {
  bool has_acted = true;
  for (int number = 0; has_acted; ++number) {
    SCOPED_TRACE(number);
    save({"a", 1}, numbers_between(1, 20));
    save({"a", 2}, numbers_between(101, 120));
    BeforeOpening files(fs, number, [&] {
      drop({"a", 1});
      prune();
    });
    const auto beside = Store::open(files, "/s");
    ASSERT_TRUE(beside.ok());
    const Result<VerifyReport> report = verify_store(**beside, true);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    for (const Damage& damage : report->damages) ADD_FAILURE() << damage.what.to_string();
    has_acted = files.has_acted();
    if (!has_acted) drop({"a", 1});
    drop({"a", 2});
    prune();
  }
}

class UnreadableArenas final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (path.ends_with(".arena")) return Status(StatusCode::permission_denied, "cannot open the file", path);
    return ForwardingFileSystem::open_read(path);
  }
};

TEST_F(Prune, OrAVerifyTakesWhatItMayNotReadForNoDamage) {
  save({"a", 1}, numbers_between(1, 20));
  UnreadableArenas files(fs);
  const auto store_of_another_user = Store::open(files, "/s").value();
  EXPECT_EQ(verify_store(*store_of_another_user, true).status().code(), StatusCode::permission_denied);
  const Status pruned = prune_store(*store_of_another_user, at_once()).status();
  EXPECT_EQ(pruned.code(), StatusCode::permission_denied) << pruned.to_string();
  EXPECT_EQ(pruned.remedy(), Remedy::none) << "nobody is to drop what is whole";
}

TEST_F(Prune, OfAnEmptyStoreDoesNothing) {
  const PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 0u);
  EXPECT_EQ(report.bytes_before, 0u);
}

TEST_F(Prune, KeepsTheNewestSetsOfEachJob) {
  for (uint64_t step = 1; step <= 5; ++step) save({"a", step}, {step});
  for (uint64_t step = 1; step <= 2; ++step) save({"b", step}, {step});
  PruneOptions options = at_once();
  options.keep.last = 2;
  EXPECT_EQ(prune(options).dropped, (std::vector<SetName>{{"a", 1}, {"a", 2}, {"a", 3}}));
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"a", 4}, {"a", 5}, {"b", 1}, {"b", 2}}));
}

TEST_F(Prune, KeepsEverySoManySteps) {
  for (uint64_t step = 0; step <= 50; step += 5) save({"a", step}, {step});
  PruneOptions options = at_once();
  options.keep.last = 1;
  options.keep.every = 20;
  prune(options);
  EXPECT_EQ(Catalog(*store).steps("a").value(), (std::vector<uint64_t>{0, 20, 40, 50}));
}

TEST_F(Prune, KeepsTheNewestSetOfEachJobWhateverTheRule) {
  for (uint64_t step = 1; step <= 25; step += 3) save({"a", step}, {step});
  save({"b", 7}, {7});
  PruneOptions options = at_once();
  options.keep.every = 10;
  prune(options);
  EXPECT_EQ(Catalog(*store).steps("a").value(), (std::vector<uint64_t>{10, 25}));
  EXPECT_EQ(Catalog(*store).steps("b").value(), (std::vector<uint64_t>{7}));
}

TEST_F(Prune, DropsSetsOfTheNamedJobOnly) {
  for (const char* job : {"a", "b"}) {
    for (uint64_t step = 1; step <= 3; ++step) save({job, step}, {step});
  }
  PruneOptions options = at_once();
  options.keep.last = 1;
  options.job = "b";
  EXPECT_EQ(prune(options).dropped.size(), 2u);
  EXPECT_EQ(Catalog(*store).steps("a").value().size(), 3u);
}

TEST_F(Prune, OnlySaysWhatItWouldDropIfAsked) {
  for (uint64_t step = 1; step <= 3; ++step) save({"a", step}, {step});
  const uint64_t bytes = arena_bytes();
  PruneOptions options = at_once();
  options.keep.last = 1;
  options.dry_run = true;
  EXPECT_EQ(prune(options).dropped.size(), 2u);
  EXPECT_EQ(Catalog(*store).sets().value().size(), 3u);
  EXPECT_EQ(arena_bytes(), bytes);
}

TEST_F(Prune, GivesTheSpaceOfDroppedSetsBack) {
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, numbers_between(101, 200));
  drop({"a", 1});
  const PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 1u);
  EXPECT_EQ(report.bytes_after, arena_bytes());
  EXPECT_LT(report.bytes_after, report.bytes_before * 6 / 10);
  EXPECT_TRUE(holds({"a", 2}, numbers_between(101, 200)));
  EXPECT_TRUE(whole());
  drop({"a", 2});
  prune();
  EXPECT_EQ(arena_bytes(), 0u);
}

TEST_F(Prune, KeepsWhatOtherSetsShare) {
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, numbers_between(1, 100));
  drop({"a", 1});
  EXPECT_EQ(prune().removed_arenas, 0u);
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 100)));
}

TEST_F(Prune, ThinsPacksThatAreOnlyPartlyNeeded) {
  save({"a", 1}, numbers_between(1, 160));
  std::vector<uint64_t> few;
  for (uint64_t number = 1; number <= 160; number += 8) few.push_back(number);
  save({"a", 2}, few);
  drop({"a", 1});
  const PruneReport report = prune();
  EXPECT_EQ(report.rewritten_packs, 20u);
  EXPECT_LT(report.bytes_after, report.bytes_before / 4);
  EXPECT_TRUE(holds({"a", 2}, few));
  EXPECT_TRUE(whole());
  // What was left out is not offered to later saves; what is there still is.
  save({"a", 3}, numbers_between(1, 16));
  EXPECT_TRUE(holds({"a", 3}, numbers_between(1, 16)));
  EXPECT_TRUE(whole());
}

TEST_F(Prune, LeavesArenasAloneThatAreMostlyNeeded) {
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, numbers_between(1, 70));
  drop({"a", 1});
  EXPECT_EQ(prune().removed_arenas, 0u);
  PruneOptions options = at_once();
  options.live_share_min = 0.9;
  EXPECT_EQ(prune(options).removed_arenas, 1u);
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 70)));
}

TEST_F(Prune, RewritesNothingWhereArenasProtectOtherNodes) {
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, {3, 50, 99});
  save({"b", 1}, numbers_between(201, 300));
  save({"c", 1}, numbers_between(301, 400));
  drop({"a", 1});
  ASSERT_TRUE(fs.create_directory("/s/redundancy").ok());
  ASSERT_TRUE(fs.create_directory("/s/redundancy/b@1").ok());
  PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 0u);
  EXPECT_EQ(report.rewritten_packs, 0u);
  // Of which nobody needs anything goes.
  drop({"c", 1});
  report = prune();
  EXPECT_EQ(report.removed_arenas, 1u);
  EXPECT_EQ(report.rewritten_packs, 0u);
  // And what is left of a set that was dropped protects nothing.
  drop({"b", 1});
  report = prune();
  EXPECT_EQ(report.removed_arenas, 2u);
  EXPECT_GT(report.rewritten_packs, 0u);
  EXPECT_TRUE(holds({"a", 2}, {3, 50, 99}));
}

TEST_F(Prune, EmptiesNoArenaOnWhichOtherNodesRelySinceItWasMarked) {
  save({"a", 1}, numbers_between(1, 100));
  const std::string arena = store->arena_path(store->list_arenas().value().at(0));
  save({"a", 2}, {3, 50, 99});
  {
    // It is marked, and left to the next prune, as a writer is at work.
    SetMaker writer(*store);
    drop({"a", 1});
    PruneOptions options = at_once();
    options.silence_seconds = kLeaseSilenceSeconds;
    EXPECT_EQ(prune(options).waiting_arenas, 1u);
  }
  ASSERT_TRUE(fs.create_directory("/s/redundancy").ok());
  ASSERT_TRUE(fs.create_directory("/s/redundancy/a@2").ok());
  PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 0u);
  EXPECT_EQ(report.rewritten_packs, 0u);
  EXPECT_TRUE(fs.stat(arena).ok());
  EXPECT_TRUE(holds({"a", 2}, {3, 50, 99}));
  // Nobody relies on it any more.
  ASSERT_TRUE(fs.remove_directory("/s/redundancy/a@2").ok());
  report = prune();
  EXPECT_EQ(report.removed_arenas, 1u);
  EXPECT_GT(report.rewritten_packs, 0u);
  EXPECT_TRUE(holds({"a", 2}, {3, 50, 99}));
  EXPECT_EQ(entries(store->condemned_path()), 0u);
}

TEST_F(Prune, RemovesTheMarkOfAnArenaThatIsGoneAlsoWhereOthersProtectOtherNodes) {
  save({"a", 2}, {3, 50, 99});
  ASSERT_TRUE(fs.create_directory("/s/redundancy").ok());
  ASSERT_TRUE(fs.create_directory("/s/redundancy/a@2").ok());
  const std::string mark = join_path(store->condemned_path(), UniqueId::random()->hex());
  ASSERT_TRUE(fs.create(mark).value()->write_at(0, as_bytes("end 0\n")).ok());
  prune();
  EXPECT_FALSE(fs.stat(mark).ok());
  EXPECT_EQ(store->list_arenas().value().size(), 1u);
}

TEST_F(Prune, EmptiesADamagedArenaAlsoWhereOthersProtectOtherNodes) {
  save({"a", 1}, numbers_between(1, 100));
  const ArenaId id = store->list_arenas().value().at(0);
  save({"a", 2}, {3, 50, 99});
  drop({"a", 1});
  ASSERT_TRUE(fs.create_directory("/s/redundancy").ok());
  ASSERT_TRUE(fs.create_directory("/s/redundancy/a@2").ok());
  // It has a bit in a pack that nobody needs.
  ByteVector raw = read_file(fs, store->arena_path(id), 64_MiB).value();
  raw.at(raw.size() / 4) ^= std::byte{1};
  ASSERT_TRUE(fs.remove(store->arena_path(id)).ok());
  ASSERT_TRUE(fs.create(store->arena_path(id)).value()->write_at(0, raw).ok());
  ASSERT_TRUE(fs.create(join_path(store->condemned_path(), id.hex())).ok());
  store->drop_arena_cache();
  EXPECT_EQ(prune().removed_arenas, 1u);
  EXPECT_TRUE(holds({"a", 2}, {3, 50, 99}));
  EXPECT_TRUE(whole());
}

TEST_F(Prune, RewritesAlsoWhereNobodyMayAskWhetherArenasProtectOtherNodes) {
  struct Server final : ForwardingFileSystem {
    using ForwardingFileSystem::ForwardingFileSystem;
    Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
      if (path == "/s/redundancy") return Status(StatusCode::permission_denied, "not a path of a store");
      return ForwardingFileSystem::list(path);
    }
  } server(fs);
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, {3, 50, 99});
  drop({"a", 1});
  EXPECT_EQ(prune_store(*Store::open(server, "/s").value(), at_once())->removed_arenas, 1u);
  EXPECT_TRUE(holds({"a", 2}, {3, 50, 99}));
}

TEST_F(Prune, ComesToRest) {
  save({"a", 1}, numbers_between(1, 100));
  save({"a", 2}, {3, 50, 99});
  drop({"a", 1});
  prune();
  const uint64_t bytes = arena_bytes();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(prune().removed_arenas, 0u);
  EXPECT_EQ(arena_bytes(), bytes);
}

/// A disk on which nothing more can be written, but files can be removed, and names made.
class FullDisk final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options) override {
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::create(path, options));
    return std::unique_ptr<File>(std::make_unique<FullFile>(std::move(file)));
  }

 private:
  class FullFile final : public ForwardingFile {
   public:
    using ForwardingFile::ForwardingFile;
    Status write_at(uint64_t, ByteSpan) override { return Status::from_errno(ENOSPC, "write to the file", ""); }
  };
};

/// Two writers that know nothing of each other save the same: each lays all of it down.
struct PruneOfDuplicates : Prune {
  void SetUp() override { save_twice(numbers_between(1, 100)); }
  void save_twice(const std::vector<uint64_t>& numbers) {
    SetMaker one(*store), other(*store);
    const LeafLink one_root = test::lay_numbers(*store, one, numbers).value();
    const LeafLink other_root = test::lay_numbers(*store, other, numbers).value();
    ASSERT_TRUE(one.commit({"one", 1}, one_root).ok());
    ASSERT_TRUE(other.commit({"other", 1}, other_root).ok());
    one_arena = one.arena();
    other_arena = other.arena();
  }
  void damage(const ArenaId& arena, size_t at) {
    ByteVector raw = read_file(fs, store->arena_path(arena), 64_MiB).value();
    raw.at(at) ^= std::byte{1};
    ASSERT_TRUE(fs.remove(store->arena_path(arena)).ok());
    ASSERT_TRUE(fs.create(store->arena_path(arena)).value()->write_at(0, raw).ok());
    store->drop_arena_cache();
  }
  static constexpr uint64_t kOnce = 100 * test::kNumberedChunkBytes;
  ArenaId one_arena, other_arena;
};

TEST_F(PruneOfDuplicates, LeavesOneCopyOfWhatOneSetNeeds) {
  EXPECT_GT(arena_bytes(), 2 * kOnce);
  drop({"one", 1});
  const PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 1u);
  EXPECT_EQ(report.rewritten_packs, 0u) << "the other arena has them";
  EXPECT_LT(arena_bytes(), kOnce * 11 / 10);
  EXPECT_TRUE(holds({"other", 1}, numbers_between(1, 100)));
  EXPECT_TRUE(whole());
}

TEST_F(PruneOfDuplicates, LeavesOneCopyOfWhatBothSetsNeed) {
  prune();
  EXPECT_LT(arena_bytes(), kOnce * 11 / 10);
  for (const char* job : {"one", "other"}) EXPECT_TRUE(holds({job, 1}, numbers_between(1, 100)));
  EXPECT_TRUE(whole());
  EXPECT_EQ(prune().removed_arenas, 0u);
}

TEST_F(PruneOfDuplicates, TouchesNoneWhereArenasHaveToStayWhole) {
  const uint64_t bytes = arena_bytes();
  PruneOptions options = at_once();
  options.live_share_min = 0;
  options.wait_seconds = 1;
  EXPECT_EQ(prune(options).removed_arenas, 0u);
  EXPECT_EQ(arena_bytes(), bytes);
}

TEST_F(PruneOfDuplicates, PrefersTheCopyInAnArenaThatStaysAnyway) {
  save({"one", 2}, numbers_between(1, 100));  // whose packs it refers to, nobody knows
  SetMaker large(*store);
  std::vector<ByteVector> chunks;
  for (uint64_t number = 1; number <= 8; ++number) chunks.push_back(test::numbered_chunk(number));
  const LeafLink root = [&] {
    Leaf leaf;
    leaf.packs.push_back(large.pack(chunks));  // the first pack of the others
    leaf.files.push_back(SetMaker::plain_file("numbers", {{0, 0, 8 * test::kNumberedChunkBytes}}));
    for (uint64_t first = 200; first < 500; first += 8) {
      std::vector<ByteVector> more;
      for (uint64_t number = first; number < first + 8; ++number) more.push_back(test::numbered_chunk(number));
      leaf.packs.push_back(large.pack(more));
      leaf.files.push_back(
          SetMaker::plain_file("more" + std::to_string(first),
                               {{static_cast<uint32_t>(leaf.packs.size() - 1), 0, 8 * test::kNumberedChunkBytes}}));
    }
    return large.root({large.leaf(leaf)});
  }();
  ASSERT_TRUE(large.commit({"large", 1}, root).ok());
  for (const SetName& name : {SetName{"one", 1}, SetName{"one", 2}, SetName{"other", 1}}) drop(name);
  EXPECT_EQ(prune().rewritten_packs, 0u);
  EXPECT_EQ(store->list_arenas().value(), std::vector<ArenaId>{large.arena()});
  EXPECT_TRUE(whole());
}

TEST_F(PruneOfDuplicates, TakesTheOtherCopyIfTheOneThatStaysIsDamaged) {
  // Whichever it removes, one of the two has the first pack whole, the other one the last.
  damage(one_arena, 3000);
  damage(other_arena, 95 * test::kNumberedChunkBytes);
  drop({"one", 1});
  prune();
  prune();
  EXPECT_TRUE(holds({"other", 1}, numbers_between(1, 100)));
}

TEST_F(PruneOfDuplicates, NeedsNoRoomForWhatIsElsewhere) {
  FullDisk disk(fs);
  const auto own = Store::open(disk, "/s").value();
  drop({"one", 1});
  const Result<PruneReport> report = prune_store(*own, at_once());
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_LT(arena_bytes(), kOnce * 11 / 10);
  EXPECT_TRUE(holds({"other", 1}, numbers_between(1, 100)));
}

TEST_F(PruneOfDuplicates, KeepsTheCopyThatAWriterAtWorkRefersToUntilItHasCommitted) {
  // It may have found its chunks in either.
  SetMaker writer(*store);
  const LeafLink root = test::lay_numbers(*store, writer, numbers_between(1, 120)).value();
  drop({"one", 1});
  PruneOptions patient = at_once();
  patient.silence_seconds = 60;
  const PruneReport waiting = prune(patient);
  EXPECT_EQ(waiting.removed_arenas, 0u);
  EXPECT_EQ(waiting.waiting_arenas, 1u);
  ASSERT_TRUE(writer.commit({"new", 1}, root).ok());
  EXPECT_EQ(prune(patient).removed_arenas, 1u);
  EXPECT_TRUE(holds({"new", 1}, numbers_between(1, 120)));
  EXPECT_TRUE(holds({"other", 1}, numbers_between(1, 100)));
  EXPECT_TRUE(whole());
}

/// Duplicates, small arenas, dead ones and half dead ones: all that a prune does something about.
struct PruneOvertaken : PruneOfDuplicates {
  void SetUp() override {
    PruneOfDuplicates::SetUp();
    for (uint64_t step = 1; step <= 10; ++step) save({"small", step}, {step, 1000 + step});
    save({"mixed", 1}, numbers_between(2000, 2080));
    save({"mixed", 2}, numbers_between(2000, 2010));
    for (const SetName& name : {SetName{"one", 1}, SetName{"small", 3}, SetName{"mixed", 1}}) drop(name);
  }
  static PruneOptions thorough() {
    PruneOptions options = at_once();
    options.wait_seconds = 0.001;
    options.live_share_min = 0.9;
    return options;
  }
  /// Runs a prune that is paused before each of its operations in turn, while `meanwhile` happens to a copy of the
  /// store; then `check` looks at what there is.
  void pause_everywhere(const std::function<void(FileSystem&)>& meanwhile,
                        const std::function<void(const Store&)>& check) {
    for (uint64_t at = 0;; ++at) {
      SCOPED_TRACE("paused before operation " + std::to_string(at));
      const auto copy = fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
      PausedFileSystem paused(*copy, at, [&] { meanwhile(*copy); });
      {
        const auto own = Store::open(paused, "/s").value();
        const Status pruned = prune_store(*own, thorough()).status();
        // Given up for dead while it wrote, it fails; nothing else may go wrong.
        ASSERT_TRUE(pruned.ok() || pruned.code() == StatusCode::busy) << pruned.to_string();
      }
      if (!paused.paused()) break;
      const auto left = Store::open(*copy, "/s").value();
      ASSERT_TRUE(verify_store(*left, true).value().damages.empty());
      check(*left);
      ASSERT_TRUE(prune_store(*left, thorough()).ok());
      ASSERT_TRUE(prune_store(*left, thorough()).ok());
      check(*left);
      ASSERT_LE(left->list_arenas().value().size(), 8u);
      ASSERT_TRUE(copy->list(left->condemned_path()).value().empty());
      if (HasFatalFailure()) return;
    }
  }
  static void check_kept(const Store& left) {
    for (const auto& [name, numbers] : {std::pair{SetName{"other", 1}, numbers_between(1, 100)},
                                        std::pair{SetName{"small", 10}, std::vector<uint64_t>{10, 1010}},
                                        std::pair{SetName{"mixed", 2}, numbers_between(2000, 2010)}}) {
      const Status held = test::check_numbers(left, name, numbers);
      ASSERT_TRUE(held.ok()) << held.to_string();
    }
  }
};

TEST_F(PruneOvertaken, ByAnotherPruneAtAnyMomentLosesNothing) {
  pause_everywhere(
      [](FileSystem& beneath) {
        const auto own = Store::open(beneath, "/s").value();
        ASSERT_TRUE(prune_store(*own, thorough()).ok());
      },
      check_kept);
}

TEST_F(PruneOvertaken, ByADropAndAPruneAtAnyMomentLosesNothing) {
  pause_everywhere(
      [](FileSystem& beneath) {
        const auto own = Store::open(beneath, "/s").value();
        ASSERT_TRUE(Catalog(*own).remove({"small", 4}).ok());
        ASSERT_TRUE(Catalog(*own).remove({"mixed", 2}).ok());
        ASSERT_TRUE(prune_store(*own, thorough()).ok());
        ASSERT_TRUE(test::save_numbers(*own, {"mixed", 2}, numbers_between(2000, 2010)).ok());
      },
      check_kept);
}

// Made anew by a run that went back, it is none of those that the rules let go.
TEST_F(PruneOvertaken, ByASetThatIsMadeAnewAfterItWasJudgedDropsOnlyWhatItHasJudged) {
  const SetName name{"small", 4};
  uint64_t at = 0, lost = 0;
  for (;; ++at) {
    SCOPED_TRACE("paused before operation " + std::to_string(at));
    const auto copy = fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
    PausedFileSystem paused(*copy, at, [&] {
      const auto own = Store::open(*copy, "/s").value();
      (void)Catalog(*own).remove(name);  // the prune may have done so
      SetMaker maker(*own);
      const LeafLink root = test::lay_numbers(*own, maker, {7004, 7005}).value();
      SetRecord record;
      record.name = name;
      record.number = 99;
      record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
      ASSERT_TRUE(maker.seal().ok());
      ASSERT_TRUE(maker.lease().commit(record).ok());
    });
    PruneOptions options = thorough();
    options.keep.last = 1;
    {
      const auto own = Store::open(paused, "/s").value();
      const Status pruned = prune_store(*own, options).status();
      ASSERT_TRUE(pruned.ok() || pruned.code() == StatusCode::busy) << pruned.to_string();
    }
    if (!paused.paused()) break;
    const auto left = Store::open(*copy, "/s").value();
    if (!test::check_numbers(*left, name, {7004, 7005}).ok()) ++lost;
    ASSERT_TRUE(verify_store(*left, true).value().damages.empty());
  }
  EXPECT_GT(at, 50u);
  EXPECT_LE(lost, 1u) << "the moment between the last look at a set and its removal";
}

TEST_F(PruneOvertaken, ByASaveOfWhatItIsAboutToRemoveLosesNothing) {
  // Of what nobody needs, of what lies twice, and of what is merged.
  std::vector<uint64_t> numbers = {5, 1005, 2050, 90};
  pause_everywhere(
      [&](FileSystem& beneath) {
        const auto own = Store::open(beneath, "/s").value();
        ASSERT_TRUE(test::save_numbers(*own, {"new", 1}, numbers).ok());
      },
      [&](const Store& left) {
        check_kept(left);
        const Status held = test::check_numbers(left, {"new", 1}, numbers);
        ASSERT_TRUE(held.ok()) << held.to_string();
      });
}

/// A writer that has looked at the marks before, and commits at any moment of the prune.
TEST_F(PruneOvertaken, ByTheCommitOfASaveThatBeganBeforeLosesNothing) {
  const std::vector<uint64_t> numbers = {5, 1005, 2050, 90};
  uint64_t committed = 0;
  for (uint64_t at = 0;; ++at) {
    SCOPED_TRACE("paused before operation " + std::to_string(at));
    const auto copy = fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
    const auto of_writer = Store::open(*copy, "/s").value();
    SetMaker writing(*of_writer);
    const LeafLink root = test::lay_numbers(*of_writer, writing, numbers).value();
    bool done = false;
    PausedFileSystem paused(*copy, at, [&] { done = writing.commit({"new", 1}, root).ok(); });
    {
      const auto own = Store::open(paused, "/s").value();
      PruneOptions options = thorough();
      options.silence_seconds = 60;
      ASSERT_TRUE(prune_store(*own, options).ok());
    }
    if (!paused.paused()) break;
    ASSERT_TRUE(done);
    const auto left = Store::open(*copy, "/s").value();
    check_kept(*left);
    const Status held = test::check_numbers(*left, {"new", 1}, numbers);
    ASSERT_TRUE(held.ok()) << held.to_string();
    ++committed;
  }
  EXPECT_GT(committed, 10u);
}

TEST_F(Prune, PutsTogetherWhatThinnedCopiesHoldOfAPack) {
  std::vector<ByteVector> chunks;
  for (uint64_t number = 1; number <= 8; ++number) chunks.push_back(test::numbered_chunk(number));
  // Each has half of the pack, and a set that needs that half.
  auto save_half = [&](const SetName& name, bool second) {
    SetMaker maker(*store);
    PackMeta meta;
    meta.class_key = "made_BYTES";
    meta.recipe = {std::byte{0}};
    ByteVector body;
    for (size_t i = 0; i < chunks.size(); ++i) {
      meta.chunks.push_back({static_cast<uint32_t>(chunks[i].size()), store->score()(chunks[i])});
      if ((i >= 4) == second) body.insert(body.end(), chunks[i].begin(), chunks[i].end());
    }
    meta.score = pack_score(store->score(), meta.chunks);
    meta.held_runs = second ? std::vector<uint64_t>{0, 4, 4} : std::vector<uint64_t>{4, 4};
    Leaf leaf;
    leaf.packs.push_back(maker.pack(meta, body));
    leaf.files.push_back(SetMaker::plain_file(
        "numbers", {{0, second ? 4 * test::kNumberedChunkBytes : 0, 4 * test::kNumberedChunkBytes}}));
    return maker.commit(name, maker.root({maker.leaf(leaf)}));
  };
  ASSERT_TRUE(save_half({"first", 1}, false).ok());
  ASSERT_TRUE(save_half({"second", 1}, true).ok());
  for (const ArenaId& id : store->list_arenas().value())
    ASSERT_TRUE(fs.create(join_path(store->condemned_path(), id.hex())).ok());
  EXPECT_EQ(prune().removed_arenas, 2u);
  EXPECT_EQ(store->list_arenas().value().size(), 1u);
  EXPECT_TRUE(holds({"first", 1}, numbers_between(1, 4)));
  EXPECT_TRUE(holds({"second", 1}, numbers_between(5, 8)));
  EXPECT_TRUE(whole());
}

/// As many sets as a store gets in a year, of a folder that hardly changes.
struct PruneOfSmallArenas : Prune {
  void SetUp() override {
    for (uint64_t step = 1; step <= 50; ++step) save({"a", step}, numbers(step));
  }
  static std::vector<uint64_t> numbers(uint64_t step) {
    std::vector<uint64_t> all = numbers_between(1, 200);
    all.erase(all.begin() + static_cast<ptrdiff_t>(step - 1));  // so that no two describe the same
    if (step % 5 == 0) all.push_back(1000 + step);
    return all;
  }
  static PruneOptions merging() {
    PruneOptions options = at_once();
    options.wait_seconds = 0.01;
    return options;
  }
};

TEST_F(PruneOfSmallArenas, MergesThemIntoOne) {
  EXPECT_EQ(prune(merging()).removed_arenas, 49u);
  EXPECT_EQ(store->list_arenas().value().size(), 2u);
  for (uint64_t step = 1; step <= 50; ++step) EXPECT_TRUE(holds({"a", step}, numbers(step)));
  EXPECT_TRUE(whole());
  EXPECT_EQ(prune(merging()).removed_arenas, 0u);
}

TEST_F(PruneOfSmallArenas, LeavesWhatTheNewestSetNeeds) {
  PruneOptions options = merging();
  options.keep.last = 1;
  prune(options);
  EXPECT_LE(store->list_arenas().value().size(), 3u);
  EXPECT_LT(arena_bytes(), 220 * test::kNumberedChunkBytes);
  EXPECT_TRUE(holds({"a", 50}, numbers(50)));
}

TEST_F(PruneOfSmallArenas, LeavesThemIfItMustNotWaitForWriters) { EXPECT_EQ(prune().removed_arenas, 0u); }

TEST_F(PruneOfSmallArenas, LeavesThemIfTheyProtectOtherNodes) {
  ASSERT_TRUE(fs.create_directory("/s/redundancy").ok());
  ASSERT_TRUE(fs.create_directory("/s/redundancy/a@50").ok());
  EXPECT_EQ(prune(merging()).removed_arenas, 0u);
}

TEST_F(PruneOfSmallArenas, LeavesLargeOnes) {
  PruneOptions options = merging();
  options.merge_below_bytes = 1;
  EXPECT_EQ(prune(options).removed_arenas, 0u);
}

TEST_F(PruneOfSmallArenas, CopiesNoByteMoreOftenThanSizesDouble) {
  prune(merging());
  const uint64_t base = arena_bytes();
  uint64_t written = 0;
  for (uint64_t step = 51; step <= 200; ++step) {
    save({"a", step}, numbers(step));
    const std::vector<ArenaId> before = store->list_arenas().value();
    prune(merging());
    for (const ArenaId& id : store->list_arenas().value()) {
      if (!std::binary_search(before.begin(), before.end(), id))
        written += fs.stat(store->arena_path(id)).value().bytes;
    }
    EXPECT_LE(store->list_arenas().value().size(), 16u);
  }
  EXPECT_LT(written, 8 * (arena_bytes() - base));
}

TEST_F(PruneOfSmallArenas, BeginsNoMergeThatThereIsNoRoomFor) {
  struct LittleRoom final : ForwardingFileSystem {
    using ForwardingFileSystem::ForwardingFileSystem;
    Result<uint64_t> free_bytes(const std::string&) override { return uint64_t{1000}; }
  } disk(fs);
  const auto own = Store::open(disk, "/s").value();
  EXPECT_EQ(prune_store(*own, merging())->removed_arenas, 0u);
  EXPECT_EQ(entries(store->condemned_path()), 0u);
}

TEST_F(Prune, MakesRoomOnAFullDisk) {
  save({"run", 1}, numbers_between(1, 100));
  save({"run", 2}, numbers_between(101, 200));
  save({"run", 3}, numbers_between(201, 300));
  FullDisk disk(fs);
  const auto own = Store::open(disk, "/s").value();
  PruneOptions options = at_once();
  options.keep.last = 1;
  const Result<PruneReport> report = prune_store(*own, options);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->dropped.size(), 2u);
  EXPECT_EQ(report->removed_arenas, 2u);
  EXPECT_TRUE(holds({"run", 3}, numbers_between(201, 300)));
  EXPECT_TRUE(whole());
}

TEST_F(Prune, OnAFullDiskSaysWhatItHasDropped) {
  save({"run", 1}, numbers_between(1, 100));
  save({"run", 2}, numbers_between(91, 110));  // shares a little with the first, which has to be copied
  FullDisk disk(fs);
  const auto own = Store::open(disk, "/s").value();
  PruneOptions options = at_once();
  options.keep.last = 1;
  const Status failed = prune_store(*own, options).status();
  EXPECT_EQ(failed.code(), StatusCode::no_space);
  EXPECT_NE(failed.to_string().find("run@1 was dropped"), std::string::npos) << failed.to_string();
  EXPECT_EQ(failed.to_string().find("varve prune"), std::string::npos) << failed.to_string();
  EXPECT_TRUE(holds({"run", 2}, numbers_between(91, 110)));
  // Once there is room, it goes on.
  EXPECT_EQ(prune().removed_arenas, 1u);
  EXPECT_TRUE(holds({"run", 2}, numbers_between(91, 110)));
  EXPECT_TRUE(whole());
}

TEST_F(Prune, RemovesWhatAKilledSaveLeft) {
  {
    SetMaker killed(*store);
    killed.pack({test::numbered_chunk(1)});
    ASSERT_TRUE(killed.seal().ok());
    SetMaker unfinished(*store);
    unfinished.pack({test::numbered_chunk(2)});
    // Neither commits; their files stay as a kill would leave them.
    const auto left = fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
    const auto found = Store::open(*left, "/s").value();
    ASSERT_TRUE(left->create(join_path(found->index_path(), "x.run.part")).ok());
    const Result<PruneReport> report = prune_store(*found, at_once());
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->removed_arenas, 1u);
    EXPECT_GE(report->leftover_files, 3u);
    for (const std::string& folder :
         {found->arenas_path(), found->writers_path(), found->condemned_path(), found->index_path()}) {
      EXPECT_TRUE(left->list(folder).value().empty()) << folder;
    }
  }
}

/// Over a file system whose clock is set.
struct PruneInTime : Prune {
  PruneInTime() {
    fs.set_clock([this] { return seconds_ * 1'000'000'000; });
  }
  void set_clock(int64_t hours, int64_t seconds = 0) { seconds_ = kStart + hours * 3600 + seconds; }
  void create(const std::string& path) { ASSERT_TRUE(fs.create(path).ok()) << path; }
  bool exists(const std::string& path) { return fs.stat(path).ok(); }
  /// As runs' prunes are.
  static PruneOptions without_waiting() {
    PruneOptions options;
    options.wait_seconds = 0;
    return options;
  }

 private:
  static constexpr int64_t kStart = 1'700'000'000;
  std::atomic<int64_t> seconds_{kStart};
};

TEST_F(PruneInTime, RemovesTheLeasesOfTheDeadAlsoWhenTheClockWasSetBack) {
  const std::string lease = join_path(store->writers_path(), UniqueId::random()->hex());
  for (const int64_t hours : {-1, -1000}) {
    set_clock(0);
    create(lease);
    prune(without_waiting());
    EXPECT_TRUE(exists(lease));
    set_clock(hours);
    prune(without_waiting());
    EXPECT_FALSE(exists(lease));
  }
}

TEST_F(PruneInTime, LeavesAWriterAtWorkWhoseMachinesClockIsMinutesAhead) {
  SetMaker writer(*store);
  const LeafLink root = test::lay_numbers(*store, writer, numbers_between(1, 20)).value();
  set_clock(0, -300);
  prune(without_waiting());
  EXPECT_TRUE(writer.commit({"a", 1}, root).ok());
  EXPECT_TRUE(holds({"a", 1}, numbers_between(1, 20)));
}

TEST_F(PruneInTime, StartsToCountADeadPartsAgeWhenTheClockWasSetBack) {
  const std::string run = UniqueId::random()->hex();
  ASSERT_TRUE(fs.create_directory("/s/parts").ok());
  // Nobody can read it, so that no arena goes as long as it is there.
  const std::string part = "/s/parts/job@7." + run + ".0-of-2.part",
                    failure = "/s/parts/job@7." + run + ".1-of-2.failed";
  create(part);
  create(failure);
  const auto prune_now = [&] { return prune_store(*store, without_waiting()).status(); };
  set_clock(-1000);
  EXPECT_FALSE(prune_now().ok());
  set_clock(-1000 + 23);
  EXPECT_FALSE(prune_now().ok());
  EXPECT_TRUE(exists(part) && exists(failure));
  set_clock(-1000 + 24);
  const Status pruned = prune_now();
  EXPECT_TRUE(pruned.ok()) << pruned.to_string();
  EXPECT_FALSE(exists(part) || exists(failure));
}

TEST_F(PruneInTime, TouchesNoPartThatIsMinutesAhead) {
  ASSERT_TRUE(fs.create_directory("/s/parts").ok());
  const std::string failure = "/s/parts/job@7." + UniqueId::random()->hex() + ".1-of-2.failed";
  create(failure);
  const int64_t stamped_ns = fs.stat(failure)->modified_ns;
  set_clock(0, -300);
  prune(without_waiting());
  EXPECT_EQ(fs.stat(failure)->modified_ns, stamped_ns);
}

TEST_F(PruneInTime, RemovesUnfinishedHeadersAndLeasesOfJobsThatAreADayOld) {
  ASSERT_TRUE(fs.create_directory("/s/runs").ok());
  const std::string id = UniqueId::random()->hex();
  const std::vector<std::string> drafts = {"/s/runs/" + id + ".tmp", "/s/runs/" + id + ".stale",
                                           "/s/varve.store." + id + ".tmp", "/s/varve.spread." + id + ".tmp"};
  const std::vector<std::string> others = {
      "/s/runs/job.lease",  "/s/runs/job.timeline",       "/s/runs/" + id + ".lease",
      "/s/runs/" + id,      "/s/runs/job." + id + ".tmp", "/s/varve.store." + id,
      "/s/varve.store.tmp", "/s/" + id + ".tmp",          "/s/varve.other." + id + ".tmp"};
  for (const std::string& path : drafts) create(path);
  for (const std::string& path : others) create(path);
  set_clock(23);
  EXPECT_EQ(prune().leftover_files, 0u);
  for (const std::string& path : drafts) EXPECT_TRUE(exists(path)) << path;
  set_clock(24);
  EXPECT_EQ(prune().leftover_files, drafts.size());
  for (const std::string& path : drafts) EXPECT_FALSE(exists(path)) << path;
  for (const std::string& path : others) EXPECT_TRUE(exists(path)) << path;
  EXPECT_TRUE(exists("/s/varve.store"));
  // And those that a clock has stamped which was set back since.
  create(drafts.front());
  set_clock(-1000);
  prune();
  set_clock(-1000 + 24);
  EXPECT_EQ(prune().leftover_files, 1u);
}

TEST_F(Prune, RefusesToRemoveAnythingIfASetCannotBeRead) {
  save({"a", 1}, numbers_between(1, 50));
  save({"a", 2}, numbers_between(51, 100));
  drop({"a", 1});
  const std::string record = Catalog(*store).record_path({"a", 2});
  ByteVector raw = read_file(fs, record, 1_MiB).value();
  raw[20] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(record).ok());
  ASSERT_TRUE(fs.create(record).value()->write_at(0, raw).ok());
  const uint64_t bytes = arena_bytes();
  const Status refused = prune_store(*store, at_once()).status();
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.to_string().find("a@2"), std::string::npos) << refused.to_string();
  EXPECT_EQ(arena_bytes(), bytes);
}

/// Wants what it listens to to stop, from the nth question on whether it does.
class StopsAt final : public ProgressSink {
 public:
  explicit StopsAt(int question) : questions_left_(question) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return questions_left_-- <= 0; }

 private:
  mutable std::atomic<int> questions_left_;
};

TEST_F(Prune, ThatIsCancelledAtAnyMomentLosesNothing) {
  int question = 0;
  for (bool done = false; !done; ++question) {
    SCOPED_TRACE(question);
    const uint64_t first = 4 * static_cast<uint64_t>(question);
    save({"a", first}, numbers_between(0, 1000));
    save({"a", first + 1}, numbers_between(990, 1010));
    drop({"a", first});
    StopsAt progress(question);
    const Result<PruneReport> report = prune_store(*store, at_once(), progress);
    done = report.ok();
    EXPECT_TRUE(done || report.status().code() == StatusCode::cancelled) << report.status().to_string();
    EXPECT_TRUE(question > 0 || entries("/s/condemned") == 0) << "what is needed was not known yet";
    EXPECT_TRUE(holds({"a", first + 1}, numbers_between(990, 1010)));
    EXPECT_TRUE(whole());
    drop({"a", first + 1});
    EXPECT_GT(done ? report->removed_arenas : prune().removed_arenas, 0u);
    prune();
    EXPECT_EQ(arena_bytes(), 0u);
  }
  EXPECT_GT(question, 2);
}

TEST_F(Prune, KeepsWhatAWriterAtWorkMayReferTo) {
  save({"a", 1}, numbers_between(1, 50));
  SetMaker writer(*store);
  const LeafLink root = test::lay_numbers(*store, writer, numbers_between(1, 60)).value();
  drop({"a", 1});
  // The writer shows that it lives all the time that the prune waits.
  std::atomic<bool> stop{false};
  const std::string lease = join_path(store->writers_path(), fs.list(store->writers_path()).value().at(0).name);
  std::thread heart([&] {
    while (!stop) EXPECT_TRUE(fs.touch(lease).ok());
  });
  PruneOptions patient;
  patient.wait_seconds = 0.2;
  patient.silence_seconds = patient.wait_seconds;
  const PruneReport report = prune(patient);
  stop = true;
  heart.join();
  EXPECT_EQ(report.removed_arenas, 0u);
  EXPECT_EQ(report.waiting_arenas, 1u);
  ASSERT_TRUE(writer.commit({"a", 2}, root).ok());
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 60)));
  // The mark is still there, but now the arena is needed: it is emptied into another one.
  EXPECT_EQ(prune().removed_arenas, 1u);
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 60)));
  EXPECT_EQ(entries(store->condemned_path()), 0u);
  EXPECT_TRUE(whole());
}

TEST_F(Prune, KeepsTheArenasOfAWriterAtWork) {
  SetMaker writer(*store);
  const LeafLink root = test::lay_numbers(*store, writer, numbers_between(1, 20)).value();
  ASSERT_TRUE(writer.seal().ok());
  PruneOptions patient;
  patient.wait_seconds = 0.05;
  patient.silence_seconds = patient.wait_seconds;
  EXPECT_EQ(prune(patient).removed_arenas, 0u);
  ASSERT_TRUE(writer.commit_sealed({"a", 1}, root).ok());
  EXPECT_TRUE(holds({"a", 1}, numbers_between(1, 20)));
}

TEST_F(Prune, GivesASilentWriterUpWhoThenCannotCommit) {
  save({"a", 1}, numbers_between(1, 50));
  SetMaker writer(*store);
  const LeafLink root = test::lay_numbers(*store, writer, numbers_between(1, 60)).value();
  drop({"a", 1});
  EXPECT_GE(prune().removed_arenas, 1u);
  EXPECT_TRUE(writer.lease().lost());
  EXPECT_FALSE(writer.commit({"a", 2}, root).ok());
  EXPECT_TRUE(Catalog(*store).sets().value().empty());
  save({"a", 2}, numbers_between(1, 60));
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 60)));
}

TEST_F(Prune, LetsNoNewWriterReferToMarkedArenas) {
  save({"a", 1}, numbers_between(1, 50));
  drop({"a", 1});
  ASSERT_TRUE(fs.create(join_path(store->condemned_path(), store->list_arenas().value().at(0).hex())).ok());
  save({"a", 2}, numbers_between(1, 50));
  EXPECT_EQ(prune().removed_arenas, 1u);
  EXPECT_TRUE(holds({"a", 2}, numbers_between(1, 50)));
  EXPECT_TRUE(whole());
}

TEST_F(Prune, FinishesWhatAnInterruptedOneMarked) {
  save({"a", 1}, numbers_between(1, 50));
  // A mark whose arena is gone, and one of an arena that is needed.
  ASSERT_TRUE(fs.create(join_path(store->condemned_path(), UniqueId::random().value().hex())).ok());
  ASSERT_TRUE(fs.create(join_path(store->condemned_path(), store->list_arenas().value().at(0).hex())).ok());
  prune();
  EXPECT_EQ(entries(store->condemned_path()), 0u);
  EXPECT_TRUE(holds({"a", 1}, numbers_between(1, 50)));
  EXPECT_TRUE(whole());
}

/// Writers and prunes of several threads, each with its own Store, for a while: no set that was committed is ever lost.
TEST_F(Prune, BesideWritersLosesNothing) {
  std::atomic<uint64_t> committed{0};
  auto write = [&](uint64_t seed) {
    const auto mine = Store::open(fs, "/s").value();
    const std::string job = "job" + std::to_string(seed);
    std::mt19937_64 random(seed);
    for (uint64_t step = 1; step <= 25; ++step) {
      const uint64_t first = random() % 60;
      const std::vector<uint64_t> numbers = numbers_between(first, first + 30);
      const Status saved = test::save_numbers(*mine, {job, step}, numbers);
      if (!saved.ok()) {
        EXPECT_TRUE(saved.code() == StatusCode::busy || saved.code() == StatusCode::not_found) << saved.to_string();
        continue;
      }
      ++committed;
      const Status read = test::check_numbers(*Store::open(fs, "/s").value(), {job, step}, numbers);
      EXPECT_TRUE(read.ok()) << job << "@" << step << ": " << read.to_string();
      EXPECT_TRUE(step % 3 == 0 || Catalog(*mine).remove({job, step}).ok());
    }
  };
  std::atomic<bool> stop{false};
  std::thread pruner([&] {
    const auto mine = Store::open(fs, "/s").value();
    PruneOptions options;
    options.live_share_min = 0.8;
    while (!stop) {
      options.wait_seconds = options.wait_seconds == 0 ? 0.5 : 0;
      options.silence_seconds = options.wait_seconds;
      const Status pruned = prune_store(*mine, options).status();
      EXPECT_TRUE(pruned.ok()) << pruned.to_string();
    }
  });
  std::vector<std::thread> writers;
  for (uint64_t seed = 1; seed <= 3; ++seed) writers.emplace_back(write, seed);
  for (std::thread& writer : writers) writer.join();
  stop = true;
  pruner.join();
  EXPECT_GT(committed, 10u);
  EXPECT_TRUE(whole());
  prune();
  EXPECT_TRUE(whole());
}

/// A run goes back, and makes a step anew that a prune has judged, and is about to drop.
struct RunThatGoesBack {
  RunThatGoesBack() {
    EXPECT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
    for (uint64_t step = 1; step <= 4; ++step)
      EXPECT_TRUE(test::save_numbers(*store, {"job", step}, numbers_between(100 * step, 100 * step + 30), step).ok());
  }

  void make_anew() {
    SetMaker maker(*store);
    const LeafLink root = test::lay_numbers(*store, maker, numbers_between(9000, 9030)).value();
    ASSERT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = {"job", 1};
    record.number = 5;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    const Status committed = maker.lease().commit(record, IfExists::replace);
    ASSERT_TRUE(committed.ok()) << committed.to_string();
    is_made = true;
  }

  static PruneOptions keep_last(uint64_t count) {
    PruneOptions options;
    options.wait_seconds = 0;
    options.keep.last = count;
    return options;
  }

  void check() {
    if (is_made) {
      // As a restart looks for it.
      const std::vector<uint64_t> steps = Catalog(*store).steps("job").value();
      ASSERT_EQ(std::count(steps.begin(), steps.end(), 1), 1);
      const Status there = test::check_numbers(*store, {"job", 1}, numbers_between(9000, 9030));
      ASSERT_TRUE(there.ok()) << there.to_string();
    }
    for (const uint64_t step : {3, 4})
      ASSERT_TRUE(test::check_numbers(*store, {"job", step}, numbers_between(100 * step, 100 * step + 30)).ok());
  }

  /// Once a prune has come to its end.
  void check_nothing_is_hidden() {
    for (const DirectoryEntry& entry : fs.list("/s/sets/job").value())
      ASSERT_TRUE(entry.name.ends_with(".set")) << entry.name;
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
  bool is_made = false;
};

TEST(PruneBesideARunThatGoesBack, LeavesWhatItMakesAtAnyMoment) {
  for (const int prunes_meanwhile : {0, 1}) {
    bool came_to_it = true;
    for (uint64_t at = 0; came_to_it; ++at) {
      SCOPED_TRACE(at);
      RunThatGoesBack run;
      PausedFileSystem paused(run.fs, at, [&] {
        run.make_anew();
        for (int i = 0; i < prunes_meanwhile; ++i)
          ASSERT_TRUE(prune_store(*run.store, RunThatGoesBack::keep_last(2)).ok());
      });
      const auto pruner = Store::open(paused, "/s").value();
      const auto report = prune_store(*pruner, RunThatGoesBack::keep_last(2));
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      came_to_it = paused.paused();
      ASSERT_NO_FATAL_FAILURE(run.check());
      ASSERT_NO_FATAL_FAILURE(run.check_nothing_is_hidden());
    }
  }
}

/// Has the set made anew just before it would be taken away.
struct AtTheLastMoment final : ForwardingFileSystem {
  AtTheLastMoment(FileSystem& inner, RunThatGoesBack& run) : ForwardingFileSystem(inner), run_(run) {}
  Status rename(const std::string& from, const std::string& to) override {
    if (from == "/s/sets/job/1.set" && !run_.is_made) run_.make_anew();
    return ForwardingFileSystem::rename(from, to);
  }
  Status remove(const std::string& path) override {
    if (path == "/s/sets/job/1.set" && !run_.is_made) run_.make_anew();
    return ForwardingFileSystem::remove(path);
  }

 private:
  RunThatGoesBack& run_;
};

TEST(PruneBesideARunThatGoesBack, LeavesWhatItMakesWhereverItStopsOrFails) {
  const std::vector<Fault> kinds = {{.kind = FaultKind::crash},
                                    {.kind = FaultKind::io_error},
                                    {.kind = FaultKind::io_error, .persistent = true},
                                    {.kind = FaultKind::failed_rename},
                                    {.kind = FaultKind::failed_read},
                                    {.kind = FaultKind::no_space, .persistent = true}};
  for (const bool prunes_after : {false, true}) {
    for (Fault fault : kinds) {
      bool struck = true;
      for (uint64_t at = 0; struck; ++at) {
        SCOPED_TRACE(testing::Message() << "fault " << static_cast<int>(fault.kind) << " at " << at);
        RunThatGoesBack run;
        AtTheLastMoment late(run.fs, run);
        fault.at_operation = at;
        FaultyFileSystem faulty(late, {fault});
        if (const auto pruner = Store::open(faulty, "/s"); pruner.ok())
          (void)prune_store(**pruner, RunThatGoesBack::keep_last(2));
        struck = faulty.struck();
        if (prunes_after) {
          ASSERT_TRUE(prune_store(*run.store, RunThatGoesBack::keep_last(2)).ok());
          ASSERT_NO_FATAL_FAILURE(run.check_nothing_is_hidden());
        }
        ASSERT_NO_FATAL_FAILURE(run.check());
      }
    }
  }
}

TEST(PruneOfManyCopies, ComesToRestAtOnce) {
  // A leaf that every set has for itself, beside a pack of which there are two copies: as soon as one of these is gone,
  // the arena of the other one is a better home for the leaf.
  for (int attempt = 0; attempt < 5; ++attempt) {
    MemoryFileSystem fs;
    ASSERT_TRUE(Store::create(fs, "/s").ok());
    const auto store = Store::open(fs, "/s").value();
    SetMaker twin(*store);
    const LeafLink root = test::lay_numbers(*store, twin, {0}).value();
    ASSERT_TRUE(test::save_numbers(*store, {"a", 1}, {0}).ok());
    ASSERT_TRUE(twin.commit({"b", 1}, root).ok());
    for (uint64_t step = 2; step <= 8; ++step)
      ASSERT_TRUE(
          test::save_numbers(*store, {"a", step}, step == 3 ? std::vector<uint64_t>{0, 0} : std::vector<uint64_t>{0})
              .ok());
    for (const SetName& name : {SetName{"b", 1}, SetName{"a", 1}, SetName{"a", 2}})
      ASSERT_TRUE(Catalog(*store).remove(name).ok());
    PruneOptions options;
    options.wait_seconds = options.silence_seconds = 0;
    EXPECT_GT(prune_store(*store, options).value().removed_arenas, 0u);
    EXPECT_EQ(prune_store(*store, options).value().removed_arenas, 0u);
  }
}

RC_GTEST_PROP(PruneProperty, KeepsTheSetsThatAreLeftAndComesToRest, ()) {
  MemoryFileSystem fs;
  RC_ASSERT(Store::create(fs, "/s").ok());
  const auto store = Store::open(fs, "/s").value();
  std::map<SetName, std::vector<uint64_t>> sets;
  for (uint64_t step = 1; step <= 8; ++step) {
    std::vector<uint64_t> numbers;
    for (auto count = *rc::gen::inRange<size_t>(1, 30); count > 0; --count)
      numbers.push_back(*rc::gen::inRange<uint64_t>(0, 40));
    if (*rc::gen::arbitrary<bool>()) {
      // At the same time as another one, who does not know of it.
      SetMaker twin(*store);
      const LeafLink root = test::lay_numbers(*store, twin, numbers).value();
      RC_ASSERT(test::save_numbers(*store, {"a", step}, numbers).ok());
      RC_ASSERT(twin.commit({"b", step}, root).ok());
      sets[{"b", step}] = numbers;
    } else {
      RC_ASSERT(test::save_numbers(*store, {"a", step}, numbers).ok());
    }
    sets[{"a", step}] = numbers;
    const uint64_t dropped = *rc::gen::inRange<uint64_t>(1, 9);
    const SetName gone{*rc::gen::element<std::string>("a", "b"), dropped};
    if (sets.erase(gone) > 0) RC_ASSERT(Catalog(*store).remove(gone).ok());
    if (*rc::gen::arbitrary<bool>()) {
      PruneOptions options;
      options.wait_seconds = *rc::gen::element(0.0, 0.001);  // merges, or does not
      options.silence_seconds = 0;
      options.live_share_min = *rc::gen::element(0.0, 0.3, 0.5, 0.9, 1.0);
      RC_ASSERT(prune_store(*store, options).ok());
    }
    for (const auto& [name, saved] : sets) {
      const Status held = test::check_numbers(*store, name, saved);
      if (!held.ok()) RC_FAIL(held.to_string());
    }
    RC_ASSERT(verify_store(*store, true).value().damages.empty());
  }
  PruneOptions options;
  options.wait_seconds = 0;
  options.silence_seconds = options.wait_seconds;
  RC_ASSERT(prune_store(*store, options).ok());
  const Result<PruneReport> again = prune_store(*store, options);
  RC_ASSERT(again.ok());
  RC_ASSERT(again->removed_arenas == 0u);
}

}  // namespace
}  // namespace varve
