// Several writers, readers and prunes at work on one store at the same time, each with a Store of its own as if it were
// a process of its own.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "core/memory_file_system.h"
#include "engine/folder_source.h"
#include "engine/save.h"
#include "sets/saving.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::TempFolder;

constexpr uint64_t kSourceCount = 6;

/// Folders that share much of their contents.
struct AtOnce : testing::TestWithParam<bool> {
  void SetUp() override {
    for (uint64_t i = 0; i < kSourceCount; ++i) {
      ByteVector bytes = test::random_bytes(60'000, 1);
      const ByteVector fresh = test::random_bytes(20'000, 100 + i);
      std::copy(fresh.begin(), fresh.end(), bytes.begin() + static_cast<ptrdiff_t>(8192 * (i % 4)));
      test::write_file(source(i) + "/rank0.dat", bytes);
      test::write_file(source(i) + "/rank1.dat", test::smooth_field(2000, i / 2));
      snapshots.push_back(test::snapshot_of(source(i)));
    }
    test::layout_service();
    test::make_store(fs(), path());
  }
  std::string source(uint64_t i) const { return place / ("source" + std::to_string(i)); }
  FileSystem& fs() { return GetParam() ? posix_file_system() : static_cast<FileSystem&>(memory); }
  std::string path() const { return GetParam() ? place / "store" : "/store"; }

  /// Saves and drops sets of a job of its own; whatever it keeps must be there at the end.
  void write(uint64_t writer, int rounds, std::map<SetName, uint64_t>& kept) {
    const auto store = test::open_store(fs(), path());
    std::mt19937_64 random(writer);
    for (int round = 0; round < rounds; ++round) {
      const SetName name{"job" + std::to_string(writer), static_cast<uint64_t>(round)};
      const uint64_t i = random() % kSourceCount;
      SaveOptions options = test::save_options(name.job, name.step);
      options.ranks.group_size = 1;
      options.thread_count = 2;
      const Status saved = save_folder(*store, source(i), options, test::layout_service()).status();
      if (saved.code() == StatusCode::busy) continue;  // given up for dead three times
      ASSERT_TRUE(saved.ok()) << saved.to_string();
      ASSERT_TRUE(test::restores_as(*store, name, snapshots[i]));
      if (random() % 2 == 0) {
        ASSERT_TRUE(Catalog(*store).remove(name).ok());
      } else {
        kept[name] = i;
      }
    }
  }

  /// Saves and drops sets of a job of its own, each in parts that several writers publish at the same time.
  void write_parts(uint64_t writer, int rounds, std::map<SetName, uint64_t>& kept) {
    std::mt19937_64 random(writer);
    const UniqueId run = UniqueId::random().value();
    for (int round = 0; round < rounds; ++round) {
      const SetName name{"job" + std::to_string(writer), static_cast<uint64_t>(round)};
      const uint64_t i = random() % kSourceCount;
      SaveOptions options = test::save_options(name.job, name.step);
      options.ranks.group_size = 1;
      options.made_by = {.number = name.step + 1, .run = run};
      const auto groups =
          split_into_groups(find_files(look_at_source(source(i)).value(), options, null_progress()).value(), options);
      const auto count = static_cast<uint32_t>(groups.size());
      std::vector<std::thread> members;
      std::atomic<int> completed{0};
      for (uint32_t ordinal = 0; ordinal < count; ++ordinal) {
        members.emplace_back([&, ordinal] {
          const auto own = test::open_store(fs(), path());
          FolderSource folder(source(i), groups[ordinal], test::layout_service(), {});
          const Status saved = save_part(*own, folder, {name, run, ordinal, count}, options).status();
          EXPECT_TRUE(saved.ok() || saved.code() == StatusCode::busy) << saved.to_string();
          if (saved.ok() && complete_set(*own, run, name, count).ok()) ++completed;
        });
      }
      for (std::thread& member : members) member.join();
      const auto store = test::open_store(fs(), path());
      EXPECT_LE(completed, 1);
      // Given up for dead: a member three times, or who completes. Then it is another's turn.
      if (completed == 0 && !complete_set(*store, run, name, count).ok()) continue;
      ASSERT_TRUE(test::restores_as(*store, name, snapshots[i]));
      if (random() % 2 == 0) {
        ASSERT_TRUE(Catalog(*store).remove(name).ok());
      } else {
        kept[name] = i;
      }
    }
  }

  /// Reads any set again and again: it is whole, or it was dropped meanwhile.
  void read(const std::atomic<bool>& stop) {
    const auto store = test::open_store(fs(), path());
    while (!stop) {
      for (const SetName& name : Catalog(*store).sets().value()) {
        const TempFolder target;
        RestoreOptions options;
        options.sync = false;
        const Result<RestoreReport> restored = restore_set(*store, name, target.path(), options);
        if (!restored.ok()) {
          EXPECT_FALSE(Catalog(*store).read(name).ok()) << name.to_string() << ": " << restored.status().to_string();
          continue;
        }
        const test::Snapshot found = test::snapshot_of(target.path());
        EXPECT_NE(std::find(snapshots.begin(), snapshots.end(), found), snapshots.end());
      }
    }
  }

  void prune(double wait_seconds, const std::atomic<bool>& stop) {
    const auto store = test::open_store(fs(), path());
    PruneOptions options;
    options.wait_seconds = wait_seconds;
    options.silence_seconds = options.wait_seconds;
    options.live_share_min = 0.8;
    while (!stop) {
      const Status pruned = prune_store(*store, options).status();
      // One may take the other for dead while it copies.
      EXPECT_TRUE(pruned.ok() || pruned.code() == StatusCode::busy) << pruned.to_string();
    }
  }

  void run(double wait_seconds, int rounds) {
    std::vector<std::map<SetName, uint64_t>> kept(3);
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    others.emplace_back([&] { read(stop); });
    others.emplace_back([&] { prune(wait_seconds, stop); });
    others.emplace_back([&] { prune(wait_seconds, stop); });
    std::vector<std::thread> writers;
    for (uint64_t writer = 0; writer < 2; ++writer)
      writers.emplace_back([&, writer] { write(writer, rounds, kept[writer]); });
    writers.emplace_back([&] { write_parts(2, rounds, kept[2]); });
    for (std::thread& writer : writers) writer.join();
    stop = true;
    for (std::thread& other : others) other.join();
    const auto store = test::open_store(fs(), path());
    EXPECT_TRUE(test::is_whole(*store));
    size_t count = 0;
    for (const auto& sets : kept) {
      for (const auto& [name, i] : sets) EXPECT_TRUE(test::restores_as(*store, name, snapshots[i])) << name.to_string();
      count += sets.size();
    }
    EXPECT_EQ(Catalog(*store).sets().value().size(), count);
  }

  TempFolder place;
  MemoryFileSystem memory;
  std::vector<test::Snapshot> snapshots;
};

TEST_P(AtOnce, SavesReadsAndPatientPrunesLoseNothing) { run(20, 25); }
TEST_P(AtOnce, SavesReadsAndPrunesThatGiveEveryWriterUpLoseNothing) { run(0, 15); }

INSTANTIATE_TEST_SUITE_P(FileSystems, AtOnce, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& disk) { return disk.param ? "Posix" : "Memory"; });

}  // namespace
}  // namespace varve
