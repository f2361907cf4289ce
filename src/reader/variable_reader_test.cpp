#include "reader/variable_reader.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"

namespace varve {
namespace {

struct Reader : testing::Test {
  MemoryFileSystem fs;
  std::unique_ptr<Store> store;
  const StoredVariables variables;

  void SetUp() override {
    ASSERT_TRUE(Store::create(fs, "/s").ok());
    store = Store::open(fs, "/s").value();
  }
};

/// One number a chunk, every second of which is there.
StoredVariable sparse_array(uint64_t chunks) {
  StoredVariable array{"/a", {ElementKind::floating, ByteOrder::little, 8}, {}, {2 * chunks}, {}};
  array.is_of_chunks = true;
  StoredPart chunk;
  chunk.type = array.type;
  chunk.shape = {1};
  chunk.global_shape = array.shape;
  chunk.global_offset = {0};
  chunk.coding = PartCoding::zarr;
  array.parts.assign(chunks, chunk);
  for (uint64_t i = 0; i < chunks; ++i) array.parts[i].global_offset = {2 * i + 1};
  return array;
}

TEST_F(Reader, ReadsArraysOfWhoseManyChunksManyAreNotThere) {
  StoredVariable array = sparse_array(150'000);
  const CellBox all{{0}, array.shape};
  VariableReader reader(*store, variables, 1);
  array.fill = ByteVector(8);
  EXPECT_TRUE(reader.check(array, all).ok());
  EXPECT_TRUE(reader.check(array, {{10}, {20'000}}).ok());
}

TEST_F(Reader, NamesTheFirstCellOfAChunkThatIsNotThereWhereNothingIsKnownOfIt) {
  const StoredVariable array = sparse_array(3);
  VariableReader reader(*store, variables, 1);
  EXPECT_TRUE(reader.check(array, {{3}, {1}}).ok());
  EXPECT_EQ(reader.check(array, {{3}, {3}}).code(), StatusCode::not_found);
}

}  // namespace
}  // namespace varve
