// A process or machine that stops, a disk that fails, and others who are at work, at any file-system operation of a
// transfer from one store to another.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "engine/transfer.h"
#include "sets/fault_kinds.h"
#include "sets/saving.h"
#include "store/prune.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::check_numbers;
using test::numbers_between;
using test::save_numbers;

const SetName kOld{"run", 1}, kNew{"run", 2}, kOther{"other", 1}, kLast{"run", 9};

std::vector<uint64_t> numbers_of(const SetName& name) {
  if (name == kOld) return numbers_between(1, 60);
  if (name == kNew) return numbers_between(31, 120);
  if (name == kOther) return numbers_between(200, 230);
  return numbers_between(110, 140);
}

TransferOptions in_turn() {
  TransferOptions options;
  options.thread_count = 1;
  options.direct_io = false;
  return options;
}

std::unique_ptr<MemoryFileSystem> copy_of(const MemoryFileSystem& fs) {
  return fs.after_crash({.kind = CrashPolicy::Kind::keep_all});
}

PruneOptions impatient_prune() {
  PruneOptions options;
  options.live_share_min = 0.99;
  options.wait_seconds = 0;
  options.silence_seconds = 0;
  return options;
}

/// A source with two sets that share; a target that has the first of them, one of its own, and rubbish.
struct InterruptedTransfer : testing::Test {
  static void SetUpTestSuite() {
    MemoryFileSystem from_fs, to_fs;
    {
      const auto from = test::make_store(from_fs), to = test::make_store(to_fs);
      ASSERT_TRUE(save_numbers(*from, kOld, numbers_of(kOld)).ok());
      ASSERT_TRUE(save_numbers(*from, kNew, numbers_of(kNew)).ok());
      ASSERT_TRUE(save_numbers(*to, {"gone", 1}, numbers_between(300, 310)).ok());
      ASSERT_TRUE(save_numbers(*to, kOther, numbers_of(kOther)).ok());
      ASSERT_TRUE(Catalog(*to).remove({"gone", 1}).ok());
      ASSERT_TRUE(copy_set(*from, *to, kOld, in_turn()).ok());
    }
    source = copy_of(from_fs).release();
    target = copy_of(to_fs).release();
  }
  static void TearDownTestSuite() {
    delete source;
    delete target;
  }

  /// What a transfer has left in its target: the sets that were there are whole, the new one is whole or not there, and
  /// the store goes on working.
  static void check_target(MemoryFileSystem& fs, bool said_done) {
    const auto store = test::open_store(fs);
    ASSERT_NE(store, nullptr);
    auto check_sets = [&] {
      for (const SetName& name : {kOld, kOther}) {
        const Status kept = check_numbers(*store, name, numbers_of(name));
        ASSERT_TRUE(kept.ok()) << kept.to_string();
      }
      const Status sent = check_numbers(*store, kNew, numbers_of(kNew));
      if (sent.code() != StatusCode::not_found || said_done || Catalog(*store).read(kNew).ok()) {
        ASSERT_TRUE(sent.ok()) << sent.to_string();
      }
    };
    check_sets();
    ASSERT_TRUE(test::is_whole(*store));
    ASSERT_TRUE(save_numbers(*store, kLast, numbers_of(kLast)).ok());
    check_sets();
    const Result<PruneReport> pruned = prune_store(*store, impatient_prune());
    ASSERT_TRUE(pruned.ok()) << pruned.status().to_string();
    check_sets();
    // Tried again, it succeeds.
    const auto from_fs = copy_of(*source);
    const auto from = test::open_store(*from_fs);
    const Result<TransferReport> again = copy_set(*from, *store, kNew, in_turn());
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    for (const SetName& name : {kOld, kNew, kOther, kLast})
      ASSERT_TRUE(check_numbers(*store, name, numbers_of(name)).ok()) << name.to_string();
    ASSERT_TRUE(test::is_whole(*store));
    ASSERT_TRUE(store->backend().list(store->writers_path()).value().empty());
    for (const DirectoryEntry& entry : store->backend().list(store->arenas_path()).value())
      ASSERT_FALSE(entry.name.ends_with(".part")) << entry.name;
  }

