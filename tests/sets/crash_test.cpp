// A process or machine that stops, or a disk that fails, at any file-system operation of a save, of the parts of a set,
// of a drop or a prune.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <set>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "engine/folder_source.h"
#include "engine/inspect.h"
#include "engine/save.h"
#include "sets/fault_kinds.h"
#include "sets/saving.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::Snapshot;
using test::TempFolder;

/// How much is saved, and how it is laid out.
struct SetSize {
  uint64_t rank_count = 2;
  uint64_t rank_bytes = 48_KiB;
  uint64_t fresh_bytes = 16_KiB;  ///< of those, in each step
  uint64_t extra_bytes = 1_MiB;   ///< in one file of step 3: more than a write buffer of the arena holds
  uint32_t group_size = 32;
  uint64_t pack_bytes = 1_MiB;
};

/// The folders that are saved. Consecutive ones share many of their bytes.
class Sources {
 public:
  explicit Sources(const SetSize& size) : size_(size) {
    for (uint64_t step = 1; step <= 4; ++step) {
      const std::string folder = of(step);
      for (uint64_t rank = 0; rank < size.rank_count; ++rank) {
        test::write_file(folder + "/rank" + std::to_string(rank) + ".dat", field(rank, step));
      }
      test::write_file(folder + "/notes/readme.txt", "step " + std::to_string(step));
      std::filesystem::create_symlink("rank0.dat", folder + "/first");
      snapshots_[step] = test::snapshot_of(folder);
    }
  }
  std::string of(uint64_t step) const { return folder_ / ("step" + std::to_string(step)); }
  const Snapshot& snapshot(uint64_t step) const { return snapshots_.at(step); }
  /// Saves a folder under another name or its own.
  Status save(const Store& store, uint64_t folder, const std::string& job, uint64_t step) const {
    SaveOptions options = test::save_options(job, step);
    options.ranks.group_size = size_.group_size;
    options.pack_bytes = size_.pack_bytes;
    return save_folder(store, of(folder), options, test::layout_service()).status();
  }

 private:
  ByteVector field(uint64_t rank, uint64_t step) const {
    ByteVector bytes = test::random_bytes(size_.rank_bytes, rank);
    const ByteVector fresh = test::random_bytes(size_.fresh_bytes, 100 * step + rank);
    const uint64_t shift = (size_.rank_bytes - size_.fresh_bytes) / 4;
    std::copy(fresh.begin(), fresh.end(), bytes.begin() + static_cast<ptrdiff_t>(shift * (step % 3)));
    if (step == 3 && rank == 1) {
      const ByteVector more = test::random_bytes(size_.extra_bytes, 77);
      bytes.insert(bytes.end(), more.begin(), more.end());
    }
    return bytes;
  }

  const SetSize size_;
  TempFolder folder_;
  std::map<uint64_t, Snapshot> snapshots_;
};

/// What one of the operations under test does to a store, and what it leaves when it is done.
struct Action {
  std::function<Status(const Store&)> run;
  std::set<uint64_t> always;        ///< steps of the job `run` that are there whatever happens
  std::set<uint64_t> if_done;       ///< steps that must be there if the action said OK
  std::set<uint64_t> gone_if_done;  ///< steps that must not be there if the action said OK
};

const SetName kOther{"other", 5};
const UniqueId kRun = UniqueId::parse("000102030405060708090a0b0c0d0e0f").value();

/// Nightly, every point is tried; else every `stride`-th, of what takes long.
uint64_t points_apart(uint64_t stride) {
  const char* nightly = std::getenv("VARVE_NIGHTLY");
  return nightly != nullptr && *nightly == '1' ? 1 : stride;
}

