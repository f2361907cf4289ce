#include "codec/plane_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "codec/kernels.h"

#if VARVE_HAS_AVX2_KERNELS
#include <immintrin.h>
#define VARVE_TARGET_AVX512 \
  __attribute__((target("avx2,bmi,bmi2,lzcnt,gfni,avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")))
#endif

namespace varve::kernels {

namespace {

// As the format defines it

size_t pack_plain(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  size_t packed_bytes = 0;
  for (size_t group = 0; group < in.size() / (kPlaneGroup * number_bytes); ++group) {
    const std::byte* const numbers = in.data() + group * kPlaneGroup * number_bytes;
    std::array<std::byte, 64> planes{};
    size_t width = 0;
    for (size_t plane = 0; plane < 8 * number_bytes; ++plane) {
      for (size_t i = 0; i < kPlaneGroup; ++i) {
        const std::byte bit = numbers[i * number_bytes + plane / 8] >> (plane % 8) & std::byte{1};
        planes[plane] |= bit << i;
      }
      if (planes[plane] != std::byte{0}) width = plane + 1;
    }
    widths[group] = static_cast<std::byte>(width);
    std::copy_n(planes.begin(), width, out.begin() + static_cast<ptrdiff_t>(packed_bytes));
    packed_bytes += width;
  }
  return packed_bytes;
}

void unpack_plain(size_t number_bytes, ByteSpan widths, ByteSpan planes, MutableByteSpan out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  size_t at = 0;
  for (size_t group = 0; group < widths.size(); ++group) {
    std::byte* const numbers = out.data() + group * kPlaneGroup * number_bytes;
    const auto width = static_cast<size_t>(widths[group]);
    for (size_t plane = 0; plane < width; ++plane) {
      for (size_t i = 0; i < kPlaneGroup; ++i) {
        numbers[i * number_bytes + plane / 8] |= (planes[at + plane] >> i & std::byte{1}) << (plane % 8);
      }
    }
    at += width;
  }
}

// In words of eight bytes, one of each number

/// Transposes the 8 × 8 bits of a word: bit c of byte r goes to bit r of byte c. Hacker's Delight, 7-3.
inline uint64_t transposed(uint64_t x) {
  uint64_t swap = (x ^ (x >> 7)) & 0x00aa00aa00aa00aaULL;
  x ^= swap ^ (swap << 7);
  swap = (x ^ (x >> 14)) & 0x0000cccc0000ccccULL;
  x ^= swap ^ (swap << 14);
  swap = (x ^ (x >> 28)) & 0x00000000f0f0f0f0ULL;
  return x ^ swap ^ (swap << 28);
}

template <class T>
size_t pack_words_of(ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  std::byte* to = out.data();
  for (size_t group = 0; group < widths.size(); ++group) {
    std::array<T, kPlaneGroup> numbers;
    std::memcpy(numbers.data(), in.data() + group * sizeof numbers, sizeof numbers);
    T any = 0;
    for (const T number : numbers) any = static_cast<T>(any | number);
    const auto width = static_cast<size_t>(std::bit_width(any));
    widths[group] = static_cast<std::byte>(width);
    for (size_t j = 0; 8 * j < width; ++j) {
      uint64_t word = 0;
      for (size_t i = 0; i < kPlaneGroup; ++i) word |= static_cast<uint64_t>(numbers[i] >> (8 * j) & 0xff) << (8 * i);
      word = transposed(word);
      std::memcpy(to + 8 * j, &word, sizeof word);
    }
    to += width;
  }
  return static_cast<size_t>(to - out.data());
}

/// `planes` can be read kPlaneSlack bytes past its end. Goes on until so many groups are done, or the planes end.
template <class T>
void unpack_words_of(std::span<const std::byte> widths, const std::byte* planes, std::byte* out) {
  for (const std::byte group_width : widths) {
    const auto width = static_cast<size_t>(group_width);
    std::array<T, kPlaneGroup> numbers{};
    for (size_t j = 0; 8 * j < width; ++j) {
      uint64_t word;
      std::memcpy(&word, planes + 8 * j, sizeof word);
      if (width - 8 * j < 8) word &= (uint64_t{1} << (8 * (width - 8 * j))) - 1;
      word = transposed(word);
      for (size_t i = 0; i < kPlaneGroup; ++i) {
        numbers[i] = static_cast<T>(numbers[i] | static_cast<T>(static_cast<T>(word >> (8 * i) & 0xff) << (8 * j)));
      }
    }
    std::memcpy(out, numbers.data(), sizeof numbers);
    out += sizeof numbers;
    planes += width;
  }
}

size_t pack_words(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  switch (number_bytes) {
    case 2: return pack_words_of<uint16_t>(in, widths, out);
    case 4: return pack_words_of<uint32_t>(in, widths, out);
    case 8: return pack_words_of<uint64_t>(in, widths, out);
    default: return pack_words_of<uint8_t>(in, widths, out);
  }
}

using UnpackFreely = void (*)(size_t number_bytes, ByteSpan widths, const std::byte* planes, std::byte* out);

/// Unpacks with a kernel that reads up to kPlaneSlack bytes from where a group's planes begin: the last groups from a
/// copy.
template <UnpackFreely kUnpack>
void unpack_within(size_t number_bytes, ByteSpan widths, ByteSpan planes, MutableByteSpan out) {
  // From the end: which groups begin less than kPlaneSlack bytes before it.
  size_t first = widths.size(), last_bytes = 0;
  while (first > 0 && last_bytes + static_cast<size_t>(widths[first - 1]) <= kPlaneSlack) {
    last_bytes += static_cast<size_t>(widths[--first]);
  }
  kUnpack(number_bytes, widths.first(first), planes.data(), out.data());
  std::array<std::byte, 2 * kPlaneSlack> last{};
  if (last_bytes > 0) std::memcpy(last.data(), planes.data() + planes.size() - last_bytes, last_bytes);
  kUnpack(number_bytes, widths.subspan(first), last.data(), out.data() + first * kPlaneGroup * number_bytes);
}

void unpack_words(size_t number_bytes, ByteSpan widths, const std::byte* planes, std::byte* out) {
  switch (number_bytes) {
    case 2: return unpack_words_of<uint16_t>(widths, planes, out);
    case 4: return unpack_words_of<uint32_t>(widths, planes, out);
    case 8: return unpack_words_of<uint64_t>(widths, planes, out);
    default: return unpack_words_of<uint8_t>(widths, planes, out);
  }
}

#if VARVE_HAS_AVX2_KERNELS

/// transposed() of each of four words.
VARVE_AVX2_BODY __m256i transposed_words(__m256i x) {
  const auto step = [&x](__m256i mask, int shift) VARVE_TARGET_AVX2 {
    const __m256i swap = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi64(x, shift)), mask);
    x = _mm256_xor_si256(x, _mm256_xor_si256(swap, _mm256_slli_epi64(swap, shift)));
  };
  step(_mm256_set1_epi64x(0x00aa00aa00aa00aa), 7);
  step(_mm256_set1_epi64x(0x0000cccc0000cccc), 14);
  step(_mm256_set1_epi64x(0x00000000f0f0f0f0), 28);
  return x;
}

