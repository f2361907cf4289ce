#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"

namespace varve {
namespace {

constexpr CrashPolicy kKill{.kind = CrashPolicy::Kind::keep_all};
constexpr CrashPolicy kPowerLoss{.kind = CrashPolicy::Kind::drop_unsynced};
CrashPolicy torn(uint64_t seed) { return {.kind = CrashPolicy::Kind::torn, .seed = seed}; }

std::string contents_of(FileSystem& fs, const std::string& path) {
  auto contents = read_file(fs, path, 64_MiB);
  return contents.ok() ? std::string(as_text(*contents)) : std::string(status_code_name(contents.status().code()));
}

/// A durable file of `text` in the root.
std::unique_ptr<File> durable_file(FileSystem& fs, const std::string& path, std::string_view text) {
  auto file = fs.create(path).value();
  EXPECT_TRUE(file->write_at(0, as_bytes(text)).ok());
  EXPECT_TRUE(file->sync().ok());
  EXPECT_TRUE(fs.sync_directory(parent_path(path)).ok());
  return file;
}

TEST(PowerLoss, SparesWhatWasSynced) {
  MemoryFileSystem fs;
  auto file = durable_file(fs, "/a", "durable");
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "durable");
  EXPECT_EQ(contents_of(*fs.after_crash(torn(1)), "/a"), "durable");
}

TEST(PowerLoss, TakesUnsyncedWritesAndSizes) {
  MemoryFileSystem fs;
  auto file = durable_file(fs, "/a", "durable");
  ASSERT_TRUE(file->write_at(0, as_bytes("VOLATILE AND LONGER")).ok());
  EXPECT_EQ(contents_of(fs, "/a"), "VOLATILE AND LONGER");
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "durable");
  ASSERT_TRUE(file->truncate(2).ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "durable");
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "VO");
}

TEST(PowerLoss, TakesASyncedFileWhoseNameWasNotSynced) {
  MemoryFileSystem fs;
  auto file = fs.create("/a").value();
  ASSERT_TRUE(file->write_at(0, as_bytes("x")).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "not_found");
  ASSERT_TRUE(fs.sync_directory("/").ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "x");
}

TEST(PowerLoss, LeavesAnEmptyFileWhereOnlyTheNameWasSynced) {
  MemoryFileSystem fs;
  auto file = fs.create("/a").value();
  ASSERT_TRUE(file->write_at(0, as_bytes("x")).ok());
  ASSERT_TRUE(fs.sync_directory("/").ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "");
}

TEST(PowerLoss, UndoesRenamesAndRemovalsThatWereNotSynced) {
  MemoryFileSystem fs;
  durable_file(fs, "/new", "new");
  durable_file(fs, "/old", "old");
  ASSERT_TRUE(fs.rename("/new", "/old").ok());
  auto crashed = fs.after_crash(kPowerLoss);
  EXPECT_EQ(contents_of(*crashed, "/new"), "new");
  EXPECT_EQ(contents_of(*crashed, "/old"), "old");
  ASSERT_TRUE(fs.sync_directory("/").ok());
  ASSERT_TRUE(fs.remove("/old").ok());
  crashed = fs.after_crash(kPowerLoss);
  EXPECT_EQ(contents_of(*crashed, "/new"), "not_found");
  EXPECT_EQ(contents_of(*crashed, "/old"), "new");
}

TEST(PowerLoss, TakesAllThatIsInADirectoryWhoseNameWasNotSynced) {
  MemoryFileSystem fs;
  ASSERT_TRUE(fs.create_directory("/d").ok());
  durable_file(fs, "/d/a", "x");
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/d/a"), "not_found");
  ASSERT_TRUE(fs.sync_directory("/").ok());
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/d/a"), "x");
}

TEST(PowerLoss, LeavesARenamedFileInExactlyOneDirectory) {
  for (const char* synced : {"/from", "/to", "/"}) {
    MemoryFileSystem fs;
    ASSERT_TRUE(fs.create_directory("/from").ok());
    ASSERT_TRUE(fs.create_directory("/to").ok());
    ASSERT_TRUE(fs.sync_directory("/").ok());
    ASSERT_TRUE(fs.create("/from/a").value()->sync().ok());
    ASSERT_TRUE(fs.rename("/from/a", "/to/a").ok());
    ASSERT_TRUE(fs.sync_directory(synced).ok());
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto crashed = fs.after_crash(torn(seed));
      const size_t found = crashed->list("/from")->size() + crashed->list("/to")->size();
      if (std::string(synced) == "/") {
        EXPECT_LE(found, 2u);
      } else {
        EXPECT_EQ(found, 1u) << synced;
        EXPECT_EQ(crashed->list("/to")->size(), 1u) << synced;
      }
    }
  }
}

