// npy, numpy's own format of one array: a magic number, the length of a header, the header as a Python dictionary, the
// elements.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "layout/array_type.h"
#include "layout/layout_reader.h"
#include "layout/npy_array.h"

namespace varve {
namespace {

constexpr uint64_t kNpyHeaderBytesMax = 1_MiB;
constexpr size_t kNpyArraysMax = 10'000;

/// What a header says.
struct NpyHeader {
  std::string_view type;  ///< empty: it has fields
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

/// Reads the header's dictionary: `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`. Nothing is evaluated.
class NpyDictionary {
 public:
  explicit NpyDictionary(std::string_view text) : text_(text) {}

  Result<NpyHeader> read() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    if (!take('{')) return broken();
    while (!take('}')) {
      VARVE_ASSIGN(const std::string_view key, read_string());
      if (!take(':')) return broken();
      if (key == "descr") {
        VARVE_ASSIGN(header.type, read_type());
        has_type = true;
      } else if (key == "fortran_order") {
        VARVE_ASSIGN(header.fortran_order, read_truth());
        has_order = true;
      } else if (key == "shape") {
        VARVE_ASSIGN(header.shape, read_shape());
        has_shape = true;
      } else {
        return broken();
      }
      if (!take(',') && !next_is('}')) return broken();
    }
    return has_type && has_order && has_shape ? Result<NpyHeader>(std::move(header)) : Result<NpyHeader>(broken());
  }

 private:
  static Status broken() { return Status::corrupt("the header of a numpy array cannot be read"); }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool next_is(char wanted) {
    skip_spaces();
    return at_ < text_.size() && text_[at_] == wanted;
  }
  bool take(char wanted) {
    const bool there = next_is(wanted);
    if (there) ++at_;
    return there;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string_view> read_string() {
    if (!next_is('\'') && !next_is('"')) return broken();
    const char quote = text_[at_++];
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) return broken();
    return text_.substr(begin, at_++ - begin);
  }

  /// A type's name; of a list of fields nothing but its end is looked for.
  Result<std::string_view> read_type() {
    if (next_is('\'') || next_is('"')) return read_string();
    if (!next_is('[') && !next_is('(')) return broken();
    size_t depth = 0;
    do {
      if (next_is('\'') || next_is('"')) {
        VARVE_TRY(read_string().status());
        continue;
      }
      if (at_ >= text_.size()) return broken();
      const char next = text_[at_++];
      if (next == '[' || next == '(') ++depth;
      if (next == ']' || next == ')') --depth;
    } while (depth > 0);
    return std::string_view();
  }

  Result<bool> read_truth() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    return broken();
  }

  Result<std::vector<uint64_t>> read_shape() {
    std::vector<uint64_t> shape;
    if (!take('(')) return broken();
    while (!take(')')) {
      skip_spaces();
      uint64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (error != std::errc() || shape.size() >= kDimensionsMax) return broken();
      at_ = static_cast<size_t>(end - text_.data());
      take('L');  // as Python 2 wrote them
      shape.push_back(extent);
      if (!take(',') && !next_is(')')) return broken();
    }
    return shape;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

/// An array of records: how large they are follows from their count.
Variable records_array(std::string name, std::vector<uint64_t> shape, Extent place) {
  const std::optional<uint64_t> elements = array_bytes(shape, 1);
  const bool whole = elements && *elements > 0 && place.bytes % *elements == 0;
  const uint64_t bytes = whole ? place.bytes / *elements : 0;
  if (bytes == 0 || bytes > std::numeric_limits<int32_t>::max()) return bytes_variable(std::move(name), place);
  const ArrayType record{{ElementKind::opaque, ByteOrder::little, static_cast<uint32_t>(bytes)}};
  return *plain_array(std::move(name), record, std::move(shape), place);
}

class NpyReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "npy"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t) const override {
    return first_bytes.size() > kNpyMagic.size() && as_text(first_bytes.first(kNpyMagic.size())) == kNpyMagic;
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileWindow file(read, file_bytes);
    return read_npy_layout(file);
  }
};

}  // namespace

Result<Variable> read_npy_array(FileWindow& file, Extent place, std::string name) {
  constexpr uint64_t short_head_bytes = 10, long_head_bytes = 12;
  const auto cut_off = [] { return Status::corrupt("the file ends within a numpy array"); };
  if (place.bytes < short_head_bytes) return cut_off();
  VARVE_ASSIGN(ByteSpan head, file.view(place.offset, std::min(place.bytes, long_head_bytes)));
  const auto version = static_cast<uint8_t>(head[kNpyMagic.size()]);
  if (as_text(head.first(kNpyMagic.size())) != kNpyMagic) return Status::corrupt("not a numpy array");
  if (version < 1 || version > 3) return Status::unsupported(fmt::format("version {} of numpy arrays", version));
  const uint64_t head_bytes = version == 1 ? short_head_bytes : long_head_bytes;
  if (head.size() < head_bytes) return cut_off();
  const uint64_t header_bytes = version == 1 ? load_le<uint16_t>(head.data() + 8) : load_le<uint32_t>(head.data() + 8);
  if (header_bytes > kNpyHeaderBytesMax) return Status::resource_limit("the header of a numpy array is too long");
  if (header_bytes > place.bytes - head_bytes) return cut_off();
  VARVE_ASSIGN(const ByteSpan text, file.view(place.offset + head_bytes, header_bytes));
  VARVE_ASSIGN(NpyHeader header, NpyDictionary(as_text(text)).read());
  if (header.fortran_order) std::reverse(header.shape.begin(), header.shape.end());
  Extent data{place.offset + head_bytes + header_bytes, place.bytes - head_bytes - header_bytes};
  const std::optional<ArrayType> type = numpy_type(header.type);
  if (!type && !header.type.empty()) return bytes_variable(std::move(name), data);
  if (!type) return records_array(std::move(name), std::move(header.shape), data);
  const std::optional<uint64_t> bytes = array_bytes(header.shape, type->bytes());
  if (!bytes || *bytes > data.bytes) return cut_off();
  data.bytes = *bytes;
  std::optional<Variable> array = plain_array(std::move(name), *type, std::move(header.shape), data);
  if (!array) return Status::resource_limit("a numpy array has too many dimensions");
  return std::move(*array);
}

Result<Layout> read_npy_layout(FileWindow& file) {
  Layout layout{.format = std::string(kNpyFormat), .variables = {}};
  VARVE_ASSIGN(Variable first, read_npy_array(file, {0, file.file_bytes()}, std::string(kNpyArrayName)));
  layout.variables.push_back(std::move(first));
  // numpy.save() may have been called several times for one open file. What is no array is skeleton.
  while (!layout.variables.back().extents.empty() && layout.variables.size() < kNpyArraysMax) {
    const Extent last = layout.variables.back().extents.front();
    const uint64_t at = last.offset + last.bytes;
    Result<Variable> next = read_npy_array(file, {at, file.file_bytes() - at},
                                           fmt::format("{}{}", kNpyArrayName, layout.variables.size() + 1));
    if (!next.ok()) break;
    layout.variables.push_back(std::move(*next));
  }
  return layout;
}

std::unique_ptr<LayoutReader> make_npy_reader() { return std::make_unique<NpyReader>(); }

}  // namespace varve