VARVE_AVX2_BODY __m256i load_avx2(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
VARVE_AVX2_BODY void store_avx2(std::byte* to, __m256i vector) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), vector);
}
/// A bit for each byte that is not zero.
VARVE_AVX2_BODY uint32_t bytes_set(__m256i vector) {
  return ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(vector, _mm256_setzero_si256())));
}
/// The bytes of each half in this order.
VARVE_AVX2_BODY __m256i in_order(__m256i vector, uint64_t first_indices, uint64_t last_indices) {
  const auto first = static_cast<int64_t>(first_indices), last = static_cast<int64_t>(last_indices);
  return _mm256_shuffle_epi8(vector, _mm256_set_epi64x(last, first, last, first));
}

// The numbers of a group to words of one byte of each, and back. Indices are bytes, the first in the lowest.

constexpr uint64_t kRowsOfFour[] = {0x0d0905010c080400, 0x0f0b07030e0a0602};   // 4 × 4 bytes transposed
constexpr uint64_t kEvenThenOdd[] = {0x0e0c0a0806040200, 0x0f0d0b0907050301};  // and kInTurns is the inverse
constexpr uint64_t kInTurns[] = {0x0b030a0209010800, 0x0f070e060d050c04};
constexpr uint64_t kEvenThenOddPairs[] = {0x0d0c090805040100, 0x0f0e0b0a07060302};