  /// Transfers with this fault in the target, and checks what is left.
  static void strike_target(const Fault& fault, const std::vector<CrashPolicy>& policies) {
    const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
    const auto from = test::open_store(*from_fs);
    bool said_done = false;
    std::string trace;
    {
      FaultyFileSystem faulty(*to_fs, {fault});
      Result<std::unique_ptr<Store>> to = Store::open(faulty, "/store");
      const Status copied = to.ok() ? copy_set(*from, **to, kNew, in_turn()).status() : to.status();
      if (!faulty.struck() && !faulty.crashed()) return;
      said_done = copied.ok();
      trace = faulty.trace() + copied.to_string();
    }
    for (const CrashPolicy& policy : policies) {
      SCOPED_TRACE("fault " + std::to_string(static_cast<int>(fault.kind)) + " at operation " +
                   std::to_string(fault.at_operation) + ", policy " + std::to_string(static_cast<int>(policy.kind)) +
                   ", seed " + std::to_string(policy.seed) + "\n" + trace);
      check_target(*to_fs->after_crash(policy), said_done);
      if (HasFatalFailure()) return;
    }
  }

  static FaultyFileSystem::OperationCount operations(bool of_target) {
    const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
    FaultyFileSystem from_counting(*from_fs), to_counting(*to_fs);
    const auto from = test::open_store(from_counting), to = test::open_store(to_counting);
    EXPECT_TRUE(copy_set(*from, *to, kNew, in_turn()).ok());
    return of_target ? to_counting.operation_count() : from_counting.operation_count();
  }

  static MemoryFileSystem *source, *target;
};
MemoryFileSystem* InterruptedTransfer::source = nullptr;
MemoryFileSystem* InterruptedTransfer::target = nullptr;

TEST_F(InterruptedTransfer, ThatCrashesAtAnyOperationLeavesTheTargetWholeWithOrWithoutTheSet) {
  const uint64_t count = operations(true).mutating;
  ASSERT_GT(count, 10u);
  for (uint64_t at = 0; at < count; ++at) {
    std::vector<CrashPolicy> policies = {{.kind = CrashPolicy::Kind::keep_all},
                                         {.kind = CrashPolicy::Kind::drop_unsynced}};
    for (uint64_t seed = 0; seed < 5; ++seed) policies.push_back({CrashPolicy::Kind::torn, 1000 * at + seed});
    strike_target({.kind = FaultKind::crash, .at_operation = at, .persistent = true, .seed = at}, policies);
    if (HasFatalFailure()) return;
  }
}

TEST_F(InterruptedTransfer, IsDurableWhenItIsDone) {
  const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
  const auto from = test::open_store(*from_fs), to = test::open_store(*to_fs);
  ASSERT_TRUE(copy_set(*from, *to, kNew, in_turn()).ok());
  check_target(*to_fs->after_crash({.kind = CrashPolicy::Kind::drop_unsynced}), true);
}

TEST_F(InterruptedTransfer, NeverWritesToTheSource) { EXPECT_EQ(operations(false).mutating, 0u); }

/// Who says that the set is there says that it stays: also where the one who committed it has not made it durable yet.
TEST_F(InterruptedTransfer, OfASetThatSomebodyHasJustCommittedMakesItDurable) {
  const uint64_t count = operations(true).mutating;
  for (uint64_t at = count - 4; at < count; ++at) {
    const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
    const auto from = test::open_store(*from_fs);
    {
      FaultyFileSystem faulty(*to_fs, {{.kind = FaultKind::crash, .at_operation = at, .persistent = true, .seed = at}});
      const auto to = test::open_store(faulty);
      copy_set(*from, *to, kNew, in_turn()).status().ignore("it is stopped somewhere");
    }
    const auto to = test::open_store(*to_fs);
    const Result<TransferReport> second = copy_set(*from, *to, kNew, in_turn());
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    check_target(*to_fs->after_crash({.kind = CrashPolicy::Kind::drop_unsynced}), true);
    if (HasFatalFailure()) return;
  }
}

