#pragma once

#include "core/bytes.h"

namespace varve::kernels {

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