TEST(ProcessKill, LosesNothingButADurableStateIsStillToBeReached) {
  MemoryFileSystem fs;
  auto file = fs.create("/a").value();
  ASSERT_TRUE(file->write_at(0, as_bytes("x")).ok());
  auto killed = fs.after_crash(kKill);
  EXPECT_EQ(contents_of(*killed, "/a"), "x");
  EXPECT_EQ(contents_of(*killed->after_crash(kPowerLoss), "/a"), "not_found");
  ASSERT_TRUE(killed->sync_directory("/").ok());
  EXPECT_EQ(contents_of(*killed->after_crash(kPowerLoss), "/a"), "");
  EXPECT_EQ(contents_of(*fs.after_crash(kPowerLoss), "/a"), "not_found");  // the original is unchanged
}

TEST(TornPowerLoss, LeavesEachSectorOldOrNew) {
  MemoryFileSystem fs;
  auto file = durable_file(fs, "/a", std::string(8 * kSectorBytes, 'o'));
  ASSERT_TRUE(file->write_at(100, as_bytes(std::string(6 * kSectorBytes, 'n'))).ok());
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = contents_of(*fs.after_crash(torn(seed)), "/a");
    EXPECT_EQ(text, contents_of(*fs.after_crash(torn(seed)), "/a"));
    ASSERT_EQ(text.size(), 8 * kSectorBytes);
    for (size_t sector = 0; sector < 8; ++sector) {
      const size_t begin = std::max<size_t>(sector * kSectorBytes, 100);
      const size_t end = std::min<size_t>((sector + 1) * kSectorBytes, 100 + 6 * kSectorBytes);
      if (begin >= end) continue;
      const std::string part = text.substr(begin, end - begin);
      EXPECT_TRUE(part == std::string(part.size(), 'o') || part == std::string(part.size(), 'n'));
    }
    outcomes.insert(text);
  }
  EXPECT_GT(outcomes.size(), 20u);
  EXPECT_EQ(outcomes.count(std::string(8 * kSectorBytes, 'o')), 1u);
  EXPECT_EQ(outcomes.count(contents_of(fs, "/a")), 1u);
}

TEST(TornPowerLoss, MayLeaveALengthWithoutItsData) {
  MemoryFileSystem fs;
  auto file = durable_file(fs, "/a", "");
  ASSERT_TRUE(file->write_at(0, as_bytes(std::string(2000, 'n'))).ok());
  std::set<size_t> sizes;
  bool hole = false;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = contents_of(*fs.after_crash(torn(seed)), "/a");
    sizes.insert(text.size());
    hole = hole || text.find('\0') != std::string::npos;
  }
  EXPECT_EQ(sizes, (std::set<size_t>{0, 2000}));
  EXPECT_TRUE(hole);
}

TEST(TornPowerLoss, LeavesEachUnsyncedNameOrNot) {
  MemoryFileSystem fs;
  for (const char* name : {"/a", "/b", "/c"}) ASSERT_TRUE(fs.create(name).ok());
  std::set<size_t> counts;
  for (uint64_t seed = 0; seed < 100; ++seed) counts.insert(fs.after_crash(torn(seed))->list("/")->size());
  EXPECT_EQ(counts, (std::set<size_t>{0, 1, 2, 3}));
}

TEST(LossyFile, NeverMakesLostDataDurable) {
  MemoryFileSystem fs;
  auto file = durable_file(fs, "/a", "durable");
  ASSERT_TRUE(file->write_at(0, as_bytes("LOST")).ok());
  dynamic_cast<LossyFile&>(*file).lose_unsynced();
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(contents_of(fs, "/a"), "LOSTble");
  EXPECT_EQ(contents_of(*fs.after_crash(kKill), "/a"), "LOSTble");
  for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(contents_of(*fs.after_crash(torn(seed)), "/a"), "durable");
}

TEST(FaultyFileSystem, CountsMutatingAndReadingOperationsApart) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(memory);
  ASSERT_TRUE(write_file_durably(fs, "/a", as_bytes("x")).ok());
  EXPECT_EQ(fs.operation_count().mutating, 5u);  // create, write, sync, rename, sync directory
  EXPECT_EQ(fs.operation_count().reading, 0u);
  EXPECT_EQ(contents_of(fs, "/a"), "x");
  EXPECT_EQ(fs.operation_count().mutating, 5u);
  EXPECT_EQ(fs.operation_count().reading, 3u);  // open, size, read
  EXPECT_FALSE(fs.struck());
  EXPECT_NE(fs.trace().find("mutating 3: rename"), std::string::npos) << fs.trace();
}

