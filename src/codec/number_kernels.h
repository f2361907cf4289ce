#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/bytes.h"

namespace varve::kernels {

/// How the numbers of a pack lie in memory.
struct NumberFormat {
  uint32_t bytes = 1;       ///< 1, 2, 4 or 8
  bool big_endian = false;  ///< false for 1 byte
  bool floating = false;    ///< IEEE 754: the bits are mapped so that integer order is value order
  bool operator==(const NumberFormat&) const = default;
};

inline constexpr size_t kDifferencesMax = 4;

/// A run of numbers, and how far back each of the differences taken one after another reaches: {1, nx, nx * ny} is the
/// Lorenzo predictor of a 3-D array. A difference leaves the first `stride` numbers as they are.
struct DifferenceRun {
  uint64_t elements = 0;
  std::array<uint64_t, kDifferencesMax> strides{};  ///< each at least 1
  size_t stride_count = 0;
};

/// Numbers of `format` → ordered integers → differences modulo 2^bits → zigzag, little-endian. `runs` cover `in`
/// exactly; `out` is as large as `in` and apart from it. Neither needs to be aligned.
void difference_forward(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out);
/// The inverse of difference_forward().
void difference_inverse(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out);

/// The same maps, written as they are defined: what the fast ones must agree with, and what runs on big-endian
/// machines.
void difference_forward_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out);
void difference_inverse_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out);

}  // namespace varve::kernels
