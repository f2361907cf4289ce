#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "varve/status.h"

namespace varve {

/// A block of an array's cells: in each dimension `cells` of them, from `offset` on. Slowest dimension first; no
/// dimension at all is one cell.
struct CellBox {
  std::vector<uint64_t> offset, cells;
  bool operator==(const CellBox&) const = default;

  bool empty() const;
  /// Less than 2^64, as of a box whose cells are in a file.
  uint64_t cell_count() const;
};

/// Whether the box lies in an array of so many cells: as many dimensions, and nothing beyond its end.
bool lies_in(const CellBox& box, const std::vector<uint64_t>& cells);

/// The cells of both; none: there are none. Of the same dimensions.
std::optional<CellBox> overlap(const CellBox& a, const CellBox& b);

/// Whether there are any.
bool have_common_cells(const CellBox& a, const CellBox& b);

/// The cells of `box` that are not in `hole`, as boxes without common cells.
std::vector<CellBox> without(const CellBox& box, const CellBox& hole);

/// Cells that are taken from one of several boxes.
struct CellShare {
  size_t box = 0;  ///< its ordinal
  CellBox cells;
};
/// Where cells come from.
struct CellShares {
  std::vector<CellShare> shares;  ///< in the order of the boxes; without common cells
  std::vector<CellBox> missing;   ///< what no box has
};
/// Each cell of `wanted` from the first of `boxes`, all of the same dimensions, that has it. resource_limit: the boxes
/// lie across each other so that what is left comes to too many pieces.
Result<CellShares> share_cells(const CellBox& wanted, std::span<const CellBox> boxes);

/// Where a cell lies in an array that holds `box`, dense.
uint64_t cell_ordinal(const CellBox& box, const std::vector<uint64_t>& cell);

/// Cells that follow each other in two arrays, of which each holds a box, dense.
struct CellRun {
  uint64_t from = 0;  ///< ordinal of the first in the one
  uint64_t to = 0;    ///< and in the other
  uint64_t cells = 0;
};
/// Calls `visit` for the runs of `part`, which lies in both boxes, in their order, until it fails. Dimensions that
/// `part` has whole in both are joined to longer runs.
Status for_each_cell_run(const CellBox& part, const CellBox& from, const CellBox& to,
                         const std::function<Status(const CellRun&)>& visit);

/// Calls `visit`, until it fails, for boxes of at most `cells_max` cells, at least 1, that `box` consists of: those of
/// each follow those of the one before in an array that holds `box`, dense.
Status for_each_slab(const CellBox& box, uint64_t cells_max, const std::function<Status(const CellBox&)>& visit);

/// Calls `visit`, until it fails, for the boxes that the cells of an array consist of, from an ordinal on in an array
/// of these extents, dense: as few as there can be, in the order of the cells. They lie in the array.
Status for_each_box_of_run(const std::vector<uint64_t>& array, uint64_t first, uint64_t cells,
                           const std::function<Status(const CellBox&)>& visit);

}  // namespace varve
