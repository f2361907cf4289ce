#include "study/change_map.h"

#include "study/series_folder.h"

namespace varve {
namespace {

using test::random_bytes;
using test::SeriesFolder;

ChangeMap map_of(const StudySeries& series, uint64_t memory_bytes = 16_MiB) {
  const Result<ChangeMap> map = study_changes(series, memory_bytes, null_progress());
  EXPECT_TRUE(map.ok()) << map.status().to_string();
  return *map;
}

/// Changes one byte of a block of 512.
void touch(ByteVector& data, size_t block) { data[512 * block + 17] ^= std::byte{1}; }

TEST(ChangeMap, SaysHowOftenEachBlockChanged) {
  const SeriesFolder folder;
  ByteVector data = random_bytes(64 * 512, 1);
  folder.write(1, 0, data);
  touch(data, 5);
  folder.write(2, 0, data);
  touch(data, 5);
  touch(data, 40);
  folder.write(3, 0, data);
  const ChangeMap map = map_of(folder.open());
  EXPECT_EQ(map.comparisons, 2u);
  EXPECT_EQ(map.cell_bytes, 512u);
  ASSERT_EQ(map.cells.size(), 64u);
  for (size_t i = 0; i < map.cells.size(); ++i) {
    EXPECT_EQ(map.cells[i].changes, i == 5 ? 2 : i == 40 ? 1 : 0) << i;
    EXPECT_EQ(map.labels[map.cells[i].label], "rank0.dat");
  }
}

TEST(ChangeMap, LaysFilesOneAfterAnotherAndCountsWhatComesAndGoes) {
  const SeriesFolder folder;
  const ByteVector data = random_bytes(16 * 512, 2);
  folder.write(1, 0, data);
  folder.write(1, 1, data);
  folder.write(2, 0, ByteSpan(data).first(12 * 512));
  folder.write(2, 1, data);
  const ChangeMap map = map_of(folder.open());
  ASSERT_EQ(map.cells.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(map.cells[i].changes, i >= 12 && i < 16 ? 1 : 0) << i;
  EXPECT_EQ(map.labels[map.cells[20].label], "rank1.dat");
}

TEST(ChangeMap, OfLargeDataHasCellsOfManyBlocks) {
  const SeriesFolder folder;
  ByteVector data = random_bytes(64_MiB, 3);
  folder.write(1, 0, data);
  for (size_t block = 0; block < 64_MiB / 512; block += 16) touch(data, block);
  folder.write(2, 0, data);
  const ChangeMap map = map_of(folder.open());
  EXPECT_LE(map.cells.size(), 65'536u);
  EXPECT_GE(map.cells.size(), 65'536u / 8);
  double changes = 0;
  for (const ChangeMap::Cell& cell : map.cells) changes += cell.changes / static_cast<double>(map.cells.size());
  EXPECT_NEAR(changes, static_cast<double>(map.block_bytes) / 8192, 0.02);
}

TEST(ChangeMap, ComparesFewerBlocksWhereMemoryIsShort) {
  const SeriesFolder folder;
  ByteVector data = random_bytes(64_MiB, 4);
  folder.write(1, 0, data);
  for (size_t block = 0; block < 32_MiB / 512; ++block) touch(data, block);
  folder.write(2, 0, data);
  const ChangeMap map = map_of(folder.open(), 1);
  EXPECT_GE(map.compared_one_in, 1u);
  double changes = 0;
  for (const ChangeMap::Cell& cell : map.cells) changes += cell.changes / static_cast<double>(map.cells.size());
  EXPECT_NEAR(changes, 0.5, 0.01);
}

}  // namespace
}  // namespace varve
