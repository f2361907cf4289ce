#include "study/change_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <set>

namespace varve {
namespace {

TEST(HilbertCurve, VisitsEveryCellOnce) {
  for (uint32_t order = 1; order <= 6; ++order) {
    std::set<std::pair<uint32_t, uint32_t>> visited;
    const uint64_t cells = uint64_t{1} << (2 * order);
    for (uint64_t distance = 0; distance < cells; ++distance) {
      const CurvePoint point = hilbert_point(order, distance);
      EXPECT_LT(point.x, 1u << order);
      EXPECT_LT(point.y, 1u << order);
      visited.insert({point.x, point.y});
    }
    EXPECT_EQ(visited.size(), cells);
  }
}

uint32_t apart(CurvePoint a, CurvePoint b) {
  return (a.x > b.x ? a.x - b.x : b.x - a.x) + (a.y > b.y ? a.y - b.y : b.y - a.y);
}

RC_GTEST_PROP(HilbertCurve, StepsFromCellToNeighbour, ()) {
  const auto order = *rc::gen::inRange<uint32_t>(1, 17);
  const uint64_t cells = uint64_t{1} << (2 * order);
  const auto distance = *rc::gen::inRange<uint64_t>(0, cells - 1);
  RC_ASSERT(apart(hilbert_point(order, distance), hilbert_point(order, distance + 1)) == 1u);
}

RC_GTEST_PROP(HilbertCurve, IsUndoneByItsReverse, ()) {
  const auto order = *rc::gen::inRange<uint32_t>(1, 17);
  const auto distance = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << (2 * order));
  RC_ASSERT(hilbert_distance(order, hilbert_point(order, distance)) == distance);
}

RC_GTEST_PROP(HilbertCurve, KeepsAlignedRunsInSquares, ()) {
  const auto order = *rc::gen::inRange<uint32_t>(2, 12);
  const auto square = *rc::gen::inRange<uint64_t>(0, uint64_t{1} << (2 * order - 2));
  const CurvePoint first = hilbert_point(order, 4 * square);
  for (uint64_t i = 1; i < 4; ++i) {
    const CurvePoint other = hilbert_point(order, 4 * square + i);
    RC_ASSERT(other.x / 2 == first.x / 2 && other.y / 2 == first.y / 2);
  }
}

TEST(HilbertCurve, OfTheLeastOrderHoldsTheCells) {
  EXPECT_EQ(hilbert_order(1), 1u);
  EXPECT_EQ(hilbert_order(4), 1u);
  EXPECT_EQ(hilbert_order(5), 2u);
  EXPECT_EQ(hilbert_order(65'536), 8u);
}

}  // namespace
}  // namespace varve