struct Interrupted : testing::Test {
  static void SetUpTestSuite() { set_up({}); }
  static void set_up(const SetSize& size) {
    sources = new Sources(size);
    // Three sets, the arena of a fourth that was dropped, and a set of another job.
    MemoryFileSystem fs;
    {
      const auto store = test::make_store(fs);
      ASSERT_TRUE(sources->save(*store, 4, "run", 0).ok());
      ASSERT_TRUE(sources->save(*store, 1, "run", 1).ok());
      ASSERT_TRUE(sources->save(*store, 2, "run", 2).ok());
      ASSERT_TRUE(sources->save(*store, 1, kOther.job, kOther.step).ok());
      ASSERT_TRUE(Catalog(*store).remove({"run", 0}).ok());
    }
    base = fs.after_crash({.kind = CrashPolicy::Kind::keep_all}).release();
  }
  static void TearDownTestSuite() {
    delete base;
    delete sources;
  }

  static std::unique_ptr<MemoryFileSystem> fresh_copy() {
    return base->after_crash({.kind = CrashPolicy::Kind::keep_all});
  }

  /// A prune that takes writers that show no sign of life for dead at once.
  static PruneOptions prune_options(double live_share_min) {
    PruneOptions options;
    options.live_share_min = live_share_min;
    options.wait_seconds = 0;
    options.silence_seconds = 0;
    return options;
  }
  /// The same, which also gives up parts whose set was not completed.
  static PruneOptions final_prune_options(double live_share_min) {
    PruneOptions options = prune_options(live_share_min);
    options.part_seconds_max = 0;
    return options;
  }

  static Action save_action() {
    return {[](const Store& store) { return sources->save(store, 3, "run", 3); }, {1, 2}, {3}, {}};
  }
  static Action drop_action() {
    return {[](const Store& store) { return Catalog(store).remove({"run", 1}); }, {2}, {}, {1}};
  }
  static Action prune_action() {
    return {[](const Store& store) {
              PruneOptions options = prune_options(0.99);
              options.keep.last = 1;
              options.job = "run";
              return prune_store(store, options).status();
            },
            {2},
            {},
            {1}};
  }

  /// Step 3 as two parts, one of each rank, and then the set of them: what two groups of a program do.
  static Action parts_action() {
    return {[](const Store& store) { return save_in_parts(store, 3, IfExists::refuse); }, {1, 2}, {3}, {}};
  }
  static Status save_in_parts(
      const Store& store, uint64_t step, IfExists if_exists,
      const std::function<Status()>& between = [] { return Status(); }) {
    SaveOptions options = test::save_options("run", step);
    options.ranks.group_size = 1;
    options.made_by = {.number = 3, .run = kRun};  // a program knows it, whatever can be read of the sets before
    VARVE_ASSIGN(const NamedSource named, look_at_source(sources->of(step)));
    VARVE_ASSIGN(auto files, find_files(named, options, null_progress()));
    const auto groups = split_into_groups(std::move(files), options);
    for (uint32_t ordinal = 0; ordinal < groups.size(); ++ordinal) {
      FolderSource source(sources->of(step), groups[ordinal], test::layout_service(), {});
      const PartName part{{"run", step}, kRun, ordinal, static_cast<uint32_t>(groups.size())};
      VARVE_TRY(save_part(store, source, part, options).status());
      VARVE_TRY(between());
    }
    return complete_set(store, kRun, {"run", step}, static_cast<uint32_t>(groups.size()), if_exists).status();
  }
  /// The same, with prunes of another process between all steps. The parts refer to an arena that only they keep.
  static Action parts_and_prunes_action() {
    return {[](const Store& store) -> Status {
              auto prune = [&] { return prune_store(store, prune_options(0.99)).status(); };
              bool dropped = false;
              auto drop_and_prune = [&] {
                const Status gone = std::exchange(dropped, true) ? Status() : Catalog(store).remove({"gone", 1});
                return gone.ok() ? prune() : gone;
              };
              VARVE_TRY(sources->save(store, 3, "gone", 1));
              const Status saved = save_in_parts(store, 3, IfExists::refuse, drop_and_prune);
              return saved.ok() ? prune() : saved;
            },
            {1, 2},
            {3},
            {}};
  }
  /// A run that has fallen back behind step 2 writes it again.
  static Action replace_action() {
    return {[](const Store& store) { return save_in_parts(store, 2, IfExists::replace); }, {1, 2}, {}, {}};
  }

