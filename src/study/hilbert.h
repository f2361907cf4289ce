#pragma once

#include <cstdint>

namespace varve {

struct CurvePoint {
  uint32_t x = 0, y = 0;
  bool operator==(const CurvePoint&) const = default;
};

/// The Hilbert curve of so many orders (1 to 16) through a square of 2^order cells a side: neighbours on the curve are
/// neighbours in the square, and what is near on the curve stays near.
CurvePoint hilbert_point(uint32_t order, uint64_t distance);
/// The reverse.
uint64_t hilbert_distance(uint32_t order, CurvePoint point);
/// The least order whose square has so many cells.
uint32_t hilbert_order(uint64_t cells);

}  // namespace varve
