// safetensors: the length of a header (u64, little-endian), the header in JSON, the tensors' bytes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "layout/array_type.h"
#include "layout/layout_reader.h"

namespace varve {
namespace {

constexpr uint64_t kTensorHeaderBytesMax = 32_MiB;
constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataName = "__metadata__";

/// One entry of the header.
struct TensorEntry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;  ///< begin and end, from the header's end on
};

/// Takes the header in as it is parsed, so that no tree of it is made: an object of objects, whose members are a text
/// or a list of numbers. Any other JSON ends the parsing.
class TensorEntries final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorEntry> take() && { return std::move(entries_); }

  bool start_object(size_t) override {
    if (depth_ >= 2) return false;
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool key(std::string& text) override {
    if (depth_ == 2) {
      member_ = text;
      return true;
    }
    in_metadata_ = text == kMetadataName;
    if (!in_metadata_) entries_.push_back({.name = text, .type = {}, .shape = {}, .offsets = {}});
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ != 2 || in_list_) return false;
    if (!in_metadata_ && member_ == "dtype") entries_.back().type = text;
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_list_) return false;
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (!in_list_ || in_metadata_) return false;
    if (member_ == "shape") return add(entries_.back().shape, number, kDimensionsMax);
    if (member_ == "data_offsets") return add(entries_.back().offsets, number, 2);
    return false;
  }
  bool null() override { return false; }
  bool boolean(bool) override { return false; }
  bool number_integer(number_integer_t) override { return false; }
  bool number_float(number_float_t, const string_t&) override { return false; }
  bool binary(binary_t&) override { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  static bool add(std::vector<uint64_t>& numbers, uint64_t number, size_t count_max) {
    if (numbers.size() >= count_max) return false;
    numbers.push_back(number);
    return true;
  }

  std::vector<TensorEntry> entries_;
  std::string member_;
  int depth_ = 0;
  bool in_metadata_ = false;
  bool in_list_ = false;
};

std::optional<ArrayType> tensor_type(std::string_view name) {
  struct Name {
    std::string_view tensor, array;
  };
  static constexpr std::array<Name, 16> names{{{"F64", "float64"},
                                               {"F32", "float32"},
                                               {"F16", "float16"},
                                               {"BF16", "bfloat16"},
                                               {"F8_E4M3", "float8_e4m3fn"},
                                               {"F8_E5M2", "float8_e5m2"},
                                               {"I64", "int64"},
                                               {"I32", "int32"},
                                               {"I16", "int16"},
                                               {"I8", "int8"},
                                               {"U64", "uint64"},
                                               {"U32", "uint32"},
                                               {"U16", "uint16"},
                                               {"U8", "uint8"},
                                               {"BOOL", "bool"},
                                               {"C64", "complex64"}}};
  for (const Name& known : names) {
    if (known.tensor == name) return named_array_type(known.array);
  }
  return std::nullopt;
}

Result<Variable> place_tensor(TensorEntry entry, uint64_t data_begin, uint64_t data_bytes) {
  const bool placed = entry.offsets.size() == 2 && entry.offsets[0] <= entry.offsets[1];
  if (!placed || entry.offsets[1] > data_bytes)
    return Status::corrupt("a tensor lies outside of its file", std::move(entry.name));
  const Extent place{data_begin + entry.offsets[0], entry.offsets[1] - entry.offsets[0]};
  std::string name = "/" + entry.name;
  const std::optional<ArrayType> type = tensor_type(entry.type);
  if (!type) return bytes_variable(std::move(name), place);
  std::optional<Variable> array = plain_array(std::move(name), *type, std::move(entry.shape), place);
  if (!array) return Status::corrupt("a tensor has another size than its shape", std::move(entry.name));
  return std::move(*array);
}

class SafetensorsReader final : public LayoutReader {
 public:
  std::string_view name() const override { return "safetensors"; }
  bool recognises(const ReadAt&, ByteSpan first_bytes, uint64_t file_bytes) const override {
    if (first_bytes.size() < kLengthBytes + 2) return false;
    const uint64_t header_bytes = load_le<uint64_t>(first_bytes.data());
    const std::string_view begin = as_text(first_bytes.subspan(kLengthBytes, 2));
    return header_bytes >= begin.size() && header_bytes <= file_bytes - kLengthBytes && begin[0] == '{' &&
           std::string_view("\" }\n\t\r").find(begin[1]) != std::string_view::npos;
  }
  Result<Layout> read_safely(const ReadAt& read, uint64_t file_bytes) const override {
    FileWindow file(read, file_bytes);
    return read_safetensors_layout(file);
  }
};

}  // namespace

Result<Layout> read_safetensors_layout(FileWindow& file) {
  VARVE_ASSIGN(const ByteSpan length, file.view(0, kLengthBytes));
  const uint64_t header_bytes = load_le<uint64_t>(length.data());
  if (header_bytes > kTensorHeaderBytesMax)
    return Status::resource_limit(fmt::format("the header of a safetensors file has {} bytes", header_bytes));
  VARVE_ASSIGN(const ByteSpan header, file.view(kLengthBytes, header_bytes));
  TensorEntries entries;
  if (!nlohmann::json::sax_parse(as_text(header), &entries))
    return Status::corrupt("the header of a safetensors file cannot be read");
  const uint64_t data_begin = kLengthBytes + header_bytes;
  Layout layout{.format = std::string(kSafetensorsFormat), .variables = {}};
  for (TensorEntry& entry : std::move(entries).take()) {
    VARVE_ASSIGN(Variable tensor, place_tensor(std::move(entry), data_begin, file.file_bytes() - data_begin));
    layout.variables.push_back(std::move(tensor));
  }
  return layout;
}

std::unique_ptr<LayoutReader> make_safetensors_reader() { return std::make_unique<SafetensorsReader>(); }

}  // namespace varve