  static FaultyFileSystem::OperationCount operations_of(const Action& action) {
    const auto fs = fresh_copy();
    FaultyFileSystem counting(*fs);
    const auto store = test::open_store(counting);
    const Status done = action.run(*store);
    EXPECT_TRUE(done.ok()) << done.to_string();
    return counting.operation_count();
  }

  /// Checks what is left of the store: all sets that must be there are whole, and others are whole or invisible; then
  /// that it goes on working, and that nothing of the interruption stays behind.
  static void check_left(MemoryFileSystem& fs, const Action& action, bool said_done) {
    {
      const auto store = test::open_store(fs);
      ASSERT_NE(store, nullptr);
      ASSERT_TRUE(test::is_whole(*store));
      check_sets(*store, action, said_done);
    }
    const auto store = test::open_store(fs);
    const Status next = sources->save(*store, 4, "run", 9);
    ASSERT_TRUE(next.ok()) << next.to_string();
    // A new run completes what it finds complete: it is whole, or not there.
    const auto completed = complete_leftover_parts(*store, "run");
    ASSERT_TRUE(completed.ok()) << completed.status().to_string();
    ASSERT_TRUE(test::is_whole(*store));
    check_sets(*store, action, said_done);
    const Result<PruneReport> pruned = prune_store(*store, final_prune_options(0.5));
    ASSERT_TRUE(pruned.ok()) << pruned.status().to_string();
    ASSERT_TRUE(test::is_whole(*store));
    ASSERT_TRUE(test::restores_as(*store, {"run", 9}, sources->snapshot(4)));
    check_sets(*store, action, said_done);
    check_no_leftovers(*store);
  }

  static void check_sets(const Store& store, const Action& action, bool said_done) {
    ASSERT_TRUE(test::restores_as(store, kOther, sources->snapshot(1)));
    for (const auto& [name, snapshot] : further) ASSERT_TRUE(test::restores_as(store, name, snapshot));
    const std::vector<uint64_t> steps = Catalog(store).steps("run").value();
    const std::set<uint64_t> visible(steps.begin(), steps.end());
    for (uint64_t step : action.always) ASSERT_TRUE(visible.contains(step)) << step;
    if (said_done) {
      for (uint64_t step : action.if_done) ASSERT_TRUE(visible.contains(step)) << step;
      for (uint64_t step : action.gone_if_done) ASSERT_FALSE(visible.contains(step)) << step;
    }
    for (uint64_t step : visible) {
      ASSERT_TRUE(step == 9 || test::restores_as(store, {"run", step}, sources->snapshot(step)));
    }
  }

