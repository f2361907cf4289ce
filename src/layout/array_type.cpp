#include "layout/array_type.h"

#include <array>
#include <charconv>

namespace varve {
namespace {

struct NamedType {
  std::string_view name;
  ElementKind kind;
  uint32_t bytes;
  bool pairs = false;
};
constexpr std::array<NamedType, 21> kNamedTypes{
    {{"float64", ElementKind::floating, 8},          {"float32", ElementKind::floating, 4},
     {"float16", ElementKind::floating, 2},          {"bfloat16", ElementKind::opaque, 2},
     {"float8_e4m3fn", ElementKind::opaque, 1},      {"float8_e5m2", ElementKind::opaque, 1},
     {"float8_e4m3fnuz", ElementKind::opaque, 1},    {"float8_e5m2fnuz", ElementKind::opaque, 1},
     {"int64", ElementKind::signed_integer, 8},      {"int32", ElementKind::signed_integer, 4},
     {"int16", ElementKind::signed_integer, 2},      {"int8", ElementKind::signed_integer, 1},
     {"uint64", ElementKind::unsigned_integer, 8},   {"uint32", ElementKind::unsigned_integer, 4},
     {"uint16", ElementKind::unsigned_integer, 2},   {"uint8", ElementKind::unsigned_integer, 1},
     {"bool", ElementKind::unsigned_integer, 1},     {"complex32", ElementKind::floating, 2, true},
     {"complex64", ElementKind::floating, 4, true},  {"complex128", ElementKind::floating, 8, true},
     {"complex256", ElementKind::floating, 16, true}}};

/// Only numbers of several bytes have an order.
ElementType ordered_type(ElementKind kind, uint32_t bytes, ByteOrder order) {
  ElementType type{kind, ByteOrder::little, bytes};
  if (type.numeric() && bytes > 1) type.order = order;
  return type;
}

/// numpy's letters for numbers: which sizes there are of each.
std::optional<ArrayType> numpy_number(char letter, uint32_t bytes, ByteOrder order) {
  const bool is_size_of_integer = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  const auto number = [&](ElementKind kind, bool fits) -> std::optional<ArrayType> {
    if (!fits) return std::nullopt;
    return ArrayType{ordered_type(kind, bytes, order)};
  };
  switch (letter) {
    case 'f': return number(ElementKind::floating, bytes == 2 || bytes == 4 || bytes == 8 || bytes == 16);
    case 'i': return number(ElementKind::signed_integer, is_size_of_integer);
    case 'u': return number(ElementKind::unsigned_integer, is_size_of_integer);
    case 'b': return number(ElementKind::unsigned_integer, bytes == 1);
    case 'm':
    case 'M': return number(ElementKind::signed_integer, bytes == 8);  // times, counted in some unit
    case 'c':
      if (bytes != 8 && bytes != 16 && bytes != 32) return std::nullopt;
      return ArrayType{ordered_type(ElementKind::floating, bytes / 2, order), true};
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<ArrayType> numpy_type(std::string_view text) {
  if (text.size() < 3) return std::nullopt;
  const char order_mark = text[0], letter = text[1];
  if (order_mark != '<' && order_mark != '>' && order_mark != '|') return std::nullopt;
  uint32_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + 2, end, bytes);
  if (error != std::errc() || bytes == 0) return std::nullopt;
  const bool has_unit = (letter == 'm' || letter == 'M') && rest != end && *rest == '[' && text.back() == ']';
  if (rest != end && !has_unit) return std::nullopt;
  constexpr uint32_t bytes_of_letter = 4;
  constexpr uint32_t bytes_max = 1U << 24;
  if (bytes > bytes_max) return std::nullopt;
  switch (letter) {
    case 'S': return ArrayType{{ElementKind::text, ByteOrder::little, bytes}};
    case 'U': return ArrayType{{ElementKind::text, ByteOrder::little, bytes * bytes_of_letter}};
    case 'V': return ArrayType{{ElementKind::opaque, ByteOrder::little, bytes}};
    default: return numpy_number(letter, bytes, order_mark == '>' ? ByteOrder::big : ByteOrder::little);
  }
}

std::optional<ArrayType> named_array_type(std::string_view name, ByteOrder order) {
  for (const NamedType& known : kNamedTypes) {
    if (known.name == name) return ArrayType{ordered_type(known.kind, known.bytes, order), known.pairs};
  }
  return std::nullopt;
}

std::optional<Variable> plain_array(std::string name, const ArrayType& type, std::vector<uint64_t> shape,
                                    Extent place) {
  if (type.pairs) shape.push_back(2);
  if (shape.size() > kDimensionsMax || array_bytes(shape, type.type.bytes) != place.bytes) return std::nullopt;
  Variable variable;
  variable.name = std::move(name);
  variable.type = type.type;
  variable.shape = std::move(shape);
  if (place.bytes > 0) variable.extents = {place};
  return variable;
}

Variable bytes_variable(std::string name, Extent place, bool encoded) {
  Variable variable;
  variable.name = std::move(name);
  variable.shape = {place.bytes};
  if (place.bytes > 0) variable.extents = {place};
  variable.encoded = encoded;
  return variable;
}

}  // namespace varve
