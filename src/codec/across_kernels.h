#pragma once

#include "codec/kernels.h"

namespace varve::kernels {

// How the numbers of one variable are predicted from those of another (FORMAT.md, "across"). Everywhere, `numbers` and
// `reference` are as many floating-point numbers of `format` as `codes` or `out` has; none needs to be aligned, and
// what is written lies apart from what is read.

/// The numbers of a variable are taken in so many parts of equal length, each after the one before: so the sums of one
/// do not have to wait for those of another.
inline constexpr size_t kQuotientLanes = 8;

/// A number is expected to be to the one before as the reference's is: the zigzag codes of the differences from that,
/// in ordered integers. Whatever the thread has its floating-point unit do with rounding and denormals, the results
/// are those of IEEE 754's defaults, and the same on every machine.
void quotient_forward(NumberFormat format, ByteSpan numbers, ByteSpan reference, MutableByteSpan out);
/// The inverse; `out` has the numbers.
void quotient_inverse(NumberFormat format, ByteSpan codes, ByteSpan reference, MutableByteSpan out);
/// The same, written as they are defined.
void quotient_forward_plain(NumberFormat format, ByteSpan numbers, ByteSpan reference, MutableByteSpan out);
void quotient_inverse_plain(NumberFormat format, ByteSpan codes, ByteSpan reference, MutableByteSpan out);

/// Zigzag codes, of numbers of `bytes` bytes (4 or 8), of the differences of what two of them mean, and of the sums.
void subtract_codes(uint32_t bytes, ByteSpan codes, ByteSpan others, MutableByteSpan out);
void add_codes(uint32_t bytes, ByteSpan codes, ByteSpan others, MutableByteSpan out);

/// How many bits all codes (of 4 or 8 bytes) have from their highest one on: about what they take when encoded.
uint64_t code_bits(uint32_t bytes, ByteSpan codes);

}  // namespace varve::kernels