VARVE_AVX2_BODY __m256i words_of_4(__m256i numbers) {
  const __m256i rows = in_order(numbers, kRowsOfFour[0], kRowsOfFour[1]);
  return _mm256_permutevar8x32_epi32(rows, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
VARVE_AVX2_BODY __m256i numbers_of_4(__m256i words) {
  const __m256i rows = _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return in_order(rows, kRowsOfFour[0], kRowsOfFour[1]);
}

struct TwoVectors {
  __m256i first, second;
};
VARVE_AVX2_BODY TwoVectors words_of_8(__m256i first, __m256i second) {
  // Byte j of two numbers beside each other, then of four, then of all.
  first = in_order(first, kInTurns[0], kInTurns[1]);
  second = in_order(second, kInTurns[0], kInTurns[1]);
  const __m256i even = _mm256_permute2x128_si256(first, second, 0x20);
  const __m256i odd = _mm256_permute2x128_si256(first, second, 0x31);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return {_mm256_permutevar8x32_epi32(_mm256_unpacklo_epi16(even, odd), order),
          _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi16(even, odd), order)};
}
VARVE_AVX2_BODY TwoVectors numbers_of_8(__m256i low, __m256i high) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  low = in_order(_mm256_permutevar8x32_epi32(low, order), kEvenThenOddPairs[0], kEvenThenOddPairs[1]);
  high = in_order(_mm256_permutevar8x32_epi32(high, order), kEvenThenOddPairs[0], kEvenThenOddPairs[1]);
  const __m256i even = _mm256_unpacklo_epi64(low, high);
  const __m256i odd = _mm256_unpackhi_epi64(low, high);
  return {in_order(_mm256_permute2x128_si256(even, odd, 0x20), kEvenThenOdd[0], kEvenThenOdd[1]),
          in_order(_mm256_permute2x128_si256(even, odd, 0x31), kEvenThenOdd[0], kEvenThenOdd[1])};
}

/// Of the bytes that lie at `from`, the first `width`, the others zero; 32 of them from the one numbered `begin`.
VARVE_AVX2_BODY __m256i first_bytes(const std::byte* from, size_t width, size_t begin = 0) {
  static constexpr auto mask = [] {
    std::array<uint8_t, 128> bytes{};
    std::fill_n(bytes.begin(), 64, uint8_t{0xff});
    return bytes;
  }();
  const auto* kept = reinterpret_cast<const __m256i*>(mask.data() + 64 - width + begin);
  return _mm256_and_si256(load_avx2(from + begin), _mm256_loadu_si256(kept));
}

VARVE_TARGET_AVX2 size_t pack_avx2(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  const std::byte* from = in.data();
  std::byte* to = out.data();
  if (number_bytes == 8) {
    for (std::byte& group_width : widths) {
      const TwoVectors words = words_of_8(load_avx2(from), load_avx2(from + 32));
      const __m256i low = transposed_words(words.first), high = transposed_words(words.second);
      store_avx2(to, low);
      store_avx2(to + 32, high);
      const int width = std::bit_width(static_cast<uint64_t>(bytes_set(high)) << 32 | bytes_set(low));
      group_width = static_cast<std::byte>(width);
      to += width;
      from += 64;
    }
    return static_cast<size_t>(to - out.data());
  }
  if (number_bytes == 4) {
    for (std::byte& group_width : widths) {
      const __m256i planes = transposed_words(words_of_4(load_avx2(from)));
      store_avx2(to, planes);
      const int width = std::bit_width(bytes_set(planes));
      group_width = static_cast<std::byte>(width);
      to += width;
      from += 32;
    }
    return static_cast<size_t>(to - out.data());
  }
  size_t group = 0;
  if (number_bytes == 2) {
    for (; group + 2 <= widths.size(); group += 2, from += 32) {
      const __m256i planes = transposed_words(in_order(load_avx2(from), kEvenThenOdd[0], kEvenThenOdd[1]));
      const uint32_t set = bytes_set(planes);
      const int first = std::bit_width(set & 0xffff), second = std::bit_width(set >> 16);
      store_avx2(to, planes);
      store_avx2(to + first, _mm256_permute2x128_si256(planes, planes, 0x11));
      to += first + second;
      widths[group] = static_cast<std::byte>(first);
      widths[group + 1] = static_cast<std::byte>(second);
    }
  } else {
    for (; group + 4 <= widths.size(); group += 4, from += 32) {
      std::array<uint64_t, 4> words;
      store_avx2(reinterpret_cast<std::byte*>(words.data()), transposed_words(load_avx2(from)));
      for (size_t i = 0; i < words.size(); ++i) {
        const int width = (std::bit_width(words[i]) + 7) / 8;
        std::memcpy(to, &words[i], sizeof words[i]);
        to += width;
        widths[group + i] = static_cast<std::byte>(width);
      }
    }
  }
  const auto packed_bytes = static_cast<size_t>(to - out.data());
  return packed_bytes + pack_words(number_bytes, in.subspan(group * kPlaneGroup * number_bytes), widths.subspan(group),
                                   out.subspan(packed_bytes));
}

