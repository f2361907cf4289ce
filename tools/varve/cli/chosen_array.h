#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/cell_box.h"
#include "core/progress.h"
#include "reader/stored_variables.h"
#include "reader/variable_reader.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve::cli {

/// Cells of a variable of a set, as the command line names them: "density[0:10,:,5]", of all ranks together or of one.
class ChosenArray {
 public:
  /// `text`: a variable's name, and a box of it. Borrows from `variables`, which `reader` is of. Without `rank`: the
  /// whole, which must be one array, or what all ranks have alike. invalid_argument, not_found, unsupported: it cannot
  /// be read so.
  static Result<ChosenArray> choose(const StoredVariables& variables, VariableReader& reader, const std::string& text,
                                    std::optional<uint64_t> rank);
  /// All of a variable, or of one part of it.
  ChosenArray(const StoredVariable& variable, const StoredPart* part);

  const StoredVariable& variable() const { return *variable_; }
  const StoredPart* part() const { return part_; }  ///< null: the whole
  const ElementType& type() const { return part_ != nullptr ? part_->type : variable_->type; }
  /// Without the dimensions of which one cell was chosen by its number.
  const std::vector<uint64_t>& shape() const { return shape_; }
  uint64_t bytes() const;

  /// Whether its cells are there, as far as can be told without reading them.
  Status check(const VariableReader& reader) const;
  /// Gives its bytes, some of them at a time, in their order, and which cells of shape() they are, to `take`. Progress
  /// is in bytes that were taken.
  Status read(VariableReader& reader, const std::function<Status(const CellBox&, ByteSpan)>& take,
              ProgressSink& progress) const;

 private:
  const std::vector<uint64_t>& whole() const { return part_ != nullptr ? part_->shape : variable_->shape; }
  CellBox in_shape(const CellBox& cells) const;

  const StoredVariable* variable_;
  const StoredPart* part_;
  CellBox box_;
  std::vector<uint64_t> shape_;
  std::vector<size_t> dimensions_;  ///< of box_ that are in shape_
};

}  // namespace varve::cli
