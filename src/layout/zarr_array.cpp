#include "layout/zarr_array.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
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
  auto whole = shape_of(shape), chunk = shape_of(chunk_shape);
  if (!whole || !chunk || whole->size() != chunk->size()) return no_zarr_array();
  ZarrArray array;
  array.shape = std::move(*whole);
  array.chunk_shape = std::move(*chunk);
  return array;
}

/// What a description says of one codec, whose name is its member `key`.
ZarrCodec codec_of(const Json& said, const char* key, const Json& settings) {
  constexpr std::string_view prefix = "numcodecs.";
  const Json& name = member(said, key);
  ZarrCodec codec{.name = name.is_string() ? name.get<std::string>() : "?"};
  if (codec.name.starts_with(prefix)) codec.name.erase(0, prefix.size());
  if (const Json& element_bytes = member(settings, "elementsize"); element_bytes.is_number_unsigned()) {
    codec.element_bytes = element_bytes.get<uint64_t>();
  } else if (element_bytes.is_number_integer()) {
    codec.element_bytes = 0;  // a negative one
  } else if (settings.is_object() && settings.contains("elementsize")) {
    codec.element_bytes = kNoElementBytes;
  }
  const Json& compressor = member(settings, "cname");
  if (compressor.is_string()) codec.compressor = compressor.get<std::string>();
  return codec;
}

/// Filters, then a compressor.
std::vector<ZarrCodec> codecs_of_version_2(const Json& filters, const Json& compressor) {
  std::vector<ZarrCodec> codecs;
  if (filters.is_array()) {
    for (const Json& filter : filters) codecs.push_back(codec_of(filter, "id", filter));
  } else if (!filters.empty()) {
    codecs.push_back({"?"});
  }
  if (!compressor.is_null()) codecs.push_back(codec_of(compressor, "id", compressor));
  return codecs;
}

/// Those that take bytes. What makes bytes of numbers otherwise than one after the other is the first of them.
std::vector<ZarrCodec> codecs_of_version_3(const Json& list, ByteOrder& order) {
  std::vector<ZarrCodec> codecs;
  if (!list.is_array() || list.empty()) return {{"?"}};
  for (const Json& said : list) {
    const Json& settings = member(said, "configuration");
    codecs.push_back(codec_of(said, "name", settings));
    if (codecs.size() > 1 || codecs.front().name != "bytes" || &said != &list.front()) continue;
    order = is_text(member(settings, "endian"), "big") ? ByteOrder::big : ByteOrder::little;
    codecs.clear();
  }
  return codecs;
}

/// A number as a description has it.
std::optional<double> float_value(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (is_text(value, "NaN")) return std::numeric_limits<double>::quiet_NaN();
  if (is_text(value, "Infinity")) return std::numeric_limits<double>::infinity();
  if (is_text(value, "-Infinity")) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

/// IEEE's number of 16 bits next to it. Nothing: it is larger than those.
std::optional<uint64_t> half_bits(double number) {
  constexpr uint64_t infinity = 0x7c00, quiet = 0x200;
  constexpr int fraction_bits = 10, lowest_exponent = -14;
  const uint64_t sign = std::signbit(number) ? 0x8000 : 0;
  if (std::isnan(number)) return sign | infinity | quiet;
  if (std::isinf(number)) return sign | infinity;
  const double magnitude = std::abs(number);
  if (magnitude == 0) return sign;
  // Below the lowest exponent numbers are as far apart as there.
  const int exponent = std::max(std::ilogb(magnitude), lowest_exponent);
  if (exponent > 15) return std::nullopt;
  const auto steps = static_cast<uint64_t>(std::nearbyint(std::ldexp(magnitude, fraction_bits - exponent)));
  const uint64_t bits = steps + (static_cast<uint64_t>(exponent - lowest_exponent) << fraction_bits);
  return bits < infinity ? std::optional(sign | bits) : std::nullopt;
}

/// Of a number whose bits are said, all of them: "0x7fc00001".
std::optional<uint64_t> hex_bits(const Json& value, uint64_t bytes) {
  if (!value.is_string()) return std::nullopt;
  std::string_view text = value.get_ref<const std::string&>();
  if (!text.starts_with("0x") || text.size() != 2 + 2 * bytes) return std::nullopt;
  text.remove_prefix(2);
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(bits) : std::nullopt;
}

/// The bits of a number of the type; those of a NaN are as numpy writes it.
std::optional<uint64_t> value_bits(const Json& value, const ElementType& type) {
  if (type.kind == ElementKind::floating) {
    if (type.bytes != 2 && type.bytes != 4 && type.bytes != 8) return std::nullopt;
    if (const std::optional<uint64_t> bits = hex_bits(value, type.bytes)) return bits;
    const std::optional<double> number = float_value(value);
    if (!number) return std::nullopt;
    if (type.bytes == 8) return std::bit_cast<uint64_t>(*number);
    if (type.bytes == 2) return half_bits(*number);
    if (std::isfinite(*number) && std::abs(*number) > std::numeric_limits<float>::max()) return std::nullopt;
    return std::bit_cast<uint32_t>(static_cast<float>(*number));
  }
  const bool is_integer = type.kind == ElementKind::signed_integer || type.kind == ElementKind::unsigned_integer;
  if (!is_integer || type.bytes > 8) return std::nullopt;
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (!value.is_number_integer()) return std::nullopt;
  const bool is_signed = type.kind == ElementKind::signed_integer;
  const unsigned value_bits = 8 * type.bytes - (is_signed ? 1 : 0);
  // Of a negative number, what is before the greatest one.
  const bool negative = !value.is_number_unsigned() && value.get<int64_t>() < 0;
  const auto bits = negative ? static_cast<uint64_t>(value.get<int64_t>()) : value.get<uint64_t>();
  const uint64_t magnitude = negative ? ~bits : bits;
  const bool fits = value_bits == 64 || magnitude >> value_bits == 0;
  return fits && (is_signed || !negative) ? std::optional(bits) : std::nullopt;
}

/// The bytes of a number that has this value; of none, zeros.
std::optional<ByteVector> number_of(const Json& value, const ElementType& type) {
  ByteVector number(type.bytes);
  const bool is_zero = value.is_null() || (value.is_number_integer() && value == 0);
  if (is_zero) return number;
  const std::optional<uint64_t> bits = value_bits(value, type);
  if (!bits) return std::nullopt;
  for (size_t i = 0; i < number.size(); ++i) {
    const size_t at = type.order == ByteOrder::big ? number.size() - 1 - i : i;
    number[at] = static_cast<std::byte>(*bits >> 8 * i);
  }
  return number;
}

/// Of a cell of missing chunks (ZarrArray::fill).
std::optional<ByteVector> fill_of(const Json& value, const ArrayType& type) {
  if (!type.pairs || value.is_null() || value == 0) return number_of(value, type.type);
  if (!value.is_array() || value.size() != 2) return std::nullopt;
  std::optional<ByteVector> real = number_of(value[0], type.type);
  const std::optional<ByteVector> imaginary = number_of(value[1], type.type);
  if (!real || !imaginary) return std::nullopt;
  if (*real != *imaginary) real->insert(real->end(), imaginary->begin(), imaginary->end());
  return real;
}

}  // namespace

