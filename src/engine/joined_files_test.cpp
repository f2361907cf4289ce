#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "core/memory_file_system.h"
#include "engine/pack_builder.h"
#include "sets/saving.h"
#include "store/prune.h"

namespace varve {
namespace {

/// Many short files of unknown bytes, which share chunks.
struct JoinedFiles : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  test::TempFolder place;
  const std::string source = place / "run";

  /// Without digits, which might be taken for ranks; in the order of the numbers, but for the folder.
  static std::string file_name(size_t number) {
    std::string name(4, 'a');
    for (size_t i = name.size(); i-- > 0; number /= 26) name[i] = static_cast<char>('a' + number % 26);
    return name;
  }
  static std::string name_of(size_t number) {
    return std::string("part-") + static_cast<char>('a' + number % 7) + "/" + file_name(number);
  }
  void write(size_t number, ByteSpan bytes) { test::write_file(source + "/" + name_of(number), bytes); }
  void write_noise(size_t files, size_t bytes) {
    for (size_t i = 0; i < files; ++i) write(i, test::random_bytes(bytes, i));
  }
  SaveReport save(uint64_t step) { return test::save(*store, source, "run", step).value(); }
  uint64_t new_bytes(uint64_t step) { return save(step).record.new_bytes; }
  testing::AssertionResult is_as_saved(uint64_t step) {
    return test::restores_as(*store, {"run", step}, test::snapshot_of(source));
  }
};

TEST_F(JoinedFiles, TakeHardlyMoreThanTheirBytes) {
  constexpr size_t files = 2000, bytes = 286;
  write_noise(files, bytes);
  const SetRecord record = save(1).record;
  EXPECT_LE(record.stored_bytes(), files * bytes * 102 / 100);
  EXPECT_TRUE(is_as_saved(1));
}

TEST_F(JoinedFiles, ComeBackWhateverTheirLengths) {
  std::mt19937_64 random(7);
  for (size_t i = 0; i < 1000; ++i) {
    const size_t bytes = random() % 8 == 0 ? kJoinedFileBytesMax - 2 + random() % 5 : random() % 900;
    write(i, random() % 5 == 0 ? ByteVector(bytes) : test::random_bytes(bytes, random()));
  }
  test::write_file(source + "/part-a/long", test::random_bytes(100'000, 1));
  save(1);
  EXPECT_TRUE(is_as_saved(1));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(JoinedFiles, ComeBackWhereAPatternGoesOnFromOneIntoTheNext) {
  const ByteVector pattern = test::random_bytes(8, 3);
  size_t at = 0;
  for (size_t i = 0; i < 400; ++i) {
    ByteVector bytes(i % 11 + 1);
    for (std::byte& byte : bytes) byte = pattern[at++ % 8];
    test::write_file(source + "/" + file_name(i), bytes);
  }
  const SaveReport saved = save(1);
  EXPECT_GT(saved.pattern_bytes, at / 2) << "chunks are patterns of eight bytes, seldom from a file's begin on";
  EXPECT_TRUE(is_as_saved(1));
}

TEST_F(JoinedFiles, AreStoredAnewOnlyBesideWhatHasChanged) {
  write_noise(1000, 300);
  const uint64_t all = new_bytes(1);
  EXPECT_EQ(all, 300'000u);
  EXPECT_EQ(new_bytes(2), 0u);
  write(500, test::random_bytes(300, 5000));
  const uint64_t changed = new_bytes(3);
  EXPECT_GE(changed, 300u);
  EXPECT_LE(changed, 2 * kJoinedChunkBytesMax) << "the file's bytes may say where a chunk ends";
  // Until a name ends a chunk, one that follows begins elsewhere.
  std::filesystem::remove(source + "/" + name_of(20));
  EXPECT_LE(new_bytes(4), 8 * kJoinedChunkBytesMax);
  test::write_file(source + "/part-c/aaax", test::random_bytes(300, 5001));
  EXPECT_LE(new_bytes(5), 8 * kJoinedChunkBytesMax);
  EXPECT_TRUE(is_as_saved(5));
}

TEST_F(JoinedFiles, AreFoundAgainWhereAllAreCalledTheSame) {
  const auto folder_of = [&](size_t i) { return source + "/case-" + file_name(i); };
  for (size_t i = 0; i < 4000; ++i) test::write_file(folder_of(i) + "/log", test::random_bytes(300, i));
  save(1);
  std::filesystem::remove_all(folder_of(3));
  EXPECT_LE(new_bytes(2), 8 * kJoinedChunkBytesMax) << "of more than one batch";
  test::write_file(folder_of(5) + "/log", test::random_bytes(301, 7777));
  EXPECT_LE(new_bytes(3), 8 * kJoinedChunkBytesMax);
  EXPECT_TRUE(is_as_saved(3));
}

TEST_F(JoinedFiles, AreAllThereAfterOtherSetsWereDroppedAndPruned) {
  write_noise(600, 200);
  save(1);
  for (size_t i = 0; i < 600; i += 9) write(i, test::random_bytes(250, 9000 + i));
  for (size_t i = 1; i < 600; i += 9) std::filesystem::remove(source + "/" + name_of(i));
  save(2);
  ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
  PruneOptions options;
  options.live_share_min = 1;
  ASSERT_TRUE(prune_store(*store, options).ok());
  EXPECT_TRUE(is_as_saved(2));
  const PruneReport again = prune_store(*store, options).value();
  EXPECT_EQ(again.removed_arenas, 0u) << "a prune is to leave nothing for the next one";
  EXPECT_TRUE(is_as_saved(2));
  EXPECT_TRUE(test::is_whole(*store));
}

TEST_F(JoinedFiles, AreNoneWhereThereAreFew) {
  write_noise(100, 300);
  save(1);
  write(50, test::random_bytes(300, 5000));
  EXPECT_EQ(new_bytes(2), 300u);
  EXPECT_TRUE(is_as_saved(2));
}

}  // namespace
}  // namespace varve
