#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/cell_box.h"

namespace varve {

/// Finds which of many boxes has a cell, about as fast for ten thousand as for ten: space is halved between boxes until
/// few are left. Where boxes lie across each other everywhere, it is not faster than to look at all. One thread.
class BoxSearch {
 public:
  /// Of the boxes those of other than so many dimensions have no cell.
  BoxSearch(std::vector<CellBox> boxes, size_t dimensions);

  /// The ordinal of the first box that has the cell.
  std::optional<size_t> first_with(const std::vector<uint64_t>& cell);
  /// The ordinals of the boxes that have a cell in common with this one, ascending.
  std::vector<size_t> all_across(const CellBox& box) const;

 private:
  /// Cells before `at` in the dimension are in the next node, others in `other`. A leaf has boxes instead.
  struct Node {
    static constexpr uint32_t kLeaf = UINT32_MAX;
    uint32_t dimension = kLeaf;
    uint64_t at = 0;
    size_t other = 0;
    std::vector<size_t> boxes;  ///< ascending
  };
  struct Cut {
    uint32_t dimension = 0;
    uint64_t at = 0;
    size_t larger = 0;  ///< boxes on the side that has more
    size_t twice = 0;   ///< boxes on both sides
  };

  void build(std::vector<size_t> boxes, size_t twice_max);
  std::optional<Cut> find_cut(const std::vector<size_t>& boxes) const;
  void add_leaf(std::vector<size_t> boxes);
  bool has(size_t box, const std::vector<uint64_t>& cell) const;

  const std::vector<CellBox> boxes_;
  const size_t dimensions_;
  std::vector<Node> nodes_;
  std::vector<bool> is_alone_;  ///< no earlier box has a cell of it, as far as that was looked for
  size_t last_ = SIZE_MAX;      ///< in which a cell was found: the next one is often there, too
};

}  // namespace varve