  /// Every arena serves a set, and no temporary file, lease or mark is left.
  static void check_no_leftovers(const Store& store) {
    for (const std::string& folder : {store.writers_path(), store.condemned_path()}) {
      ASSERT_TRUE(store.backend().list(folder).value().empty()) << folder;
    }
    ASSERT_TRUE(list_parts(store).value().empty());
    for (const std::string& folder : {store.arenas_path(), store.index_path(), store.sets_path()}) {
      for (const DirectoryEntry& entry : store.backend().list(folder).value()) {
        ASSERT_FALSE(entry.name.ends_with(".part") || entry.name.ends_with(".tmp")) << entry.name;
      }
    }
    const Result<PruneReport> again = prune_store(store, prune_options(0));
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->removed_arenas + again->leftover_files, 0u);
  }

  static void crash_everywhere(const Action& action, uint64_t stride = 1) {
    const uint64_t operations = operations_of(action).mutating;
    for (uint64_t at = points_apart(stride) / 2; at < operations; at += points_apart(stride)) {
      const auto fs = fresh_copy();
      bool said_done = false;
      std::string trace;
      {
        FaultyFileSystem faulty(*fs, {{.kind = FaultKind::crash, .at_operation = at, .persistent = true, .seed = at}});
        const auto store = test::open_store(faulty);
        said_done = action.run(*store).ok();
        ASSERT_TRUE(faulty.crashed());
        trace = faulty.trace();
      }
      std::vector<CrashPolicy> policies = {{.kind = CrashPolicy::Kind::keep_all},
                                           {.kind = CrashPolicy::Kind::drop_unsynced}};
      for (uint64_t seed = 0; seed < 3; ++seed) policies.push_back({CrashPolicy::Kind::torn, 1000 * at + seed});
      for (const CrashPolicy& policy : policies) {
        SCOPED_TRACE("crash at operation " + std::to_string(at) + " of " + std::to_string(operations) + ", policy " +
                     std::to_string(static_cast<int>(policy.kind)) + ", seed " + std::to_string(policy.seed) + "\n" +
                     trace);
        const auto left = fs->after_crash(policy);
        check_left(*left, action, said_done);
        if (HasFatalFailure()) return;
      }
    }
  }

  static bool strikes_reading(FaultKind kind) {
    return kind == FaultKind::failed_read || kind == FaultKind::flipped_bit;
  }

  static void fail_everywhere(const Action& action, FaultKind kind, uint64_t stride = 1) {
    const FaultyFileSystem::OperationCount count = operations_of(action);
    const uint64_t operations = strikes_reading(kind) ? count.reading : count.mutating;
    for (bool persistent : {false, true}) {
      for (uint64_t at = 0; at < operations; at += points_apart(stride)) {
        fail_once(action, {.kind = kind, .at_operation = at, .persistent = persistent, .seed = at});
        if (HasFatalFailure()) return;
      }
    }
  }

  static void fail_once(const Action& action, const Fault& fault) {
    const auto fs = fresh_copy();
    bool said_done = false;
    std::string trace;
    {
      FaultyFileSystem faulty(*fs, {fault});
      Result<std::unique_ptr<Store>> store = Store::open(faulty, "/store");
      const Status status = store.ok() ? action.run(**store) : store.status();
      if (!faulty.struck()) return;
      said_done = status.ok();
      trace = faulty.trace() + status.to_string();
    }
    SCOPED_TRACE(std::string(fault.persistent ? "persistent" : "single") + " fault at operation " +
                 std::to_string(fault.at_operation) + "\n" + trace);
    Action expected = action;
    if (strikes_reading(fault.kind)) expected.gone_if_done.clear();  // what cannot be judged stays
    // The machine goes on, and then it loses its power.
    check_left(*fs->after_crash({.kind = CrashPolicy::Kind::keep_all}), expected, said_done);
    if (HasFatalFailure() || strikes_reading(fault.kind)) return;
    check_left(*fs->after_crash({.kind = CrashPolicy::Kind::drop_unsynced}), action, said_done);
  }

  static Sources* sources;
  static MemoryFileSystem* base;
  static std::map<SetName, Snapshot> further;  ///< sets that are there whatever happens
};
Sources* Interrupted::sources = nullptr;
MemoryFileSystem* Interrupted::base = nullptr;
std::map<SetName, Snapshot> Interrupted::further;

TEST_F(Interrupted, SaveThatCrashesAtAnyOperationLeavesAllEarlierSetsAndItsOwnWholeOrNot) {
  crash_everywhere(save_action());
}
TEST_F(Interrupted, PartsThatCrashAtAnyOperationLeaveAllEarlierSetsAndTheirOwnWholeOrNot) {
  crash_everywhere(parts_action());
}
TEST_F(Interrupted, PartsAndPrunesBesideThemThatCrashAtAnyOperationLeaveAllKeptSets) {
  crash_everywhere(parts_and_prunes_action());
}
TEST_F(Interrupted, ReplacingASetThatCrashesAtAnyOperationLeavesTheOldOneOrTheNewOneWhole) {
  crash_everywhere(replace_action());
}
TEST_F(Interrupted, DropThatCrashesAtAnyOperationLeavesAllOtherSets) { crash_everywhere(drop_action()); }
TEST_F(Interrupted, PruneThatCrashesAtAnyOperationLeavesAllKeptSets) { crash_everywhere(prune_action()); }

