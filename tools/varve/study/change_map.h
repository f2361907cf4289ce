#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/study_set.h"

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

/// Where change happens (cento, figure 3): all files of a set one after another, ranks in order, cut into cells, which
/// are drawn along a Hilbert curve of `order`.
struct ChangeMap {
  struct Cell {
    float changes = 0;       ///< how often a block of it changed over the series, on average
    uint32_t label = 0;      ///< in labels: what has most of its bytes
    uint32_t shared_by = 0;  ///< how many variables and skeletons lie in it
  };
  uint32_t order = 0;
  uint64_t cell_bytes = 0;
  uint64_t block_bytes = 0;         ///< that are compared
  uint64_t compared_one_in = 1;     ///< of the blocks of a cell; more than 1 where their fingerprints would not fit
  size_t comparisons = 0;           ///< pairs of sets, each with the one before: the most that a cell can have
  std::vector<Cell> cells;          ///< along the curve
  std::vector<std::string> labels;  ///< "file: variable"
};

/// Compares each set with the one before, block by block at the same place of the same file. Files are matched by rank
/// and their order in it. `memory_bytes` bounds the fingerprints. Stopped by `progress`, it returns what it has.
Result<ChangeMap> study_changes(const StudySeries& series, uint64_t memory_bytes, ProgressSink& progress);

}  // namespace varve
