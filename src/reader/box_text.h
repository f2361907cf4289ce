#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cell_box.h"
#include "varve/status.h"

namespace varve {

/// A box of an array as people write it: "[0:10,:,5]".
struct WrittenBox {
  CellBox box;
  /// Of what it is, without the dimensions of which one cell was chosen by its number.
  std::vector<uint64_t> shape;
  std::vector<size_t> dimensions;  ///< those of the array that are in `shape`
};

/// What a text names a variable by, and the box behind that, with its brackets; "" if there is none.
struct VariableText {
  std::string_view name, box;
};
VariableText split_box(std::string_view text);

/// Of an array of so many cells: for each dimension, slowest first, a range of cells, from a number on up to another
/// that is not in it ("2:5", ":5", "2:", ":"), or the number of one; dimensions that are not said are whole. Nothing
/// ("") is all of it. invalid_argument: no such box, or it reaches beyond the array.
Result<WrittenBox> parse_box(std::string_view text, const std::vector<uint64_t>& shape);

}  // namespace varve