/// Sets of several groups and of many packs, whose arenas take several writes each.
struct InterruptedLarge : Interrupted {
  static void SetUpTestSuite() {
    set_up({.rank_count = 6,
            .rank_bytes = 900_KiB,
            .fresh_bytes = 600_KiB,
            .extra_bytes = 1_MiB,
            .group_size = 2,
            .pack_bytes = 64_KiB});
  }
};

TEST_F(InterruptedLarge, SaveThatCrashesAtAnyOperationLeavesAllEarlierSetsAndItsOwnWholeOrNot) {
  crash_everywhere(save_action(), 14);
}
TEST_F(InterruptedLarge, DropThatCrashesAtAnyOperationLeavesAllOtherSets) { crash_everywhere(drop_action(), 3); }
TEST_F(InterruptedLarge, PruneThatCrashesAtAnyOperationLeavesAllKeptSets) { crash_everywhere(prune_action(), 14); }

/// A store of many small arenas, and of some that have the same.
struct InterruptedMerge : Interrupted {
  static void SetUpTestSuite() {
    set_up({.rank_bytes = 12_KiB, .fresh_bytes = 4_KiB, .extra_bytes = 0});
    const auto store = test::open_store(*base);
    // Who may not refer to what is there saves it again, as one who does not know of it.
    std::vector<std::string> marks;
    for (const ArenaId& id : store->list_arenas().value())
      marks.push_back(join_path(store->condemned_path(), id.hex()));
    for (const std::string& mark : marks) ASSERT_TRUE(base->create(mark).ok());
    ASSERT_TRUE(sources->save(*store, 2, "twin", 1).ok());
    for (const std::string& mark : marks) ASSERT_TRUE(base->remove(mark).ok());
    further[{"twin", 1}] = sources->snapshot(2);
    for (uint64_t step = 1; step <= 8; ++step) {
      const TempFolder folder;
      test::write_file(folder.path() + "/rank0.dat", test::random_bytes(1500, step));
      ASSERT_TRUE(test::save(*store, folder.path(), "small", step).ok());
      further[{"small", step}] = test::snapshot_of(folder.path());
    }
  }
  static void TearDownTestSuite() {
    further.clear();
    Interrupted::TearDownTestSuite();
  }
  static Action merge_action() {
    return {[](const Store& store) {
              PruneOptions options = prune_options(0.9);
              options.wait_seconds = 0.001;
              return prune_store(store, options).status();
            },
            {1, 2},
            {},
            {}};
  }
};

TEST_F(InterruptedMerge, LeavesFewArenasAndOneCopyOfAll) {
  const auto fs = fresh_copy();
  const auto store = test::open_store(*fs);
  const uint64_t before = store_statistics(*store).value().stored_bytes();
  EXPECT_GT(store->list_arenas().value().size(), 12u);
  ASSERT_TRUE(merge_action().run(*store).ok());
  EXPECT_LE(store->list_arenas().value().size(), 3u);
  EXPECT_LT(store_statistics(*store).value().stored_bytes(), before * 7 / 8);
  check_sets(*store, merge_action(), true);
}
TEST_F(InterruptedMerge, ThatCrashesAtAnyOperationLeavesAllSets) { crash_everywhere(merge_action()); }

struct FailingMerge : InterruptedMerge, testing::WithParamInterface<FaultKind> {};
TEST_P(FailingMerge, LeavesAllSetsAndNeverClaimsSuccessWrongly) { fail_everywhere(merge_action(), GetParam(), 3); }
INSTANTIATE_TEST_SUITE_P(Disk, FailingMerge, test::every_fault(), test::fault_name);

