#pragma once

#include <span>
#include <string_view>

#include "core/bytes.h"

namespace varve::kernels {

/// Numbers of 1, 2, 4 or 8 bytes, little-endian, are packed in groups of so many: of each as many bit planes as its
/// widest number has bits. A plane is a byte, the first number in its lowest bit. FORMAT.md, "planes".
inline constexpr size_t kPlaneGroup = 8;
/// pack_planes() may write so many bytes past the planes, and unpack_planes() copies so many to read no farther.
inline constexpr size_t kPlaneSlack = 64;

/// Packs all groups of `in`, whose size is a multiple of 8 * number_bytes: writes the width of each group to `widths`,
/// the planes one group after another, the lowest plane first, to `out`, and returns the bytes of these. `out` has room
/// for in.size() + kPlaneSlack bytes.
size_t pack_planes(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out);
/// The inverse of pack_planes(). No width is above 8 * number_bytes, and their sum is planes.size(): see
/// planes_bytes().
void unpack_planes(size_t number_bytes, ByteSpan widths, ByteSpan planes, MutableByteSpan out);

/// The sum of the widths, or more than any pack holds if one of them is above 8 * number_bytes.
uint64_t planes_bytes(size_t number_bytes, ByteSpan widths);

/// The two kernels as they are written for one sort of processor.
struct PlaneKernels {
  std::string_view name;
  size_t (*pack)(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out);
  void (*unpack)(size_t number_bytes, ByteSpan widths, ByteSpan planes, MutableByteSpan out);
};
/// All that this machine can run, the slowest first: that is the one written as the format defines it, with which the
/// others must agree. pack_planes() and unpack_planes() are the last.
std::span<const PlaneKernels> plane_kernels();

}  // namespace varve::kernels
