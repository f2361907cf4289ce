#include "level/element_owners.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <set>
#include <string_view>

#include "comm/gather.h"
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

ByteVector encode_boxes(const std::vector<WantedVariable>& variables, bool all) {
  std::set<std::string> arrays;
  for (const WantedVariable& wanted : variables) {
    if (wanted.owners && wanted.owners->owners.cell) arrays.insert(wanted.owners->owners.array);
  }
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const WantedVariable& wanted : variables) {
    const ImageVariable& variable = wanted.variable;
    if ((!all && !arrays.contains(variable.name)) || variable.global_shape.empty()) continue;
    std::vector<uint64_t> offset = variable.global_offset;
    offset.resize(variable.shape.size(), 0);
    out.text(variable.name);
    out.varint(variable.shape.size());
    put_numbers(out, offset);
    put_numbers(out, variable.shape);
  }
  return bytes;
}

Result<RankBoxes> gather_boxes(Communicator& ranks, ByteSpan mine, const std::map<std::string, CellBox>& around) {
  RankBoxes boxes;
  const auto note = [&](uint32_t rank, ByteSpan told) -> Status {
    ByteReader in(told);
    while (!in.at_end()) {
      VARVE_ASSIGN(const std::string_view name, in.text());
      VARVE_ASSIGN(const uint64_t dimensions, in.varint());
      if (dimensions > kDimensionsMax) return Status::corrupt("a rank's box makes no sense");
      RankBox box{rank, {std::vector<uint64_t>(dimensions), std::vector<uint64_t>(dimensions)}};
      VARVE_TRY(get_numbers(in, box.box.offset));
      VARVE_TRY(get_numbers(in, box.box.cells));
      std::vector<RankBox>& of_array = boxes[std::string(name)];
      const auto near = around.find(std::string(name));
      // What has other dimensions does not fit at all, which who uses it may want to know.
      const bool is_near =
          near == around.end() || near->second.cells.size() != dimensions || have_common_cells(near->second, box.box);
      if (is_near) of_array.push_back(std::move(box));
    }
    return {};
  };
  VARVE_TRY(gather_told(ranks, mine, note));
  return boxes;
}
}  // namespace

Result<RankBoxes> agree_on_boxes(Communicator& ranks, const std::vector<WantedVariable>& variables) {
  return gather_boxes(ranks, encode_boxes(variables, /*all=*/false), {});
}

Result<RankBoxes> agree_on_all_boxes(Communicator& ranks, const std::vector<WantedVariable>& variables,
                                     const std::map<std::string, CellBox>& around) {
  return gather_boxes(ranks, encode_boxes(variables, /*all=*/true), around);
}

Result<bool> want_alike(Communicator& ranks, const std::vector<WantedVariable>& variables) {
  ByteVector text;
  ByteWriter out(text);
  for (const WantedVariable& wanted : variables) {
    out.text(wanted.variable.name);
    out.text(wanted.variable.type.name());
    out.u8(static_cast<uint8_t>(wanted.redistribution));
    out.u8(static_cast<uint8_t>((wanted.any_size ? 2 : 0) + (wanted.variable.global_shape.empty() ? 1 : 0)));
    out.text(wanted.owners ? wanted.owners->key : std::string());
  }
  const uint64_t hash = std::hash<std::string_view>()(as_text(text));
  std::array<uint64_t, 2> least = {hash, ~hash};
  VARVE_TRY(ranks.all_min(least));
  return least[0] == ~least[1];
}

OwnerSearch::OwnerSearch(const OwnerRule& rule, const std::vector<WantedVariable>& variables, const RankBoxes& boxes,
                         uint32_t rank_count)
    : rule_(rule), rank_count_(rank_count) {
  const auto found = boxes.find(rule.owners.array);
  if (rule.owners.owner || found == boxes.end()) return;
  boxes_ = &found->second;
  cell_.resize(boxes_->front().box.cells.size());
  std::vector<CellBox> of_ranks;
  for (const RankBox& of_rank : *boxes_) of_ranks.push_back(of_rank.box);
  search_.emplace(std::move(of_ranks), cell_.size());
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
    VARVE_ASSIGN(const uint32_t owner, owner_of(elements.data() + at));
    if (owner >= rank_count_)
      return Status::invalid_argument(fmt::format("an element is to go to rank {} of {}", owner, rank_count_),
                                      subject());
    visit(owner);
  }
  return {};
}

/// By the program's own function, which may throw.
Result<uint32_t> OwnerSearch::owner_of(const std::byte* element) {
  const auto threw = [this](std::string_view what) {
    return Status::invalid_argument(fmt::format("the function that says whose an element is has thrown: {}", what),
                                    fmt::format("variable '{}'", rule_.key));
  };
  try {
    if (rule_.owners.owner) return rule_.owners.owner(element);
    rule_.owners.cell(element, cell_);
  } catch (const std::exception& exception) {
    return threw(exception.what());
  } catch (...) {
    return threw("something that is no std::exception");
  }
  return owner_of_cell();
}

Result<uint32_t> OwnerSearch::owner_of_cell() {
  if (reversed_) std::reverse(cell_.begin(), cell_.end());
  if (const std::optional<size_t> found = search_->first_with(cell_)) return (*boxes_)[*found].rank;
  return Status::invalid_argument(fmt::format("an element lies in cell ({}) of '{}', which no rank has",
                                              fmt::join(cell_, ", "), rule_.owners.array),
                                  fmt::format("variable '{}'", rule_.key));
}

}  // namespace varve
