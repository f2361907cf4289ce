#include "reader/box_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "core/quantity.h"

namespace varve {

namespace {
Status no_box(std::string message, std::string_view text) {
  return Status::invalid_argument(std::move(message), std::string(text),
                                  "write for each dimension a range such as 2:5, :5, 2: or :, or one number");
}

/// A number from 0 to `max`; of nothing `absent`.
Result<uint64_t> parse_place(std::string_view text, uint64_t max, uint64_t absent, std::string_view whole) {
  if (text.empty()) return absent;
  if (text.front() == '-') return no_box("cells are counted from the beginning, from 0", whole);
  const Result<uint64_t> number = parse_number(text, UINT64_MAX);
  if (!number.ok()) return no_box(fmt::format("'{}' is no number of a cell", text), whole);
  if (*number > max) return no_box(fmt::format("{} is beyond the end of the dimension, {}", text, max), whole);
  return *number;
}
}  // namespace

VariableText split_box(std::string_view text) {
  const size_t bracket = text.ends_with(']') ? text.rfind('[') : std::string_view::npos;
  if (bracket == std::string_view::npos || bracket == 0) return {text, {}};
  return {text.substr(0, bracket), text.substr(bracket)};
}

Result<WrittenBox> parse_box(std::string_view text, const std::vector<uint64_t>& shape) {
  WrittenBox written;
  std::vector<std::string_view> ranges;
  if (!text.empty()) {
    if (text.size() < 3 || text.front() != '[' || text.back() != ']') return no_box("no box of cells", text);
    std::string_view rest = text.substr(1, text.size() - 2);
    for (size_t comma = 0; comma != std::string_view::npos;) {
      comma = rest.find(',');
      if (ranges.size() == shape.size()) {
        return no_box(fmt::format("the box has more dimensions than the array, which has {}", shape.size()), text);
      }
      ranges.push_back(rest.substr(0, comma));
      if (comma != std::string_view::npos) rest.remove_prefix(comma + 1);
    }
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const std::string_view range = d < ranges.size() ? ranges[d] : ":";
    const size_t colon = range.find(':');
    if (colon == std::string_view::npos) {
      if (range.empty() || shape[d] == 0) return no_box("no cell of a dimension is named", text);
      VARVE_ASSIGN(const uint64_t cell, parse_place(range, shape[d] - 1, 0, text));
      written.box.offset.push_back(cell);
      written.box.cells.push_back(1);
      continue;
    }
    VARVE_ASSIGN(const uint64_t begin, parse_place(range.substr(0, colon), shape[d], 0, text));
    VARVE_ASSIGN(const uint64_t end, parse_place(range.substr(colon + 1), shape[d], shape[d], text));
    if (begin > end) return no_box(fmt::format("'{}' ends before it begins", range), text);
    written.box.offset.push_back(begin);
    written.box.cells.push_back(end - begin);
    written.shape.push_back(end - begin);
    written.dimensions.push_back(d);
  }
  return written;
}

}  // namespace varve
