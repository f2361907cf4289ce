#include "study/hilbert.h"

#include <utility>

namespace varve {

namespace {
/// Turns a quadrant so that the curve in it begins and ends where its neighbours want it.
void turn(uint32_t side, CurvePoint& point, bool right, bool upper) {
  if (upper) return;
  if (right) point = {side - 1 - point.x, side - 1 - point.y};
  std::swap(point.x, point.y);
}
}  // namespace

CurvePoint hilbert_point(uint32_t order, uint64_t distance) {
  CurvePoint point;
  for (uint32_t level = 0; level < order; ++level) {
    const uint32_t side = 1u << level;
    const bool right = (distance & 2) != 0;
    const bool upper = ((distance ^ (distance >> 1)) & 1) != 0;
    turn(side, point, right, upper);
    point.x += right ? side : 0;
    point.y += upper ? side : 0;
    distance >>= 2;
  }
  return point;
}

uint64_t hilbert_distance(uint32_t order, CurvePoint point) {
  uint64_t distance = 0;
  for (uint32_t level = order; level-- > 0;) {
    const uint32_t side = 1u << level;
    const bool right = (point.x & side) != 0, upper = (point.y & side) != 0;
    distance = distance * 4 + (right ? (upper ? 2 : 3) : (upper ? 1 : 0));
    point.x &= side - 1;
    point.y &= side - 1;
    turn(side, point, right, upper);
  }
  return distance;
}

uint32_t hilbert_order(uint64_t cells) {
  uint32_t order = 1;
  while (order < 16 && (uint64_t{1} << (2 * order)) < cells) ++order;
  return order;
}

}  // namespace varve