VARVE_TARGET_AVX2 void unpack_freely_avx2(size_t number_bytes, ByteSpan widths, const std::byte* planes,
                                          std::byte* out) {
  if (number_bytes == 8) {
    for (const std::byte group_width : widths) {
      const auto width = static_cast<size_t>(group_width);
      const TwoVectors numbers =
          numbers_of_8(transposed_words(first_bytes(planes, width)), transposed_words(first_bytes(planes, width, 32)));
      store_avx2(out, numbers.first);
      store_avx2(out + 32, numbers.second);
      planes += width;
      out += 64;
    }
  } else if (number_bytes == 4) {
    for (const std::byte group_width : widths) {
      const auto width = static_cast<size_t>(group_width);
      store_avx2(out, numbers_of_4(transposed_words(first_bytes(planes, width))));
      planes += width;
      out += 32;
    }
  } else if (number_bytes == 2) {
    size_t group = 0;
    for (; group + 2 <= widths.size(); group += 2, out += 32) {
      const auto first = static_cast<size_t>(widths[group]), second = static_cast<size_t>(widths[group + 1]);
      const __m256i low = first_bytes(planes, first), high = first_bytes(planes + first, second);
      const __m256i numbers = transposed_words(_mm256_permute2x128_si256(low, high, 0x20));
      store_avx2(out, in_order(numbers, kInTurns[0], kInTurns[1]));
      planes += first + second;
    }
    unpack_words(number_bytes, widths.subspan(group), planes, out);
  } else {
    size_t group = 0;
    for (; group + 4 <= widths.size(); group += 4, out += 32) {
      std::array<uint64_t, 4> words;
      for (size_t i = 0; i < words.size(); ++i) {
        const auto width = static_cast<uint32_t>(widths[group + i]);
        std::memcpy(&words[i], planes, sizeof words[i]);
        words[i] = _bzhi_u64(words[i], 8 * width);
        planes += width;
      }
      store_avx2(out, transposed_words(load_avx2(reinterpret_cast<const std::byte*>(words.data()))));
    }
    unpack_words(number_bytes, widths.subspan(group), planes, out);
  }
}

#define VARVE_AVX512_BODY VARVE_TARGET_AVX512 inline __attribute__((always_inline))

/// Which byte of 64 goes where, by a function of the place.
template <class Source>
constexpr std::array<uint8_t, 64> order_of_bytes(Source source) {
  std::array<uint8_t, 64> order{};
  for (size_t place = 0; place < 64; ++place) order[place] = static_cast<uint8_t>(source(place));
  return order;
}
/// The product of bits with a matrix of eight rows takes the first row for the highest bit of what it gives, so that
/// words go in from the last byte to the first.
constexpr auto kWordsOf8 = order_of_bytes([](size_t place) { return (7 - place % 8) * 8 + place / 8; });
constexpr auto kNumbersOf8 = order_of_bytes([](size_t place) { return place % 8 * 8 + place / 8; });
constexpr auto kWordsOf4 =
    order_of_bytes([](size_t place) { return place / 32 * 32 + (7 - place % 8) * 4 + place / 8 % 4; });
constexpr auto kNumbersOf4 =
    order_of_bytes([](size_t place) { return place / 32 * 32 + place % 4 * 8 + place / 4 % 8; });
constexpr auto kWordsReversed = order_of_bytes([](size_t place) { return place / 8 * 8 + 7 - place % 8; });

VARVE_AVX512_BODY __m512i load_order(const std::array<uint8_t, 64>& order) { return _mm512_loadu_si512(order.data()); }
/// Of eight words whose bytes lie in reverse, each transposed.
VARVE_AVX512_BODY __m512i transposed_reversed(__m512i words) {
  return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201)), words, 0);
}