Result<ZarrArray> parse_zarr2_array(std::string_view json) {
  const Json description = parse_shallow(json);
  if (member(description, "zarr_format") != 2) return no_zarr_array();
  VARVE_ASSIGN(ZarrArray array, array_of_shapes(member(description, "shape"), member(description, "chunks")));
  const Json& type = member(description, "dtype");
  array.codecs = codecs_of_version_2(member(description, "filters"), member(description, "compressor"));
  array.encoded = !array.codecs.empty();
  if (type.is_string()) array.type = numpy_type(type.get_ref<const std::string&>());
  if (array.type) array.fill = fill_of(member(description, "fill_value"), *array.type);
  array.is_fortran_order = is_text(member(description, "order"), "F");
  if (array.is_fortran_order) {
    std::reverse(array.shape.begin(), array.shape.end());
    std::reverse(array.chunk_shape.begin(), array.chunk_shape.end());
  }
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
  ByteOrder order = ByteOrder::little;
  array.codecs = codecs_of_version_3(member(description, "codecs"), order);
  array.encoded = !array.codecs.empty();
  const Json& type = member(description, "data_type");
  if (type.is_string()) array.type = named_array_type(type.get_ref<const std::string&>(), order);
  if (array.type) array.fill = fill_of(member(description, "fill_value"), *array.type);
  return array;
}

std::optional<std::vector<uint64_t>> zarr_chunk_place(const ZarrArray& array, std::string_view name) {
  const size_t dimensions = array.shape.size();
  if (array.has_lead) {
    if (name.empty() || name.front() != 'c') return std::nullopt;
    name.remove_prefix(1);
    if (name.empty()) return dimensions == 0 ? std::optional(std::vector<uint64_t>()) : std::nullopt;
    if (name.front() != '/' && name.front() != '.') return std::nullopt;
    name.remove_prefix(1);
  }
  std::vector<uint64_t> place;
  for (const char* at = name.data();;) {
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(at, end, place.emplace_back());
    if (error != std::errc() || place.size() > std::max<size_t>(dimensions, 1)) return std::nullopt;
    if (rest == end) break;
    if (*rest != '.' && *rest != '/') return std::nullopt;
    at = rest + 1;
  }
  // An array without dimensions has one chunk, which is called 0 in version 2.
  if (place.size() != std::max<size_t>(dimensions, 1)) return std::nullopt;
  if (dimensions == 0) place.clear();
  if (array.is_fortran_order) std::reverse(place.begin(), place.end());
  return place;
}

Layout zarr_chunk_layout(const ZarrArray& array, std::string name, uint64_t file_bytes) {
  Layout layout{.format = std::string(kZarrFormat), .variables = {}};
  if (file_bytes == 0) return layout;
  std::optional<Variable> chunk;
  if (array.type && !array.encoded) chunk = plain_array(name, *array.type, array.chunk_shape, {0, file_bytes});
  layout.variables.push_back(chunk ? std::move(*chunk)
                                   : bytes_variable(std::move(name), {0, file_bytes}, array.encoded));
  return layout;
}

}  // namespace varve