/// What is read wrong there is not passed on: the set arrives as it is, or not at all.
TEST_F(InterruptedTransfer, FromADiskThatFailsOrLiesGivesTheSetAsItIsOrAnError) {
  const uint64_t count = operations(false).reading;
  for (const FaultKind kind : {FaultKind::failed_read, FaultKind::flipped_bit}) {
    for (const bool persistent : {false, true}) {
      for (uint64_t at = 0; at < count; ++at) {
        const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
        FaultyFileSystem faulty(*from_fs,
                                {{.kind = kind, .at_operation = at, .persistent = persistent, .seed = 7 * at}});
        Result<std::unique_ptr<Store>> from = Store::open(faulty, "/store");
        if (!from.ok()) continue;
        bool said_done = false;
        {
          const auto to = test::open_store(*to_fs);
          const Status copied = copy_set(**from, *to, kNew, in_turn()).status();
          said_done = copied.ok();
          SCOPED_TRACE(faulty.trace() + copied.to_string());
          ASSERT_EQ(Catalog(*to).read(kNew).ok(), said_done);
        }
        SCOPED_TRACE(faulty.trace());
        check_target(*to_fs, said_done);
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct FailingTransfer : InterruptedTransfer, testing::WithParamInterface<FaultKind> {};

TEST_P(FailingTransfer, TargetStaysWholeAndNoSuccessIsClaimedWrongly) {
  const FaultyFileSystem::OperationCount count = operations(true);
  const bool reading = GetParam() == FaultKind::failed_read || GetParam() == FaultKind::flipped_bit;
  std::vector<CrashPolicy> policies = {{.kind = CrashPolicy::Kind::keep_all}};
  if (!reading) policies.push_back({.kind = CrashPolicy::Kind::drop_unsynced});
  for (const bool persistent : {false, true}) {
    for (uint64_t at = 0; at < (reading ? count.reading : count.mutating); ++at) {
      strike_target({.kind = GetParam(), .at_operation = at, .persistent = persistent, .seed = at}, policies);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Disk, FailingTransfer, test::every_fault(), test::fault_name);

/// Calls something once, just before a given operation.
class InterruptedFileSystem final : public FileSystem {
 public:
  InterruptedFileSystem(FileSystem& inner, uint64_t at, std::function<void()> what)
      : inner_(inner), at_(at), what_(std::move(what)) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override { return tick(), inner_.open_read(path); }
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
    return tick(), inner_.create(path, options);
  }
  Status create_directory(const std::string& path) override { return tick(), inner_.create_directory(path); }
  Status rename(const std::string& from, const std::string& to) override { return tick(), inner_.rename(from, to); }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    return tick(), inner_.rename_no_replace(from, to);
  }
  Status remove(const std::string& path) override { return tick(), inner_.remove(path); }
  Status remove_directory(const std::string& path) override { return tick(), inner_.remove_directory(path); }
  Status sync_directory(const std::string& path) override { return tick(), inner_.sync_directory(path); }
  Status touch(const std::string& path) override { return inner_.touch(path); }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override { return tick(), inner_.list(path); }
  Result<FileStatus> stat(const std::string& path) override { return tick(), inner_.stat(path); }

  bool called() const { return count_ > at_; }

 private:
  void tick() {
    if (count_++ == at_) what_();
  }
  FileSystem& inner_;
  const uint64_t at_;
  const std::function<void()> what_;
  std::atomic<uint64_t> count_{0};
};

TEST_F(InterruptedTransfer, IsNotBrokenByADropAndAPruneOfTheTargetAtAnyMoment) {
  for (const double silence_seconds : {0.0, 1000.0}) {
    bool more = true;
    for (uint64_t at = 0; more; ++at) {
      SCOPED_TRACE("before operation " + std::to_string(at));
      const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
      const auto from = test::open_store(*from_fs);
      InterruptedFileSystem interrupted(*to_fs, at, [&] {
        const auto store = test::open_store(*to_fs);
        PruneOptions options = impatient_prune();
        options.silence_seconds = silence_seconds;
        // The target's own set that the new one shares most with.
        ASSERT_TRUE(Catalog(*store).remove(kOld).ok());
        ASSERT_TRUE(prune_store(*store, options).ok());
      });
      {
        const Result<std::unique_ptr<Store>> to = Store::open(interrupted, "/store");
        ASSERT_TRUE(to.ok());
        const Status copied = copy_set(*from, **to, kNew, in_turn()).status();
        ASSERT_TRUE(copied.ok()) << copied.to_string();
      }
      more = interrupted.called();
      const auto store = test::open_store(*to_fs);
      for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(check_numbers(*store, kNew, numbers_of(kNew)).ok());
        ASSERT_TRUE(check_numbers(*store, kOther, numbers_of(kOther)).ok());
        ASSERT_TRUE(test::is_whole(*store));
        ASSERT_TRUE(prune_store(*store, impatient_prune()).ok());
      }
    }
  }
}

TEST_F(InterruptedTransfer, IsWholeOrAnErrorWhateverIsDroppedAndPrunedInTheSourceAtAnyMoment) {
  for (const bool drop_it : {true, false}) {
    bool more = true;
    uint64_t refused = 0;
    for (uint64_t at = 0; more; ++at) {
      SCOPED_TRACE("before operation " + std::to_string(at));
      const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
      InterruptedFileSystem interrupted(*from_fs, at, [&] {
        const auto store = test::open_store(*from_fs);
        // Without the set, or with all of its packs in other arenas than before.
        ASSERT_TRUE(Catalog(*store).remove(drop_it ? kNew : kOld).ok());
        PruneOptions options = impatient_prune();
        options.live_share_min = 1.1;
        ASSERT_TRUE(prune_store(*store, options).ok());
      });
      bool done = false;
      {
        const Result<std::unique_ptr<Store>> from = Store::open(interrupted, "/store");
        ASSERT_TRUE(from.ok());
        const auto to = test::open_store(*to_fs);
        const Status copied = copy_set(**from, *to, kNew, in_turn()).status();
        done = copied.ok();
        refused += done ? 0 : 1;
        ASSERT_TRUE(done || (drop_it && copied.code() == StatusCode::not_found)) << copied.to_string();
        ASSERT_EQ(Catalog(*to).read(kNew).ok(), done);
      }
      more = interrupted.called();
      check_target(*to_fs, done);
      if (HasFatalFailure()) return;
    }
    EXPECT_EQ(refused > 0, drop_it);
  }
}

TEST_F(InterruptedTransfer, OfTheSameSetTwiceAtOnceBothSucceedAndItIsThereOnce) {
  for (int round = 0; round < 20; ++round) {
    const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
    std::vector<std::thread> threads;
    std::atomic<int> were_there{0};
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        const auto from = test::open_store(*from_fs), to = test::open_store(*to_fs);
        const Result<TransferReport> report = copy_set(*from, *to, kNew, in_turn());
        EXPECT_TRUE(report.ok()) << report.status().to_string();
        if (report.ok() && report->was_there) ++were_there;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(were_there, 2);
    check_target(*to_fs, true);
    if (HasFatalFailure()) return;
  }
}

TEST_F(InterruptedTransfer, AndPrunesOfBothStoresBesideItLoseNothing) {
  const auto from_fs = copy_of(*source), to_fs = copy_of(*target);
  std::atomic<bool> stop{false};
  std::vector<std::thread> pruners;
  for (MemoryFileSystem* fs : {from_fs.get(), to_fs.get(), to_fs.get()}) {
    pruners.emplace_back([&stop, fs] {
      const auto store = test::open_store(*fs);
      PruneOptions options = impatient_prune();
      options.wait_seconds = options.silence_seconds = 20;
      options.live_share_min = 0.8;
      while (!stop) {
        const Status pruned = prune_store(*store, options).status();
        EXPECT_TRUE(pruned.ok()) << pruned.to_string();
      }
    });
  }
  const auto from = test::open_store(*from_fs), to = test::open_store(*to_fs);
  const auto seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::vector<uint64_t> numbers = numbers_of(kNew);
  for (uint64_t step = 10; step < 50; ++step) {
    for (int i = 0; i < 20; ++i) numbers[random() % numbers.size()] = 1000 * step + static_cast<uint64_t>(i);
    ASSERT_TRUE(save_numbers(*from, {"run", step}, numbers).ok());
    TransferOptions options;
    options.thread_count = 2;
    const Status copied = copy_set(*from, *to, {"run", step}, options).status();
    ASSERT_TRUE(copied.ok()) << copied.to_string();
    ASSERT_TRUE(check_numbers(*to, {"run", step}, numbers).ok());
    if (step > 11) {
      ASSERT_TRUE(Catalog(*to).remove({"run", step - 1}).ok());
      ASSERT_TRUE(Catalog(*from).remove({"run", step - 2}).ok());
    }
  }
  stop = true;
  for (std::thread& pruner : pruners) pruner.join();
  EXPECT_TRUE(check_numbers(*to, {"run", 49}, numbers).ok());
  EXPECT_TRUE(test::is_whole(*to));
  EXPECT_TRUE(test::is_whole(*from));
}

}  // namespace
}  // namespace varve
