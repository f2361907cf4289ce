#include "store/prune.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "core/forwarding_file_system.h"
#include "core/memory_file_system.h"
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

TEST_F(Prune, OfAnEmptyStoreDoesNothing) {
  const PruneReport report = prune();
  EXPECT_EQ(report.removed_arenas, 0u);
  EXPECT_EQ(report.bytes_before, 0u);
}

TEST_F(Prune, KeepsTheNewestSetsOfEachJob) {
  for (uint64_t step = 1; step <= 5; ++step) save({"a", step}, {step});
  for (uint64_t step = 1; step <= 2; ++step) save({"b", step}, {step});
  PruneOptions options = at_once();
  options.keep_last = 2;
  EXPECT_EQ(prune(options).dropped, (std::vector<SetName>{{"a", 1}, {"a", 2}, {"a", 3}}));
  EXPECT_EQ(Catalog(*store).sets().value(), (std::vector<SetName>{{"a", 4}, {"a", 5}, {"b", 1}, {"b", 2}}));
}

TEST_F(Prune, KeepsEverySoManySteps) {
  for (uint64_t step = 0; step <= 50; step += 5) save({"a", step}, {step});
  PruneOptions options = at_once();
  options.keep_last = 1;
  options.keep_every = 20;
  prune(options);
  EXPECT_EQ(Catalog(*store).steps("a").value(), (std::vector<uint64_t>{0, 20, 40, 50}));
}

TEST_F(Prune, DropsSetsOfTheNamedJobOnly) {
  for (const char* job : {"a", "b"}) {
    for (uint64_t step = 1; step <= 3; ++step) save({job, step}, {step});
  }
  PruneOptions options = at_once();
  options.keep_last = 1;
  options.job = "b";
  EXPECT_EQ(prune(options).dropped.size(), 2u);
  EXPECT_EQ(Catalog(*store).steps("a").value().size(), 3u);
}

TEST_F(Prune, OnlySaysWhatItWouldDropIfAsked) {
  for (uint64_t step = 1; step <= 3; ++step) save({"a", step}, {step});
  const uint64_t bytes = arena_bytes();
  PruneOptions options = at_once();
  options.keep_last = 1;
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

TEST_F(Prune, MakesRoomOnAFullDisk) {
  save({"run", 1}, numbers_between(1, 100));
  save({"run", 2}, numbers_between(101, 200));
  save({"run", 3}, numbers_between(201, 300));
  FullDisk disk(fs);
  const auto own = Store::open(disk, "/s").value();
  PruneOptions options = at_once();
  options.keep_last = 1;
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
  options.keep_last = 1;
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

TEST_F(Prune, LeavesTheCopiesOfOneThatMovesArenas) {
  UniqueId mover = UniqueId::random().value();
  const ByteSpan tag = as_bytes("arena mover.");
  std::copy(tag.begin(), tag.end(), mover.bytes.end() - static_cast<ptrdiff_t>(tag.size()));
  const std::string part = store->part_path(UniqueId::random().value());
  ASSERT_TRUE(fs.create(part).ok());
  {
    const auto lease = WriterLease::acquire(*store, mover).value();
    PruneOptions while_it_lives;
    while_it_lives.wait_seconds = 0;
    prune(while_it_lives);
    EXPECT_TRUE(fs.stat(part).ok());
  }
  prune();
  EXPECT_FALSE(fs.stat(part).ok());
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

RC_GTEST_PROP(PruneProperty, KeepsTheSetsThatAreLeftAndComesToRest, ()) {
  MemoryFileSystem fs;
  RC_ASSERT(Store::create(fs, "/s").ok());
  const auto store = Store::open(fs, "/s").value();
  std::map<SetName, std::vector<uint64_t>> sets;
  for (uint64_t step = 1; step <= 8; ++step) {
    std::vector<uint64_t> numbers;
    for (auto count = *rc::gen::inRange<size_t>(1, 30); count > 0; --count)
      numbers.push_back(*rc::gen::inRange<uint64_t>(0, 40));
    RC_ASSERT(test::save_numbers(*store, {"a", step}, numbers).ok());
    sets[{"a", step}] = numbers;
    const uint64_t dropped = *rc::gen::inRange<uint64_t>(1, 9);
    if (sets.erase({"a", dropped}) > 0) RC_ASSERT(Catalog(*store).remove({"a", dropped}).ok());
    if (*rc::gen::arbitrary<bool>()) {
      PruneOptions options;
      options.wait_seconds = 0;
      options.silence_seconds = options.wait_seconds;
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
