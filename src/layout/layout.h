#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve {

/// The bytes of an array of this shape, or nothing if 64 bits do not hold them. An empty shape is a scalar.
/// `shape` is a container of 64-bit unsigned integers, of whatever name.
template <class Shape>
std::optional<uint64_t> array_bytes(const Shape& shape, uint64_t element_bytes) {
  uint64_t product = element_bytes;
  for (uint64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return product;
}

/// A run of consecutive bytes of a file (or of a memory image).
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Extent&) const = default;
};

/// A typed array inside a checkpoint and where its bytes lie.
struct Variable {
  std::string name;             ///< with its groups: "/Grid00000142/Density"
  ElementType type;             ///< of its elements, as the user sees them
  std::vector<uint64_t> shape;  ///< slowest dimension first; empty for a scalar
  /// The stored bytes in storage order. Their sum need not be the product of the shape: chunks may be filtered, padded
  /// or not allocated.
  std::vector<Extent> extents;
  /// Shape of the array that lies in each extent, if it is not `shape` (an HDF5 chunk, say); slowest dimension first.
  std::vector<uint64_t> run_shape;
  /// The stored bytes are not plain elements of `type` (filtered chunks, heap references): treat them as bytes.
  bool encoded = false;

  uint64_t stored_bytes() const;
  bool operator==(const Variable&) const = default;
};

/// Where the variables of a checkpoint file lie. Bytes in no variable are its skeleton.
struct Layout {
  std::string format;  ///< "hdf5", "netcdf", "elf", "raw"
  std::vector<Variable> variables;
  bool operator==(const Layout&) const = default;
};

/// Checks that the extents of `layout` are not empty, lie within `file_bytes` and do not overlap, and that names,
/// types, shapes and counts are within the limits. Of a variable that is not encoded, each extent holds whole elements,
/// and where `run_shape` is given it holds exactly one such array. Whatever a reader returns goes through here before
/// it is believed. Names may repeat. O(n log n) in the number of extents, O(n) if they come in file order.
Status validate_layout(const Layout& layout, uint64_t file_bytes);

/// The layout of a file about which nothing is known: one opaque variable over all of it (none if it is empty).
Layout opaque_layout(uint64_t file_bytes, std::string variable_name);

/// The bytes of `file_bytes` that no variable of `layout` covers, in file order, with neighbours joined. `layout` is
/// valid.
std::vector<Extent> skeleton_extents(const Layout& layout, uint64_t file_bytes);

/// Limits on what a reader may return (FORMAT.md, "Limits").
inline constexpr size_t kVariablesPerFileMax = 10'000'000;
inline constexpr size_t kExtentsPerFileMax = 16'000'000;
inline constexpr size_t kDimensionsMax = 32;
inline constexpr size_t kVariableNameBytesMax = 65'536;

/// Appends `layout` in a compact form for another process of this same build: it has no version and is never stored.
///
///     format text | variable count | for each: name text | kind u8 | order u8 | element bytes | encoded u8 |
///     shape count, lengths | run shape count, lengths | extent count, (distance from the previous end, bytes) each
///
/// All numbers without a width are varints, the distance a signed one. The first distance is from the end of the
/// variable before.
void encode_layout(const Layout& layout, ByteWriter& out);

/// Hears of memory before it is taken, and may refuse it, which is then the outcome. Empty: all may be taken.
using TakeMemory = std::function<Status(uint64_t bytes)>;
/// What a text takes beside its std::string, and what a vector of so many bytes takes beside itself.
uint64_t text_memory_bytes(size_t bytes);
uint64_t array_memory_bytes(uint64_t bytes);

/// The reverse, from bytes that are not trusted: what is allocated is bounded by what is left to read, by the limits
/// of layout.h, and by `take`. The result still has to be validated against its file.
Result<Layout> decode_layout(ByteReader& in, const TakeMemory& take = {});

}  // namespace varve
