#include "layout/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "layout/element_count.h"

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

}  // namespace varve
