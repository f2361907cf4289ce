#include "codec/kernels.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "codec/number_bits.h"

namespace varve::kernels {

namespace {

/// Room for two copies of the longest run, kept between calls: first touch of fresh memory costs more than the
/// transform.
class Scratch {
 public:
  template <class T>
  std::span<T> take(size_t count) {
    const size_t words = (count * sizeof(T) + sizeof(uint64_t) - 1) / sizeof(uint64_t);
    if (words_.size() < words) words_.resize(words);
    return {reinterpret_cast<T*>(words_.data()), count};
  }
  void shrink() {
    constexpr size_t kept_words_max = 8_MiB / sizeof(uint64_t);
    if (words_.size() > kept_words_max) words_ = {};
  }

 private:
  std::vector<uint64_t> words_;
};

struct RunBuffers {
  const std::byte* in;
  std::byte* out;
  uint64_t* scratch;  ///< room for two runs
};

template <class T, bool kSwap, bool kFloating>
VARVE_KERNEL_BODY void forward_run(const DifferenceRun& run, const std::byte* __restrict in, std::byte* __restrict out,
                                   T* scratch) {
  using Value = Number<T, kSwap, kFloating>;
  const size_t count = run.elements;
  const size_t first = std::min<size_t>(run.strides[0], count);
  if (run.stride_count == 1) {
    for (size_t i = 0; i < first; ++i) store(out, i, to_zigzag(Value::get(in, i)));
    for (size_t i = first; i < count; ++i) {
      store(out, i, to_zigzag(static_cast<T>(Value::get(in, i) - Value::get(in, i - first))));
    }
    return;
  }
  T* __restrict from = scratch;
  T* __restrict to = scratch + count;
  for (size_t i = 0; i < first; ++i) from[i] = Value::get(in, i);
  for (size_t i = first; i < count; ++i) from[i] = static_cast<T>(Value::get(in, i) - Value::get(in, i - first));
  for (size_t pass = 1; pass + 1 < run.stride_count; ++pass) {
    const size_t stride = std::min<size_t>(run.strides[pass], count);
    for (size_t i = 0; i < stride; ++i) to[i] = from[i];
    for (size_t i = stride; i < count; ++i) to[i] = static_cast<T>(from[i] - from[i - stride]);
    std::swap(from, to);
  }
  const size_t stride = std::min<size_t>(run.strides[run.stride_count - 1], count);
  for (size_t i = 0; i < stride; ++i) store(out, i, to_zigzag(from[i]));
  for (size_t i = stride; i < count; ++i) store(out, i, to_zigzag(static_cast<T>(from[i] - from[i - stride])));
}

/// Of a vector's lanes, each moved up by kLanes, with zeros behind.
template <size_t kLanes, class Vector, size_t... kIndex>
VARVE_KERNEL_BODY Vector lanes_up(Vector vector, std::index_sequence<kIndex...>) {
  constexpr size_t count = sizeof...(kIndex);
  return __builtin_shufflevector(vector, Vector{}, (kIndex < kLanes ? count : kIndex - kLanes)...);
}

/// The last kStride lanes, over and over.
template <size_t kStride, class Vector, size_t... kIndex>
VARVE_KERNEL_BODY Vector last_lanes(Vector vector, std::index_sequence<kIndex...>) {
  return __builtin_shufflevector(vector, vector, (sizeof...(kIndex) - kStride + kIndex % kStride)...);
}

/// values[i] += values[i - kStride], from the front. Sums of small numbers take several at a time; of large ones, a sum
/// through memory takes five times as long as one in a register.
template <size_t kStride, class T>
VARVE_KERNEL_BODY void sum_up(T* values, size_t count) {
  size_t i = 0;
  if constexpr (sizeof(T) <= 2) {
    constexpr size_t lanes = 16 / sizeof(T);
    using Vector [[gnu::vector_size(16)]] = T;
    constexpr auto all = std::make_index_sequence<lanes>();
    Vector sums{};
    for (; i + lanes <= count; i += lanes) {
      Vector vector;
      std::memcpy(&vector, values + i, sizeof vector);
      vector += lanes_up<kStride>(vector, all);
      if constexpr (2 * kStride < lanes) vector += lanes_up<2 * kStride>(vector, all);
      if constexpr (4 * kStride < lanes) vector += lanes_up<4 * kStride>(vector, all);
      if constexpr (8 * kStride < lanes) vector += lanes_up<8 * kStride>(vector, all);
      sums = vector + last_lanes<kStride>(sums, all);
      std::memcpy(values + i, &sums, sizeof sums);
    }
  } else if constexpr (kStride == 1) {
    T sum = 0;
    for (; i < count; ++i) values[i] = sum = static_cast<T>(sum + values[i]);
  }
  for (i = std::max(i, kStride); i < count; ++i) values[i] = static_cast<T>(values[i] + values[i - kStride]);
}

/// The same for any stride.
template <class T>
VARVE_KERNEL_BODY void accumulate(T* values, size_t count, size_t stride) {
  switch (stride) {
    case 1: return sum_up<1>(values, count);
    case 2: return sum_up<2>(values, count);
    case 3: return sum_up<3>(values, count);
    case 4: return sum_up<4>(values, count);
    case 5: return sum_up<5>(values, count);
    case 6: return sum_up<6>(values, count);
    case 7: return sum_up<7>(values, count);
    default: break;
  }
  for (size_t start = stride; start < count; start += stride) {
    const size_t length = std::min(stride, count - start);
    T* __restrict row = values + start;
    const T* __restrict before = values + start - stride;
    for (size_t i = 0; i < length; ++i) row[i] = static_cast<T>(row[i] + before[i]);
  }
}

template <class T, bool kSwap, bool kFloating>
VARVE_KERNEL_BODY void inverse_run(const DifferenceRun& run, const std::byte* __restrict in, std::byte* __restrict out,
                                   T* __restrict scratch) {
  using Value = Number<T, kSwap, kFloating>;
  const size_t count = run.elements;
  if (run.stride_count == 1 && run.strides[0] == 1) {
    constexpr size_t tile_count = 2048 / sizeof(T);
    T tile[tile_count];
    T sum = 0;
    for (size_t start = 0; start < count; start += tile_count) {
      const size_t length = std::min(tile_count, count - start);
      for (size_t i = 0; i < length; ++i) tile[i] = from_zigzag(load<T>(in, start + i));
      tile[0] = static_cast<T>(tile[0] + sum);
      sum_up<1>(tile, length);
      sum = tile[length - 1];
      for (size_t i = 0; i < length; ++i) Value::put(out, start + i, tile[i]);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i) scratch[i] = from_zigzag(load<T>(in, i));
  for (size_t pass = run.stride_count; pass > 0; --pass) accumulate(scratch, count, run.strides[pass - 1]);
  for (size_t i = 0; i < count; ++i) Value::put(out, i, scratch[i]);
}

#define VARVE_RUN_ARGUMENTS const DifferenceRun &run, const RunBuffers &at
template <class T, bool kSwap, bool kFloating>
void forward_baseline(VARVE_RUN_ARGUMENTS) {
  forward_run<T, kSwap, kFloating>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
}
template <class T, bool kSwap, bool kFloating>
VARVE_TARGET_AVX2 void forward_avx2(VARVE_RUN_ARGUMENTS) {
  forward_run<T, kSwap, kFloating>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
}
template <class T, bool kSwap, bool kFloating>
void inverse_baseline(VARVE_RUN_ARGUMENTS) {
  inverse_run<T, kSwap, kFloating>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
}
template <class T, bool kSwap, bool kFloating>
VARVE_TARGET_AVX2 void inverse_avx2(VARVE_RUN_ARGUMENTS) {
  inverse_run<T, kSwap, kFloating>(run, at.in, at.out, reinterpret_cast<T*>(at.scratch));
}
#undef VARVE_RUN_ARGUMENTS

using RunKernel = void (*)(const DifferenceRun&, const RunBuffers&);

template <class T, bool kSwap, bool kFloating>
RunKernel pick(bool forward) {
  if (machine_has_avx2()) return forward ? forward_avx2<T, kSwap, kFloating> : inverse_avx2<T, kSwap, kFloating>;
  return forward ? forward_baseline<T, kSwap, kFloating> : inverse_baseline<T, kSwap, kFloating>;
}
template <class T>
RunKernel pick(NumberFormat format, bool forward) {
  if (format.floating) return format.big_endian ? pick<T, true, true>(forward) : pick<T, false, true>(forward);
  return format.big_endian ? pick<T, true, false>(forward) : pick<T, false, false>(forward);
}
RunKernel pick_kernel(NumberFormat format, bool forward) {
  switch (format.bytes) {
    case 2: return pick<uint16_t>(format, forward);
    case 4: return pick<uint32_t>(format, forward);
    case 8: return pick<uint64_t>(format, forward);
    default: return pick<uint8_t>(format, forward);
  }
}

void for_each_run(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out,
                  bool forward) {
  thread_local Scratch scratch;
  uint64_t elements_max = 0;
  for (const DifferenceRun& run : runs) elements_max = std::max(elements_max, run.elements);
  const std::span<uint64_t> room = scratch.take<uint64_t>((2 * elements_max * format.bytes + 7) / 8);
  const RunKernel kernel = pick_kernel(format, forward);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    if (run.elements == 0) continue;
    kernel(run, {in.data() + at, out.data() + at, room.data()});
    at += run.elements * format.bytes;
  }
  scratch.shrink();
}

}  // namespace

void difference_forward_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out) {
  const PlainMath math(format);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    std::vector<uint64_t> values(run.elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = math.ordered(load_number(in.data() + at + i * format.bytes, format));
    }
    for (size_t pass = 0; pass < run.stride_count; ++pass) {
      for (size_t i = values.size(); i-- > run.strides[pass];) {
        values[i] = (values[i] - values[i - run.strides[pass]]) & math.mask;
      }
    }
    for (uint64_t value : values) {
      store_number(out.data() + at, {.bytes = format.bytes}, math.zigzag(value));
      at += format.bytes;
    }
  }
}

void difference_inverse_plain(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in,
                              MutableByteSpan out) {
  const PlainMath math(format);
  size_t at = 0;
  for (const DifferenceRun& run : runs) {
    std::vector<uint64_t> values(run.elements);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = math.unzigzag(load_number(in.data() + at + i * format.bytes, {.bytes = format.bytes}));
    }
    for (size_t pass = run.stride_count; pass-- > 0;) {
      for (size_t i = run.strides[pass]; i < values.size(); ++i) {
        values[i] = (values[i] + values[i - run.strides[pass]]) & math.mask;
      }
    }
    for (uint64_t value : values) {
      store_number(out.data() + at, format, math.unordered(value));
      at += format.bytes;
    }
  }
}

void difference_forward(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return difference_forward_plain(format, runs, in, out);
  for_each_run(format, runs, in, out, true);
}

void difference_inverse(NumberFormat format, std::span<const DifferenceRun> runs, ByteSpan in, MutableByteSpan out) {
  if constexpr (std::endian::native == std::endian::big) return difference_inverse_plain(format, runs, in, out);
  for_each_run(format, runs, in, out, false);
}

namespace {

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
