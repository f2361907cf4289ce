#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/bytes.h"

// Compiles a kernel twice, for the baseline machine and for AVX2, and picks one at run time. (GCC's target_clones would
// do it, but needs ifunc, which sanitizers and some C libraries lack.)

#if defined(__x86_64__) && defined(__GNUC__)
#define VARVE_HAS_AVX2_KERNELS 1
#define VARVE_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2")))
#else
#define VARVE_HAS_AVX2_KERNELS 0
#define VARVE_TARGET_AVX2
#endif

/// For the body of a kernel, which must be compiled anew inside each version.
#define VARVE_KERNEL_BODY inline __attribute__((always_inline))
#define VARVE_AVX2_BODY VARVE_TARGET_AVX2 VARVE_KERNEL_BODY

namespace varve::kernels {

inline bool machine_has_avx2() {
#if VARVE_HAS_AVX2_KERNELS
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  return has;
#else
  return false;
#endif
}

}  // namespace varve::kernels

namespace varve::kernels {

/// How the numbers of a pack lie in memory.
struct NumberFormat {
  uint32_t bytes = 1;       ///< 1, 2, 4 or 8
  bool big_endian = false;  ///< false for 1 byte
  bool floating = false;    ///< IEEE 754: the bits are mapped so that integer order is value order
  bool sign_last = false;   ///< or, of floats whose signs change, so that numbers of like size are near each other
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

/// Numbers of `format` → integers (ordered, or with the sign last) → differences modulo 2^bits → zigzag, little-endian.
/// `runs` cover `in` exactly; `out` is as large as `in` and apart from it. Neither needs to be aligned.
void difference_forward(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out);
/// What difference_forward() would write to the bytes from `begin` on, whole numbers, as many as `out` has room for.
void difference_forward_piece(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, size_t begin,
                              MutableByteSpan out);
/// The inverse of difference_forward().
void difference_inverse(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out);

/// The same maps, written as they are defined: what the fast ones must agree with, and what runs on big-endian
/// machines.
void difference_forward_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out);
void difference_inverse_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out);

/// Adds to matches[i] how many of `positions` have the byte that is 4 * (matches.size() - i) bytes before them. As many
/// bytes are before each.
void count_matches(ByteSpan bytes, std::span<const size_t> positions, std::span<uint32_t> matches);
/// Adds to each count how closely the value beside it is like `value`: 1 each if they differ by less than a half, an
/// eighth and a 32nd of its size.
void count_near(float value, std::span<const float> values, std::span<uint32_t> counts);

// Transpositions of elements of `element_bytes` bytes. `in` and `out` have the same size and do not overlap; neither
// needs to be aligned. Bytes after the last whole element (after the last multiple of eight elements, for bits) stay
// where they are.

/// Plane j of the result has byte j of every element.
void shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out);
void unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out);

/// Plane 8 * j + k has bit k of byte j of every element, eight elements to a byte, the first in the lowest bit.
void bit_shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out);
void bit_unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out);

/// The same, written as they are defined.
void shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out);
void unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out);
void bit_shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out);
void bit_unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out);

}  // namespace varve::kernels
