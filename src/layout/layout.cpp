#include "layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace varve {

namespace {

/// The limit on one element keeps (elements x bytes) far from overflow; HDF5's own is 4 GiB.
constexpr uint32_t kElementBytesMax = 1U << 31;

bool type_is_valid(const ElementType& type) {
  if (type.bytes == 0 || type.bytes > kElementBytesMax) return false;
  if (type.order != ByteOrder::little && type.order != ByteOrder::big) return false;
  if (type.order == ByteOrder::big && (type.bytes == 1 || !type.numeric())) return false;
  switch (type.kind) {
    case ElementKind::opaque:
    case ElementKind::text: return true;
    case ElementKind::signed_integer:
    case ElementKind::unsigned_integer:
    case ElementKind::floating: return type.bytes <= 16;
  }
  return false;
}

Status validate_variable(const Variable& variable, uint64_t file_bytes) {
  if (variable.name.empty() || variable.name.size() > kVariableNameBytesMax) {
    return Status::resource_limit(fmt::format("a variable's name has {} bytes", variable.name.size()));
  }
  if (variable.name.find('\0') != std::string::npos) return Status::corrupt("a variable's name holds a zero byte");
  if (!type_is_valid(variable.type)) return Status::corrupt("a variable has an impossible type", variable.name);
  if (variable.shape.size() > kDimensionsMax || variable.run_shape.size() > kDimensionsMax) {
    return Status::resource_limit("a variable has too many dimensions", variable.name);
  }
  std::optional<uint64_t> run_bytes;
  if (!variable.run_shape.empty()) run_bytes = array_bytes(variable.run_shape, variable.type.bytes);
  for (const Extent& extent : variable.extents) {
    if (extent.bytes == 0) return Status::corrupt("an extent is empty", variable.name);
    if (extent.offset > file_bytes || extent.bytes > file_bytes - extent.offset) {
      return Status::corrupt("an extent reaches past the end of the file", variable.name);
    }
    if (variable.encoded) continue;
    if (extent.bytes % variable.type.bytes != 0) {
      return Status::corrupt("an extent holds a part of an element", variable.name);
    }
    if (!variable.run_shape.empty() && run_bytes != extent.bytes) {
      return Status::corrupt("an extent does not hold its array", variable.name);
    }
  }
  return {};
}

/// All extents in file order. Readers mostly return them so, and then nothing is sorted.
std::vector<Extent> sorted_extents(const Layout& layout) {
  size_t count = 0;
  for (const Variable& variable : layout.variables) count += variable.extents.size();
  std::vector<Extent> all;
  all.reserve(count);
  for (const Variable& variable : layout.variables) {
    all.insert(all.end(), variable.extents.begin(), variable.extents.end());
  }
  auto lies_before = [](const Extent& a, const Extent& b) { return a.offset < b.offset; };
  if (!std::is_sorted(all.begin(), all.end(), lies_before)) std::sort(all.begin(), all.end(), lies_before);
  return all;
}

}  // namespace

uint64_t Variable::stored_bytes() const {
  uint64_t sum = 0;
  for (const Extent& extent : extents) sum += extent.bytes;
  return sum;
}

Status validate_layout(const Layout& layout, uint64_t file_bytes) {
  if (layout.variables.size() > kVariablesPerFileMax) {
    return Status::resource_limit(fmt::format("the file has more than {} variables", kVariablesPerFileMax));
  }
  size_t extent_count = 0;
  for (const Variable& variable : layout.variables) {
    VARVE_TRY(validate_variable(variable, file_bytes));
    extent_count += variable.extents.size();
  }
  if (extent_count > kExtentsPerFileMax) {
    return Status::resource_limit(fmt::format("the file's variables lie in more than {} pieces", kExtentsPerFileMax));
  }
  uint64_t end = 0;
  for (const Extent& extent : sorted_extents(layout)) {
    if (extent.offset < end) return Status::corrupt("two variables overlap", fmt::format("at byte {}", extent.offset));
    end = extent.offset + extent.bytes;
  }
  return {};
}

Layout opaque_layout(uint64_t file_bytes, std::string variable_name) {
  Layout layout{.format = "raw", .variables = {}};
  if (file_bytes == 0) return layout;
  Variable whole;
  whole.name = std::move(variable_name);
  whole.shape = {file_bytes};
  whole.extents = {{0, file_bytes}};
  layout.variables.push_back(std::move(whole));
  return layout;
}

std::vector<Extent> skeleton_extents(const Layout& layout, uint64_t file_bytes) {
  std::vector<Extent> gaps;
  uint64_t end = 0;
  for (const Extent& extent : sorted_extents(layout)) {
    if (extent.offset > end) gaps.push_back({end, extent.offset - end});
    end = extent.offset + extent.bytes;
  }
  if (end < file_bytes) gaps.push_back({end, file_bytes - end});
  return gaps;
}

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
