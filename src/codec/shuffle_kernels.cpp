#include "codec/shuffle_kernels.h"

#include <algorithm>
#include <bit>

#include "codec/multiversion.h"

namespace varve::kernels {
namespace {

template <class T>
VARVE_KERNEL_BODY T load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// Elements as wide as a register: a plane is a shift and a narrowing, which compilers vectorise.
template <class T>
VARVE_KERNEL_BODY void shuffle_words(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  constexpr size_t tile_count = 1024;
  for (size_t start = 0; start < count; start += tile_count) {
    const size_t length = std::min(tile_count, count - start);
    for (size_t plane = 0; plane < sizeof(T); ++plane) {
      std::byte* __restrict to = out + plane * count + start;
      for (size_t i = 0; i < length; ++i) to[i] = static_cast<std::byte>(load<T>(in, start + i) >> (8 * plane));
    }
  }
}

template <class T>
VARVE_KERNEL_BODY void unshuffle_words(const std::byte* __restrict in, std::byte* __restrict out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T value = 0;
    for (size_t plane = 0; plane < sizeof(T); ++plane) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(in[plane * count + i]) << (8 * plane)));
    }
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

/// Any element size: tiles that stay in the first-level cache.
VARVE_KERNEL_BODY void shuffle_any(size_t element_bytes, const std::byte* __restrict in, std::byte* __restrict out,
                                   size_t count, bool forward) {
  const size_t tile_count = std::clamp<size_t>(8192 / element_bytes, 16, 512);
  for (size_t start = 0; start < count; start += tile_count) {
    const size_t end = std::min(start + tile_count, count);
    for (size_t plane = 0; plane < element_bytes; ++plane) {
      if (forward) {
        for (size_t i = start; i < end; ++i) out[plane * count + i] = in[i * element_bytes + plane];
      } else {
        for (size_t i = start; i < end; ++i) out[i * element_bytes + plane] = in[plane * count + i];
      }
    }
  }
}

VARVE_KERNEL_BODY void shuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {
  switch (element_bytes) {
    case 2: return shuffle_words<uint16_t>(in, out, count);
    case 4: return shuffle_words<uint32_t>(in, out, count);
    case 8: return shuffle_words<uint64_t>(in, out, count);
    default: return shuffle_any(element_bytes, in, out, count, true);
  }
}
VARVE_KERNEL_BODY void unshuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {
  switch (element_bytes) {
    case 2: return unshuffle_words<uint16_t>(in, out, count);
    case 4: return unshuffle_words<uint32_t>(in, out, count);
    case 8: return unshuffle_words<uint64_t>(in, out, count);
    default: return shuffle_any(element_bytes, in, out, count, false);
  }
}

/// Transposes the 8 × 8 bits of a word: bit c of byte r goes to bit r of byte c. Hacker's Delight, 7-3.
VARVE_KERNEL_BODY uint64_t transpose_bits(uint64_t x) {
  uint64_t swap = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
  x ^= swap ^ (swap << 7);
  swap = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
  x ^= swap ^ (swap << 14);
  swap = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
  return x ^ swap ^ (swap << 28);
}

/// A byte plane of 8 * `groups` elements, already gathered, to its eight bit planes and back.
VARVE_KERNEL_BODY void plane_to_bits(const std::byte* __restrict plane, std::byte* __restrict out, size_t groups) {
  constexpr size_t tile_groups = 256;
  uint64_t words[tile_groups];
  for (size_t start = 0; start < groups; start += tile_groups) {
    const size_t length = std::min(tile_groups, groups - start);
    for (size_t i = 0; i < length; ++i) words[i] = transpose_bits(load<uint64_t>(plane, start + i));
    for (size_t bit = 0; bit < 8; ++bit) {
      std::byte* __restrict to = out + bit * groups + start;
      for (size_t i = 0; i < length; ++i) to[i] = static_cast<std::byte>(words[i] >> (8 * bit));
    }
  }
}
VARVE_KERNEL_BODY void bits_to_plane(const std::byte* __restrict in, std::byte* __restrict plane, size_t groups) {
  for (size_t i = 0; i < groups; ++i) {
    uint64_t word = 0;
    for (size_t bit = 0; bit < 8; ++bit) word |= static_cast<uint64_t>(in[bit * groups + i]) << (8 * bit);
    word = transpose_bits(word);
    std::memcpy(plane + i * 8, &word, 8);
  }
}

VARVE_KERNEL_BODY void bit_shuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,
                                        std::byte* planes) {
  shuffle_body(element_bytes, in, planes, groups * 8);
  for (size_t j = 0; j < element_bytes; ++j) plane_to_bits(planes + j * groups * 8, out + j * groups * 8, groups);
}
VARVE_KERNEL_BODY void bit_unshuffle_body(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,
                                          std::byte* planes) {
  for (size_t j = 0; j < element_bytes; ++j) bits_to_plane(in + j * groups * 8, planes + j * groups * 8, groups);
  unshuffle_body(element_bytes, planes, out, groups * 8);
}

