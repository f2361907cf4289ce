#include "level/element_owners.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/bytes.h"
#include "layout/layout.h"

namespace varve {

namespace {
void put_numbers(ByteWriter& out, const std::vector<uint64_t>& numbers) {
  for (const uint64_t number : numbers) out.varint(number);
}

Status get_numbers(ByteReader& in, std::vector<uint64_t>& numbers) {
  for (uint64_t& number : numbers) {
    VARVE_ASSIGN(number, in.varint());
  }
  return {};
}

ByteVector encode_boxes(const std::vector<WantedVariable>& variables) {
  std::set<std::string> arrays;
  for (const WantedVariable& wanted : variables) {
    if (wanted.owners && wanted.owners->owners.cell) arrays.insert(wanted.owners->owners.array);
  }
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const WantedVariable& wanted : variables) {
    const ImageVariable& variable = wanted.variable;
    if (!arrays.contains(variable.name) || variable.global_shape.empty()) continue;
    std::vector<uint64_t> offset = variable.global_offset;
    offset.resize(variable.shape.size(), 0);
    out.text(variable.name);
    out.varint(variable.shape.size());
    put_numbers(out, offset);
    put_numbers(out, variable.shape);
  }
  return bytes;
}

bool has_cell(const CellBox& box, const std::vector<uint64_t>& cell) {
  if (box.cells.size() != cell.size()) return false;
  for (size_t d = 0; d < cell.size(); ++d) {
    if (cell[d] < box.offset[d] || cell[d] - box.offset[d] >= box.cells[d]) return false;
  }
  return true;
}
}  // namespace

Result<RankBoxes> agree_on_boxes(Communicator& ranks, const std::vector<WantedVariable>& variables) {
  VARVE_ASSIGN(const std::vector<ByteVector> told, ranks.all_gather(encode_boxes(variables)));
  RankBoxes boxes;
  for (uint32_t rank = 0; rank < told.size(); ++rank) {
    ByteReader in(told[rank]);
    while (!in.at_end()) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      VARVE_ASSIGN(const uint64_t dimensions, in.varint());
      if (dimensions > kDimensionsMax) return Status::corrupt("a rank's box makes no sense");
      RankBox& of_rank = boxes[std::string(name)].emplace_back();
      of_rank = {rank, {std::vector<uint64_t>(dimensions), std::vector<uint64_t>(dimensions)}};
      VARVE_TRY(get_numbers(in, of_rank.box.offset));
      VARVE_TRY(get_numbers(in, of_rank.box.cells));
    }
  }
  return boxes;
}

OwnerSearch::OwnerSearch(const OwnerRule& rule, const std::vector<WantedVariable>& variables, const RankBoxes& boxes,
                         uint32_t rank_count)
    : rule_(rule), rank_count_(rank_count) {
  const auto found = boxes.find(rule.owners.array);
  if (rule.owners.owner || found == boxes.end()) return;
  boxes_ = &found->second;
  cell_.resize(boxes_->front().box.cells.size());
  const auto own = std::find_if(variables.begin(), variables.end(), [&](const WantedVariable& wanted) {
    return wanted.variable.name == rule.owners.array;
  });
  reversed_ = own != variables.end() && own->order == DimensionOrder::fastest_first;
}

Status OwnerSearch::find(ByteSpan elements, uint64_t element_bytes, const std::function<void(uint32_t owner)>& visit) {
  const auto subject = [this] { return fmt::format("variable '{}'", rule_.key); };
  if (!rule_.owners.owner && boxes_ == nullptr) {
    return Status::invalid_argument(
        fmt::format("no rank has protected the array '{}' with its place in a whole, whose cells say whose each "
                    "element is",
                    rule_.owners.array),
        subject());
  }
  for (size_t at = 0; at < elements.size(); at += element_bytes) {
    const std::byte* const element = elements.data() + at;
    uint32_t owner = 0;
    if (rule_.owners.owner) {
      owner = rule_.owners.owner(element);
    } else {
      VARVE_ASSIGN(owner, owner_of_cell(element));
    }
    if (owner >= rank_count_)
      return Status::invalid_argument(fmt::format("an element is to go to rank {} of {}", owner, rank_count_),
                                      subject());
    visit(owner);
  }
  return {};
}

Result<uint32_t> OwnerSearch::owner_of_cell(const std::byte* element) {
  rule_.owners.cell(element, cell_);
  if (reversed_) std::reverse(cell_.begin(), cell_.end());
  if (has_cell((*boxes_)[last_box_].box, cell_)) return (*boxes_)[last_box_].rank;
  for (size_t i = 0; i < boxes_->size(); ++i) {
    if (!has_cell((*boxes_)[i].box, cell_)) continue;
    last_box_ = i;
    return (*boxes_)[i].rank;
  }
  return Status::invalid_argument(fmt::format("an element lies in cell ({}) of '{}', which no rank has",
                                              fmt::join(cell_, ", "), rule_.owners.array),
                                  fmt::format("variable '{}'", rule_.key));
}

}  // namespace varve
