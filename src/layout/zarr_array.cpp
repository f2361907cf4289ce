#include "layout/zarr_array.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace varve {
namespace {

using Json = nlohmann::json;

Status no_zarr_array() { return Status::unsupported("not a description of an array of Zarr"); }

/// Deep texts are nobody's description, and would cost a stack.
Json parse_shallow(std::string_view text) {
  constexpr int depth_max = 16;
  const auto keep = [](int depth, Json::parse_event_t, Json&) { return depth <= depth_max; };
  if (text.size() > kZarrDescriptionBytesMax) return Json::value_t::discarded;
  return Json::parse(text, keep, /*allow_exceptions=*/false);
}

/// A member of an object; null if there is none.
const Json& member(const Json& object, const char* name) {
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

bool is_text(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

std::optional<std::vector<uint64_t>> shape_of(const Json& list) {
  if (!list.is_array() || list.size() > kDimensionsMax) return std::nullopt;
  std::vector<uint64_t> shape;
  for (const Json& extent : list) {
    if (!extent.is_number_unsigned()) return std::nullopt;
    shape.push_back(extent.get<uint64_t>());
  }
  return shape;
}

/// What both versions say of the chunks' division.
Result<ZarrArray> array_of_shapes(const Json& shape, const Json& chunk_shape) {
  const auto whole = shape_of(shape);
  auto chunk = shape_of(chunk_shape);
  if (!whole || !chunk || whole->size() != chunk->size()) return no_zarr_array();
  ZarrArray array;
  array.dimensions = whole->size();
  array.chunk_shape = std::move(*chunk);
  return array;
}

/// The order of the bytes of numbers in plain chunks; nothing: they are not plain, or reordered.
std::optional<ByteOrder> plain_byte_order(const Json& codecs) {
  if (!codecs.is_array() || codecs.size() != 1) return std::nullopt;
  const Json& only = codecs.front();
  if (!is_text(member(only, "name"), "bytes")) return std::nullopt;
  return is_text(member(member(only, "configuration"), "endian"), "big") ? ByteOrder::big : ByteOrder::little;
}

}  // namespace

Result<ZarrArray> parse_zarr2_array(std::string_view json) {
  const Json description = parse_shallow(json);
  if (member(description, "zarr_format") != 2) return no_zarr_array();
  VARVE_ASSIGN(ZarrArray array, array_of_shapes(member(description, "shape"), member(description, "chunks")));
  const Json& filters = member(description, "filters");
  const bool plain = member(description, "compressor").is_null() && (filters.is_null() || filters.empty());
  const Json& type = member(description, "dtype");
  array.encoded = !plain;
  if (plain && type.is_string()) array.type = numpy_type(type.get_ref<const std::string&>());
  if (is_text(member(description, "order"), "F")) std::reverse(array.chunk_shape.begin(), array.chunk_shape.end());
  return array;
}

Result<ZarrArray> parse_zarr3_array(std::string_view json) {
  const Json description = parse_shallow(json);
  const Json& grid = member(description, "chunk_grid");
  if (member(description, "zarr_format") != 3 || !is_text(member(description, "node_type"), "array") ||
      !is_text(member(grid, "name"), "regular"))
    return no_zarr_array();
  VARVE_ASSIGN(ZarrArray array,
               array_of_shapes(member(description, "shape"), member(member(grid, "configuration"), "chunk_shape")));
  array.has_lead = !is_text(member(member(description, "chunk_key_encoding"), "name"), "v2");
  const std::optional<ByteOrder> order = plain_byte_order(member(description, "codecs"));
  const Json& type = member(description, "data_type");
  array.encoded = !order;
  if (order && type.is_string()) array.type = named_array_type(type.get_ref<const std::string&>(), *order);
  return array;
}

bool is_zarr_chunk(const ZarrArray& array, std::string_view name) {
  if (array.has_lead) {
    if (name.empty() || name.front() != 'c') return false;
    name.remove_prefix(1);
    if (name.empty()) return array.dimensions == 0;
    if (name.front() != '/' && name.front() != '.') return false;
    name.remove_prefix(1);
  }
  size_t numbers = 0;
  bool in_number = false;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (!in_number || (c != '.' && c != '/'))) return false;
    numbers += is_digit && !in_number ? 1 : 0;
    in_number = is_digit;
  }
  // An array without dimensions has one chunk, which is called 0 in version 2.
  return in_number && numbers == std::max<size_t>(array.dimensions, 1);
}

Layout zarr_chunk_layout(const ZarrArray& array, std::string name, uint64_t file_bytes) {
  Layout layout{.format = "zarr", .variables = {}};
  if (file_bytes == 0) return layout;
  std::optional<Variable> chunk;
  if (array.type) chunk = plain_array(name, *array.type, array.chunk_shape, {0, file_bytes});
  layout.variables.push_back(chunk ? std::move(*chunk)
                                   : bytes_variable(std::move(name), {0, file_bytes}, array.encoded));
  return layout;
}

}  // namespace varve
