#include "layout/layout_codec.h"

namespace varve {
namespace {

void encode_shape(const std::vector<uint64_t>& shape, ByteWriter& out) {
  out.varint(shape.size());
  for (uint64_t length : shape) out.varint(length);
}

Status take_memory(const TakeMemory& take, uint64_t bytes) { return take && bytes > 0 ? take(bytes) : Status(); }

Result<std::vector<uint64_t>> decode_shape(ByteReader& in, const TakeMemory& take) {
  VARVE_ASSIGN(uint64_t count, in.count());
  if (count > kDimensionsMax) return Status::resource_limit("a variable has too many dimensions");
  VARVE_TRY(take_memory(take, array_memory_bytes(count * sizeof(uint64_t))));
  std::vector<uint64_t> shape;
  shape.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(uint64_t length, in.varint());
    shape.push_back(length);
  }
  return shape;
}

Result<std::string> decode_text(ByteReader& in, const TakeMemory& take) {
  VARVE_ASSIGN(std::string_view text, in.text());
  if (text.size() > kVariableNameBytesMax) return Status::resource_limit("a name is too long");
  VARVE_TRY(take_memory(take, text_memory_bytes(text.size())));
  return std::string(text);
}

Status decode_type(ByteReader& in, Variable& variable) {
  VARVE_ASSIGN(uint8_t kind, in.u8());
  VARVE_ASSIGN(uint8_t order, in.u8());
  VARVE_ASSIGN(uint64_t bytes, in.varint());
  VARVE_ASSIGN(uint8_t encoded, in.u8());
  bool known = kind <= static_cast<uint8_t>(ElementKind::text) && order <= static_cast<uint8_t>(ByteOrder::big);
  if (!known || bytes > UINT32_MAX || encoded > 1) return Status::corrupt("a variable has an impossible type");
  variable.type = {static_cast<ElementKind>(kind), static_cast<ByteOrder>(order), static_cast<uint32_t>(bytes)};
  variable.encoded = encoded != 0;
  return {};
}

Status decode_extents(ByteReader& in, uint64_t& end, size_t& extents_left, Variable& variable, const TakeMemory& take) {
  VARVE_ASSIGN(uint64_t count, in.count(2));
  if (count > extents_left) return Status::resource_limit("the layout has too many extents");
  extents_left -= count;
  VARVE_TRY(take_memory(take, array_memory_bytes(count * sizeof(Extent))));
  variable.extents.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    VARVE_ASSIGN(int64_t distance, in.signed_varint());
    VARVE_ASSIGN(uint64_t bytes, in.varint());
    // Unsigned arithmetic wraps, so that nonsense stays defined; validate_layout refuses it.
    uint64_t offset = end + static_cast<uint64_t>(distance);
    variable.extents.push_back({offset, bytes});
    end = offset + bytes;
  }
  return {};
}

}  // namespace

void encode_layout(const Layout& layout, ByteWriter& out) {
  out.text(layout.format);
  out.varint(layout.variables.size());
  uint64_t end = 0;
  for (const Variable& variable : layout.variables) {
    out.text(variable.name);
    out.u8(static_cast<uint8_t>(variable.type.kind));
    out.u8(static_cast<uint8_t>(variable.type.order));
    out.varint(variable.type.bytes);
    out.u8(variable.encoded ? 1 : 0);
    encode_shape(variable.shape, out);
    encode_shape(variable.run_shape, out);
    out.varint(variable.extents.size());
    for (const Extent& extent : variable.extents) {
      out.signed_varint(static_cast<int64_t>(extent.offset - end));
      out.varint(extent.bytes);
      end = extent.offset + extent.bytes;
    }
  }
}

uint64_t text_memory_bytes(size_t bytes) {
  constexpr size_t bytes_in_place = 15;
  return bytes > bytes_in_place ? array_memory_bytes(bytes + 1) : 0;
}

uint64_t array_memory_bytes(uint64_t bytes) {
  constexpr uint64_t bytes_of_an_allocation = 16;
  return bytes > 0 ? bytes + bytes_of_an_allocation : 0;
}

Result<Layout> decode_layout(ByteReader& in, const TakeMemory& take) {
  constexpr uint64_t kVariableBytesMin = 8;
  Layout layout;
  VARVE_ASSIGN(layout.format, decode_text(in, take));
  VARVE_ASSIGN(uint64_t count, in.count(kVariableBytesMin));
  if (count > kVariablesPerFileMax) return Status::resource_limit("the layout has too many variables");
  VARVE_TRY(take_memory(take, array_memory_bytes(count * sizeof(Variable))));
  layout.variables.reserve(count);
  uint64_t end = 0;
  size_t extents_left = kExtentsPerFileMax;
  for (uint64_t i = 0; i < count; ++i) {
    Variable variable;
    VARVE_ASSIGN(variable.name, decode_text(in, take));
    VARVE_TRY(decode_type(in, variable));
    VARVE_ASSIGN(variable.shape, decode_shape(in, take));
    VARVE_ASSIGN(variable.run_shape, decode_shape(in, take));
    VARVE_TRY(decode_extents(in, end, extents_left, variable, take));
    layout.variables.push_back(std::move(variable));
  }
  return layout;
}

}  // namespace varve