TEST(FaultyFileSystem, CrashesAtAnyOperationAndADurableWriteIsWholeOrNot) {
  for (uint64_t at = 0; at <= 5; ++at) {
    for (uint64_t seed = 0; seed < 30; ++seed) {
      MemoryFileSystem memory;
      ASSERT_TRUE(write_file_durably(memory, "/a", as_bytes("old")).ok());
      FaultyFileSystem fs(memory, {{.kind = FaultKind::crash, .at_operation = at, .seed = seed}});
      const std::string replacement(3000, 'n');
      const Status status = write_file_durably(fs, "/a", as_bytes(replacement));
      EXPECT_EQ(status.ok(), at == 5) << fs.trace();
      EXPECT_EQ(fs.crashed(), at < 5);
      EXPECT_EQ(fs.list("/").ok(), at == 5);
      const std::string killed = contents_of(*memory.after_crash(kKill), "/a");
      EXPECT_EQ(killed, at < 4 ? "old" : replacement) << fs.trace();
      const std::string lost = contents_of(*memory.after_crash(kPowerLoss), "/a");
      EXPECT_EQ(lost, at < 5 ? "old" : replacement) << fs.trace();
      const std::string text = contents_of(*memory.after_crash(torn(seed)), "/a");
      EXPECT_TRUE(text == "old" || text == replacement) << fs.trace();
    }
  }
}

TEST(FaultyFileSystem, TearsTheWriteItCrashesInAtASector) {
  std::set<size_t> sizes;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MemoryFileSystem memory;
    FaultyFileSystem fs(memory, {{.kind = FaultKind::crash, .at_operation = 1, .seed = seed}});
    auto file = fs.create("/a").value();
    EXPECT_EQ(file->write_at(0, ByteVector(4 * kSectorBytes)).code(), StatusCode::io_error);
    EXPECT_FALSE(file->sync().ok());
    sizes.insert(memory.stat("/a")->bytes);
  }
  EXPECT_EQ(sizes, (std::set<size_t>{0, 512, 1024, 1536}));
}

TEST(FaultyFileSystem, RunsOutOfSpaceOnceOrForGood) {
  for (bool persistent : {false, true}) {
    MemoryFileSystem memory;
    FaultyFileSystem fs(memory, {{.kind = FaultKind::no_space, .at_operation = 1, .persistent = persistent}});
    auto file = fs.create("/a").value();
    EXPECT_EQ(file->write_at(0, as_bytes("x")).code(), StatusCode::no_space);
    EXPECT_EQ(file->write_at(0, as_bytes("x")).ok(), !persistent);
    EXPECT_TRUE(file->sync().ok());
    EXPECT_TRUE(fs.remove("/a").ok());
    EXPECT_TRUE(fs.struck());
  }
}

TEST(FaultyFileSystem, CutsAWriteShort) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(memory, {{.kind = FaultKind::short_write, .seed = 1}});
  auto file = fs.create("/a").value();
  EXPECT_FALSE(file->write_at(0, as_bytes(std::string(5000, 'x'))).ok());
  EXPECT_LT(*file->size(), 5000u);
  EXPECT_EQ(*file->size() % kSectorBytes, 0u);
  EXPECT_TRUE(file->write_at(0, as_bytes("whole")).ok());
}

TEST(FaultyFileSystem, LosesDataForGoodWhenASyncFails) {
  MemoryFileSystem memory;
  FaultyFileSystem fs(memory, {{.kind = FaultKind::failed_sync}});
  auto file = fs.create("/a").value();
  ASSERT_TRUE(file->write_at(0, as_bytes("data")).ok());
  EXPECT_EQ(file->sync().code(), StatusCode::io_error);
  EXPECT_TRUE(file->sync().ok());  // as on Linux: which is why nobody may believe it
  ASSERT_TRUE(fs.sync_directory("/").ok());
  EXPECT_EQ(contents_of(memory, "/a"), "data");
  EXPECT_EQ(contents_of(*memory.after_crash(kPowerLoss), "/a"), "");
}

TEST(FaultyFileSystem, FailsRenamesAndReads) {
  MemoryFileSystem memory;
  durable_file(memory, "/a", "x");
  FaultyFileSystem fs(memory,
                      {{.kind = FaultKind::failed_rename}, {.kind = FaultKind::failed_read, .at_operation = 2}});
  EXPECT_EQ(fs.rename("/a", "/b").code(), StatusCode::io_error);
  EXPECT_TRUE(fs.rename("/a", "/b").ok());
  auto file = fs.open_read("/b").value();
  EXPECT_TRUE(file->size().ok());
  ByteVector buffer(1);
  EXPECT_EQ(file->read_at(0, buffer).status().code(), StatusCode::io_error);
  EXPECT_TRUE(file->read_at(0, buffer).ok());
}

TEST(FaultyFileSystem, FlipsOneBitOfWhatIsReadOrMapped) {
  MemoryFileSystem memory;
  const std::string text(1000, 'x');
  durable_file(memory, "/a", text);
  const auto flipped_bits = [&](std::string_view read) {
    int bits = 0;
    for (size_t i = 0; i < text.size(); ++i) bits += std::popcount(static_cast<uint8_t>(read[i] ^ text[i]));
    return bits;
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Fault fault{.kind = FaultKind::flipped_bit, .seed = seed};
    FaultyFileSystem reading(memory, {fault});
    EXPECT_EQ(flipped_bits(contents_of(reading, "/a")), 1);
    EXPECT_EQ(flipped_bits(contents_of(reading, "/a")), 0);
  }
}

}  // namespace
}  // namespace varve