struct Failing : Interrupted, testing::WithParamInterface<FaultKind> {};

TEST_P(Failing, SaveLeavesAllEarlierSetsAndNeverClaimsSuccessWrongly) { fail_everywhere(save_action(), GetParam()); }
TEST_P(Failing, PartsLeaveAllEarlierSetsAndNeverClaimSuccessWrongly) { fail_everywhere(parts_action(), GetParam()); }
TEST_P(Failing, PartsAndPrunesBesideThemLeaveAllKeptSets) {
  fail_everywhere(parts_and_prunes_action(), GetParam(), 11);
}
TEST_P(Failing, ReplacingASetLeavesTheOldOneOrTheNewOneWhole) { fail_everywhere(replace_action(), GetParam()); }
TEST_P(Failing, DropLeavesAllOtherSetsAndNeverClaimsSuccessWrongly) { fail_everywhere(drop_action(), GetParam()); }
TEST_P(Failing, PruneLeavesAllKeptSetsAndNeverClaimsSuccessWrongly) { fail_everywhere(prune_action(), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Disk, Failing, test::every_fault(), test::fault_name);

/// A restore either gives what was saved, or an error and not a single file.
TEST_F(Interrupted, RestoreNeverGivesWrongBytesWhateverReadFailsOrLies) {
  const auto fs = fresh_copy();
  uint64_t operations = 0;
  {
    FaultyFileSystem counting(*fs);
    ASSERT_TRUE(test::restores_as(*test::open_store(counting), {"run", 2}, sources->snapshot(2)));
    operations = counting.operation_count().reading;
  }
  RestoreOptions options;
  options.sync = false;
  options.thread_count = 1;
  for (FaultKind kind : {FaultKind::failed_read, FaultKind::flipped_bit}) {
    for (bool persistent : {false, true}) {
      for (uint64_t at = 0; at < operations; ++at) {
        FaultyFileSystem faulty(*fs, {{.kind = kind, .at_operation = at, .persistent = persistent, .seed = 31 * at}});
        Result<std::unique_ptr<Store>> store = Store::open(faulty, "/store");
        if (!store.ok()) continue;
        const TempFolder folder;
        const Result<RestoreReport> report = restore_set(**store, {"run", 2}, folder.path(), options);
        const Snapshot expected = report.ok() ? sources->snapshot(2) : Snapshot{};
        ASSERT_EQ(test::snapshot_of(folder.path()), expected) << faulty.trace() << report.status().to_string();
      }
    }
  }
}

TEST_F(Interrupted, SaveThatFailedOnceSucceedsWhenItIsTriedAgain) {
  const uint64_t operations = operations_of(save_action()).mutating;
  for (FaultKind kind : {FaultKind::no_space, FaultKind::failed_sync, FaultKind::short_write}) {
    for (uint64_t at = 0; at < operations; ++at) {
      const auto fs = fresh_copy();
      FaultyFileSystem faulty(*fs, {{.kind = kind, .at_operation = at, .persistent = false, .seed = at}});
      const auto store = test::open_store(faulty);
      const Status first = save_action().run(*store);
      const Status second = save_action().run(*store);
      // Only if the very last step failed, to make the name durable, is the set there already.
      ASSERT_TRUE(first.ok() || second.ok() || second.code() == StatusCode::already_exists) << second.to_string();
      ASSERT_TRUE(test::restores_as(*store, {"run", 3}, sources->snapshot(3))) << faulty.trace();
    }
  }
}

TEST_F(Interrupted, StoreThatIsFullSaysSo) {
  const auto fs = fresh_copy();
  FaultyFileSystem faulty(*fs, {{.kind = FaultKind::no_space, .at_operation = 0, .persistent = true, .seed = 0}});
  const auto store = test::open_store(faulty);
  EXPECT_EQ(save_action().run(*store).code(), StatusCode::no_space);
}

}  // namespace
}  // namespace varve