VARVE_TARGET_AVX512 size_t pack_avx512(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  if (number_bytes < 4) return pack_avx2(number_bytes, in, widths, out);
  const std::byte* from = in.data();
  std::byte* to = out.data();
  if (number_bytes == 8) {
    const __m512i order = load_order(kWordsOf8);
    for (std::byte& group_width : widths) {
      const __m512i planes = transposed_reversed(_mm512_permutexvar_epi8(order, _mm512_loadu_si512(from)));
      _mm512_storeu_si512(to, planes);
      const int width = std::bit_width(static_cast<uint64_t>(_mm512_test_epi8_mask(planes, planes)));
      group_width = static_cast<std::byte>(width);
      to += width;
      from += 64;
    }
    return static_cast<size_t>(to - out.data());
  }
  const __m512i order = load_order(kWordsOf4);
  size_t group = 0;
  for (; group + 2 <= widths.size(); group += 2) {
    const __m512i planes = transposed_reversed(_mm512_permutexvar_epi8(order, _mm512_loadu_si512(from)));
    const auto set = static_cast<uint64_t>(_mm512_test_epi8_mask(planes, planes));
    const int first = std::bit_width(static_cast<uint32_t>(set)), second = std::bit_width(set >> 32);
    store_avx2(to, _mm512_castsi512_si256(planes));
    to += first;
    store_avx2(to, _mm512_extracti64x4_epi64(planes, 1));
    to += second;
    widths[group] = static_cast<std::byte>(first);
    widths[group + 1] = static_cast<std::byte>(second);
    from += 64;
  }
  const auto packed_bytes = static_cast<size_t>(to - out.data());
  return packed_bytes +
         pack_avx2(number_bytes, in.subspan(group * 32), widths.subspan(group), out.subspan(packed_bytes));
}

VARVE_TARGET_AVX512 void unpack_freely_avx512(size_t number_bytes, ByteSpan widths, const std::byte* planes,
                                              std::byte* out) {
  const __m512i reversed = load_order(kWordsReversed);
  if (number_bytes == 8) {
    const __m512i order = load_order(kNumbersOf8);
    for (const std::byte group_width : widths) {
      const auto width = static_cast<uint32_t>(group_width);
      const __m512i words = _mm512_maskz_loadu_epi8(_bzhi_u64(~uint64_t{0}, width), planes);
      const __m512i transposed = transposed_reversed(_mm512_shuffle_epi8(words, reversed));
      _mm512_storeu_si512(out, _mm512_permutexvar_epi8(order, transposed));
      planes += width;
      out += 64;
    }
    return;
  }
  size_t group = 0;
  if (number_bytes == 4) {
    const __m512i order = load_order(kNumbersOf4);
    for (; group + 2 <= widths.size(); group += 2) {
      const auto first = static_cast<uint32_t>(widths[group]), second = static_cast<uint32_t>(widths[group + 1]);
      const __m256i low = _mm256_maskz_loadu_epi8(_bzhi_u32(~uint32_t{0}, first), planes);
      planes += first;
      const __m256i high = _mm256_maskz_loadu_epi8(_bzhi_u32(~uint32_t{0}, second), planes);
      planes += second;
      const __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
      const __m512i transposed = transposed_reversed(_mm512_shuffle_epi8(words, reversed));
      _mm512_storeu_si512(out, _mm512_permutexvar_epi8(order, transposed));
      out += 64;
    }
  }
  unpack_freely_avx2(number_bytes, widths.subspan(group), planes, out);
}

bool machine_has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
  return has && machine_has_avx2();
}

#endif

std::vector<PlaneKernels> kernels_of_machine() {
  std::vector<PlaneKernels> kernels = {{"plain", pack_plain, unpack_plain}};
  if constexpr (std::endian::native == std::endian::big) return kernels;
  kernels.push_back({"words", pack_words, unpack_within<unpack_words>});
#if VARVE_HAS_AVX2_KERNELS
  if (machine_has_avx2()) kernels.push_back({"avx2", pack_avx2, unpack_within<unpack_freely_avx2>});
  if (machine_has_avx512()) kernels.push_back({"avx512", pack_avx512, unpack_within<unpack_freely_avx512>});
#endif
  return kernels;
}

}  // namespace

std::span<const PlaneKernels> plane_kernels() {
  static const auto& kernels = *new std::vector<PlaneKernels>(kernels_of_machine());  // as posix_file_system()
  return kernels;
}

size_t pack_planes(size_t number_bytes, ByteSpan in, MutableByteSpan widths, MutableByteSpan out) {
  return plane_kernels().back().pack(number_bytes, in, widths, out);
}

void unpack_planes(size_t number_bytes, ByteSpan widths, ByteSpan planes, MutableByteSpan out) {
  plane_kernels().back().unpack(number_bytes, widths, planes, out);
}

uint64_t planes_bytes(size_t number_bytes, ByteSpan widths) {
  uint64_t sum = 0;
  uint8_t widest = 0;
  for (const std::byte width : widths) {
    sum += static_cast<uint8_t>(width);
    widest = std::max(widest, static_cast<uint8_t>(width));
  }
  return widest <= 8 * number_bytes ? sum : UINT64_MAX;
}

}  // namespace varve::kernels
