#include "snapshot/variable_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

namespace varve {
namespace {

/// The saved cells one by one, by the definition.
ByteVector dense_by_definition(const ByteVector& array, const ArrayShape& shape, uint64_t element_bytes) {
  ByteVector dense;
  const uint64_t cells = array.size() / element_bytes;
  for (uint64_t cell = 0; cell < cells; ++cell) {
    uint64_t rest = cell;
    bool saved = true;
    for (size_t d = shape.cells.size(); d-- > 0;) {
      const uint64_t at = rest % shape.cells[d];
      rest /= shape.cells[d];
      saved = saved && at >= shape.ghosts_low[d] && at < shape.cells[d] - shape.ghosts_high[d];
    }
    if (!saved) continue;
    const std::byte* const from = array.data() + cell * element_bytes;
    dense.insert(dense.end(), from, from + element_bytes);
  }
  return dense;
}

ByteVector random_array(size_t bytes, std::mt19937_64& random) {
  ByteVector out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

TEST(StridedRegion, HoldsTheCellsThatAreNoGhosts) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    ArrayShape shape;
    const size_t dimensions = 1 + random() % 4;
    uint64_t cells = 1;
    for (size_t d = 0; d < dimensions; ++d) {
      shape.cells.push_back(1 + random() % 7);
      shape.ghosts_low.push_back(random() % (shape.cells[d] + 1) * (random() % 2));
      shape.ghosts_high.push_back(random() % (shape.cells[d] - shape.ghosts_low[d] + 1) * (random() % 2));
      cells *= shape.cells[d];
    }
    const uint64_t element_bytes = 1 + random() % 12;
    const ByteVector array = random_array(cells * element_bytes, random);
    const ByteVector expected = dense_by_definition(array, shape, element_bytes);
    const StridedRegion region = saved_region(shape, element_bytes);
    ASSERT_EQ(region.bytes(), expected.size());
    ASSERT_LE(region.extent_bytes().value(), array.size());

    const size_t begin = random() % (expected.size() + 1);
    const size_t bytes = random() % (expected.size() - begin + 1);
    ByteVector dense(bytes);
    gather(array.data(), region, begin, dense);
    ASSERT_TRUE(std::equal(dense.begin(), dense.end(), expected.begin() + static_cast<long>(begin))) << round;

    ByteVector copy(array.size(), std::byte{0});
    scatter(copy.data(), region, 0, expected);
    ASSERT_EQ(dense_by_definition(copy, shape, element_bytes), expected);
    const auto zero = static_cast<size_t>(std::count(copy.begin(), copy.end(), std::byte{0}));
    ASSERT_GE(zero, array.size() - expected.size()) << "ghost cells are not written";
  }
}

TEST(StridedRegion, JoinsDimensionsWithoutGhostsToRows) {
  ArrayShape shape{.cells = {10, 20, 30}, .ghosts_low = {1, 0, 0}, .ghosts_high = {1, 0, 0}};
  const StridedRegion slab = saved_region(shape, 8);
  EXPECT_EQ(slab.row_bytes, 20U * 30 * 8 * 8);
  EXPECT_TRUE(slab.dense());
  EXPECT_EQ(slab.first_byte, 20U * 30 * 8);

  shape.ghosts_low = shape.ghosts_high = {1, 1, 0};
  const StridedRegion rows = saved_region(shape, 8);
  EXPECT_EQ(rows.row_bytes, 18U * 30 * 8);
  EXPECT_EQ(rows.steps, (std::vector<RowStep>{{8, 20 * 30 * 8}}));
}

TEST(StridedRegion, SaysWhen64BitsDoNotHoldItsExtent) {
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max() / 2;
  EXPECT_FALSE(StridedRegion({.first_byte = kHuge, .row_bytes = kHuge + 2, .steps = {}}).extent_bytes());
  EXPECT_FALSE(StridedRegion({.first_byte = 0, .row_bytes = 8, .steps = {{3, kHuge}}}).extent_bytes());
  EXPECT_FALSE(StridedRegion({.first_byte = 0, .row_bytes = 8, .steps = {{kHuge, 0}}}).extent_bytes());
  EXPECT_EQ(StridedRegion({.first_byte = 4, .row_bytes = 8, .steps = {{3, 16}}}).extent_bytes(), 44U);
  EXPECT_EQ(StridedRegion({.first_byte = 4, .row_bytes = 8, .steps = {{0, 16}}}).extent_bytes(), 0U);
}

}  // namespace
}  // namespace varve
