#include "cli/chosen_array.h"

#include <algorithm>
#include <numeric>

#include "core/bytes.h"
#include "layout/layout.h"
#include "reader/box_text.h"

namespace varve::cli {

namespace {
/// Of an array that are in memory at a time.
constexpr uint64_t kSlabBytes = 32_MiB;

/// `show` lists the variables of a session with a slash before their names.
const StoredVariable* find_named(const StoredVariables& variables, std::string_view name) {
  const StoredVariable* const found = variables.find(name);
  return found != nullptr || !name.starts_with('/') ? found : variables.find(name.substr(1));
}
}  // namespace

ChosenArray::ChosenArray(const StoredVariable& variable, const StoredPart* part) : variable_(&variable), part_(part) {
  shape_ = whole();
  box_ = {std::vector<uint64_t>(shape_.size(), 0), shape_};
  dimensions_.resize(shape_.size());
  std::iota(dimensions_.begin(), dimensions_.end(), 0);
}

Result<ChosenArray> ChosenArray::choose(const StoredVariables& variables, VariableReader& reader,
                                        const std::string& text, std::optional<uint64_t> rank) {
  // A name may end like a box.
  VariableText said{text, {}};
  const StoredVariable* variable = find_named(variables, text);
  if (variable == nullptr) {
    said = split_box(text);
    variable = find_named(variables, said.name);
  }
  if (variable == nullptr) return variables.get(said.name).status();
  const StoredPart* part = nullptr;
  if (rank) {
    VARVE_ASSIGN(part, variables.part_of(*variable, *rank));
  } else if (!variable->one_array.ok()) {
    VARVE_ASSIGN(part, reader.common_part(*variable));
    if (part == nullptr) {
      return Status(variable->one_array.code(), std::string(variable->one_array.message()),
                    std::string(variable->one_array.subject()), "choose what one rank has of it, with --rank");
    }
  }
  ChosenArray chosen(*variable, part);
  VARVE_ASSIGN(WrittenBox written, parse_box(said.box, chosen.whole()));
  chosen.box_ = std::move(written.box);
  chosen.shape_ = std::move(written.shape);
  chosen.dimensions_ = std::move(written.dimensions);
  return chosen;
}

uint64_t ChosenArray::bytes() const { return array_bytes(shape_, type().bytes).value_or(0); }

Status ChosenArray::check(const VariableReader& reader) const {
  return part_ != nullptr ? reader.check_part(*variable_, *part_, box_) : reader.check(*variable_, box_);
}

CellBox ChosenArray::in_shape(const CellBox& cells) const {
  CellBox box;
  for (const size_t d : dimensions_) {
    box.offset.push_back(cells.offset[d] - box_.offset[d]);
    box.cells.push_back(cells.cells[d]);
  }
  return box;
}

Status ChosenArray::read(VariableReader& reader, const std::function<Status(const CellBox&, ByteSpan)>& take,
                         ProgressSink& progress) const {
  VARVE_TRY(check(reader));
  const uint64_t element = type().bytes;
  ByteVector bytes;
  return for_each_slab(box_, std::max<uint64_t>(kSlabBytes / element, 1), [&](const CellBox& slab) -> Status {
    if (progress.cancelled()) return Status::cancelled();
    bytes.resize(slab.cell_count() * element);
    VARVE_TRY(part_ != nullptr ? reader.read_part(*variable_, *part_, slab, bytes)
                               : reader.read(*variable_, slab, bytes));
    VARVE_TRY(take(in_shape(slab), bytes));
    progress.advance(bytes.size());
    return {};
  });
}

}  // namespace varve::cli