#define VARVE_SHUFFLE_VERSIONS(name)                                                                            \
  void name##_baseline(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) {               \
    name##_body(element_bytes, in, out, count);                                                                 \
  }                                                                                                             \
  VARVE_TARGET_AVX2 void name##_avx2(size_t element_bytes, const std::byte* in, std::byte* out, size_t count) { \
    name##_body(element_bytes, in, out, count);                                                                 \
  }
VARVE_SHUFFLE_VERSIONS(shuffle)
VARVE_SHUFFLE_VERSIONS(unshuffle)
#undef VARVE_SHUFFLE_VERSIONS

#define VARVE_BIT_SHUFFLE_VERSIONS(name)                                                                              \
  void name##_baseline(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups, std::byte* planes) { \
    name##_body(element_bytes, in, out, groups, planes);                                                              \
  }                                                                                                                   \
  VARVE_TARGET_AVX2 void name##_avx2(size_t element_bytes, const std::byte* in, std::byte* out, size_t groups,        \
                                     std::byte* planes) {                                                             \
    name##_body(element_bytes, in, out, groups, planes);                                                              \
  }
VARVE_BIT_SHUFFLE_VERSIONS(bit_shuffle)
VARVE_BIT_SHUFFLE_VERSIONS(bit_unshuffle)
#undef VARVE_BIT_SHUFFLE_VERSIONS

void copy_tail(ByteSpan in, MutableByteSpan out, size_t done) {
  std::copy(in.begin() + static_cast<ptrdiff_t>(done), in.end(), out.begin() + static_cast<ptrdiff_t>(done));
}

template <class Kernel>
void transpose_bytes(Kernel kernel, size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  if (element_bytes == 1 || count < 2) return copy_tail(in, out, 0);
  kernel(element_bytes, in.data(), out.data(), count);
  copy_tail(in, out, count * element_bytes);
}

template <class Kernel>
void transpose_to_bits(Kernel kernel, size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  thread_local ByteVector planes;  // kept: first touch of fresh memory costs more than the transposition
  const size_t groups = in.size() / element_bytes / 8;
  const size_t done = groups * 8 * element_bytes;
  if (groups > 0) {
    if (planes.size() < done) planes.resize(done);
    kernel(element_bytes, in.data(), out.data(), groups, planes.data());
    if (planes.size() > 8_MiB) planes = {};
  }
  copy_tail(in, out, done);
}

}  // namespace

void shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return shuffle_plain(element_bytes, in, out);
  transpose_bytes(machine_has_avx2() ? shuffle_avx2 : shuffle_baseline, element_bytes, in, out);
}
void unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return unshuffle_plain(element_bytes, in, out);
  transpose_bytes(machine_has_avx2() ? unshuffle_avx2 : unshuffle_baseline, element_bytes, in, out);
}
void bit_shuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return bit_shuffle_plain(element_bytes, in, out);
  transpose_to_bits(machine_has_avx2() ? bit_shuffle_avx2 : bit_shuffle_baseline, element_bytes, in, out);
}
void bit_unshuffle(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return bit_unshuffle_plain(element_bytes, in, out);
  transpose_to_bits(machine_has_avx2() ? bit_unshuffle_avx2 : bit_unshuffle_baseline, element_bytes, in, out);
}

void shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < element_bytes; ++j) out[j * count + i] = in[i * element_bytes + j];
  }
  copy_tail(in, out, count * element_bytes);
}
void unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  const size_t count = in.size() / element_bytes;
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < element_bytes; ++j) out[i * element_bytes + j] = in[j * count + i];
  }
  copy_tail(in, out, count * element_bytes);
}

namespace {
template <class Visit>
size_t for_each_bit(size_t element_bytes, size_t bytes, Visit visit) {
  const size_t groups = bytes / element_bytes / 8;
  for (size_t element = 0; element < groups * 8; ++element) {
    for (size_t bit = 0; bit < element_bytes * 8; ++bit) {
      visit(element * element_bytes + bit / 8, bit % 8, bit * groups + element / 8, element % 8);
    }
  }
  return groups * 8 * element_bytes;
}
std::byte bit_at(std::byte from, size_t from_bit, size_t to_bit) { return (from >> from_bit & std::byte{1}) << to_bit; }
}  // namespace

void bit_shuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  copy_tail(in, out,
            for_each_bit(element_bytes, in.size(), [&](size_t byte, size_t bit, size_t plane_byte, size_t plane_bit) {
              out[plane_byte] |= bit_at(in[byte], bit, plane_bit);
            }));
}
void bit_unshuffle_plain(size_t element_bytes, ByteSpan in, MutableByteSpan out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  copy_tail(in, out,
            for_each_bit(element_bytes, in.size(), [&](size_t byte, size_t bit, size_t plane_byte, size_t plane_bit) {
              out[byte] |= bit_at(in[plane_byte], plane_bit, bit);
            }));
}

}  // namespace varve::kernels
