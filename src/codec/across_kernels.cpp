#include "codec/across_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "codec/default_arithmetic.h"
#include "codec/number_bits.h"

#if VARVE_HAS_AVX2_KERNELS
#include <immintrin.h>
#endif

// A product and a quotient, each rounded by itself, are the same wherever IEEE 754 is kept.
static_assert(FLT_EVAL_METHOD == 0, "floats are computed as floats");

namespace varve::kernels {

namespace {

template <class T>
using FloatOf = std::conditional_t<sizeof(T) == 4, float, double>;
template <class T>
constexpr T kExponent = sizeof(T) == 4 ? static_cast<T>(0x7f800000u) : static_cast<T>(0x7ff0000000000000u);

/// Codes are little-endian everywhere.
constexpr bool kBigMachine = std::endian::native == std::endian::big;
template <class T>
VARVE_KERNEL_BODY T code_at(const std::byte* from, size_t index) {
  const T code = load<T>(from, index);
  return from_zigzag(kBigMachine ? swap_bytes(code) : code);
}
template <class T>
VARVE_KERNEL_BODY void put_code(std::byte* to, size_t index, T difference) {
  const T code = to_zigzag(difference);
  store(to, index, kBigMachine ? swap_bytes(code) : code);
}

template <class T, bool kSwap>
VARVE_KERNEL_BODY T bits_at(const std::byte* from, size_t index) {
  const T value = load<T>(from, index);
  return kSwap ? swap_bytes(value) : value;
}

/// What is expected after `before`; what is no number, or too large for one, is expected to be as the one before.
template <class T>
VARVE_KERNEL_BODY T expected_after(T before, FloatOf<T> quotient) {
  const T product = std::bit_cast<T>(static_cast<FloatOf<T>>(std::bit_cast<FloatOf<T>>(before) * quotient));
  return (product & kExponent<T>) == kExponent<T> ? before : product;
}

size_t lane_length(size_t count) { return (count + kQuotientLanes - 1) / kQuotientLanes; }

template <class T, bool kSwap>
VARVE_KERNEL_BODY void begin_lane_forward(size_t begin, const std::byte* numbers, const std::byte* reference,
                                          std::byte* out) {
  put_code(
      out, begin,
      static_cast<T>(to_ordered(bits_at<T, kSwap>(numbers, begin)) - to_ordered(bits_at<T, kSwap>(reference, begin))));
}
template <class T, bool kSwap>
VARVE_KERNEL_BODY void end_lane_forward(size_t from, size_t end, const std::byte* numbers, const std::byte* reference,
                                        std::byte* out) {
  for (size_t i = from; i < end; ++i) {
    const auto now = std::bit_cast<FloatOf<T>>(bits_at<T, kSwap>(reference, i));
    const auto then = std::bit_cast<FloatOf<T>>(bits_at<T, kSwap>(reference, i - 1));
    const T expected = expected_after<T>(bits_at<T, kSwap>(numbers, i - 1), now / then);
    put_code(out, i, static_cast<T>(to_ordered(bits_at<T, kSwap>(numbers, i)) - to_ordered(expected)));
  }
}

template <class T, bool kSwap>
void quotient_forward_baseline(size_t count, const std::byte* numbers, const std::byte* reference, std::byte* out) {
  const size_t length = lane_length(count);
  for (size_t begin = 0; begin < count; begin += length) {
    begin_lane_forward<T, kSwap>(begin, numbers, reference, out);
    end_lane_forward<T, kSwap>(begin + 1, std::min(begin + length, count), numbers, reference, out);
  }
}

/// The numbers that lanes begin with, of those lanes that there are.
template <class T, bool kSwap>
VARVE_KERNEL_BODY std::array<T, kQuotientLanes> begin_lanes(size_t count, const std::byte* codes,
                                                            const std::byte* reference, std::byte* out) {
  std::array<T, kQuotientLanes> first{};
  const size_t length = lane_length(count);
  for (size_t lane = 0; lane < kQuotientLanes && lane * length < count; ++lane) {
    const size_t i = lane * length;
    first[lane] = from_ordered(static_cast<T>(to_ordered(bits_at<T, kSwap>(reference, i)) + code_at<T>(codes, i)));
    store(out, i, kSwap ? swap_bytes(first[lane]) : first[lane]);
  }
  return first;
}

/// Lanes from their number `from` on; `before` has what is before that in each.
template <class T, bool kSwap>
VARVE_KERNEL_BODY void end_lanes(std::array<T, kQuotientLanes> before, size_t from, size_t count,
                                 const std::byte* __restrict codes, const std::byte* __restrict reference,
                                 std::byte* __restrict out) {
  using Float = FloatOf<T>;
  const size_t length = lane_length(count);
  for (size_t at = from; at < length; ++at) {
    for (size_t lane = 0, i = at; lane < kQuotientLanes && i < count; ++lane, i += length) {
      const Float quotient = std::bit_cast<Float>(bits_at<T, kSwap>(reference, i)) /
                             std::bit_cast<Float>(bits_at<T, kSwap>(reference, i - 1));
      const T expected = expected_after<T>(before[lane], quotient);
      before[lane] = from_ordered(static_cast<T>(to_ordered(expected) + code_at<T>(codes, i)));
      store(out, i, kSwap ? swap_bytes(before[lane]) : before[lane]);
    }
  }
}

template <class T, bool kSwap>
void quotient_inverse_baseline(size_t count, const std::byte* codes, const std::byte* reference, std::byte* out) {
  end_lanes<T, kSwap>(begin_lanes<T, kSwap>(count, codes, reference, out), 1, count, codes, reference, out);
}

#if VARVE_HAS_AVX2_KERNELS

// All lanes side by side, one step of them in a vector (4 bytes) or two: some steps of each lane are loaded as they
// lie, and turned.

/// What vectors of numbers of so many bytes are computed with.
template <class T>
struct Vectors;

template <>
struct Vectors<uint32_t> {
  static constexpr size_t kSteps = 8, kVectors = 1;
  /// Rows of a matrix of 8 columns.
  static VARVE_AVX2_BODY void turn(__m256i (&rows)[8]) {
    __m256i pairs[8], fours[8];
    for (size_t i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4) {
      for (size_t j = 0; j < 2; ++j) {
        fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
        fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
      rows[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
    }
  }
  static VARVE_AVX2_BODY __m256i swap(__m256i numbers) {
    return _mm256_shuffle_epi8(numbers, _mm256_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 3, 2, 1,
                                                         0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
  }
  static VARVE_AVX2_BODY __m256i all(uint32_t value) { return _mm256_set1_epi32(static_cast<int>(value)); }
  static VARVE_AVX2_BODY __m256i signs(__m256i numbers) { return _mm256_srai_epi32(numbers, 31); }
  static VARVE_AVX2_BODY __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
  static VARVE_AVX2_BODY __m256i difference(__m256i a, __m256i b) { return _mm256_sub_epi32(a, b); }
  static VARVE_AVX2_BODY __m256i half(__m256i codes) { return _mm256_srli_epi32(codes, 1); }
  static VARVE_AVX2_BODY __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi32(a, b); }
  static VARVE_AVX2_BODY __m256i quotient(__m256i a, __m256i b) {
    return _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
  }
  static VARVE_AVX2_BODY __m256i product(__m256i a, __m256i b) {
    return _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)));
  }
};

template <>
struct Vectors<uint64_t> {
  static constexpr size_t kSteps = 4, kVectors = 2;
  static VARVE_AVX2_BODY void turn(__m256i (&rows)[4]) {
    const __m256i first = _mm256_unpacklo_epi64(rows[0], rows[1]), second = _mm256_unpackhi_epi64(rows[0], rows[1]);
    const __m256i third = _mm256_unpacklo_epi64(rows[2], rows[3]), fourth = _mm256_unpackhi_epi64(rows[2], rows[3]);
    rows[0] = _mm256_permute2x128_si256(first, third, 0x20);
    rows[1] = _mm256_permute2x128_si256(second, fourth, 0x20);
    rows[2] = _mm256_permute2x128_si256(first, third, 0x31);
    rows[3] = _mm256_permute2x128_si256(second, fourth, 0x31);
  }
  static VARVE_AVX2_BODY __m256i swap(__m256i numbers) {
    return _mm256_shuffle_epi8(numbers, _mm256_setr_epi8(7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5,
                                                         4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8));
  }
  static VARVE_AVX2_BODY __m256i all(uint64_t value) { return _mm256_set1_epi64x(static_cast<int64_t>(value)); }
  static VARVE_AVX2_BODY __m256i signs(__m256i numbers) { return _mm256_cmpgt_epi64(_mm256_setzero_si256(), numbers); }
  static VARVE_AVX2_BODY __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }
  static VARVE_AVX2_BODY __m256i difference(__m256i a, __m256i b) { return _mm256_sub_epi64(a, b); }
  static VARVE_AVX2_BODY __m256i half(__m256i codes) { return _mm256_srli_epi64(codes, 1); }
  static VARVE_AVX2_BODY __m256i equal(__m256i a, __m256i b) { return _mm256_cmpeq_epi64(a, b); }
  static VARVE_AVX2_BODY __m256i quotient(__m256i a, __m256i b) {
    return _mm256_castpd_si256(_mm256_div_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
  }
  static VARVE_AVX2_BODY __m256i product(__m256i a, __m256i b) {
    return _mm256_castpd_si256(_mm256_mul_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
  }
};

/// to_ordered(), from_ordered(), from_zigzag() and to_zigzag() of a vector.
template <class T>
VARVE_AVX2_BODY __m256i to_ordered_avx2(__m256i bits) {
  return _mm256_xor_si256(bits, _mm256_or_si256(Vectors<T>::signs(bits), Vectors<T>::all(kSign<T>)));
}
template <class T>
VARVE_AVX2_BODY __m256i from_ordered_avx2(__m256i ordered) {
  const __m256i all = Vectors<T>::all(static_cast<T>(~T{0}));
  return _mm256_xor_si256(
      ordered, _mm256_or_si256(_mm256_xor_si256(Vectors<T>::signs(ordered), all), Vectors<T>::all(kSign<T>)));
}
template <class T>
VARVE_AVX2_BODY __m256i from_zigzag_avx2(__m256i codes) {
  const __m256i odd = _mm256_and_si256(codes, Vectors<T>::all(1));
  return _mm256_xor_si256(Vectors<T>::half(codes), Vectors<T>::difference(_mm256_setzero_si256(), odd));
}
template <class T>
VARVE_AVX2_BODY __m256i to_zigzag_avx2(__m256i differences) {
  return _mm256_xor_si256(Vectors<T>::sum(differences, differences), Vectors<T>::signs(differences));
}
template <class T, bool kSwap>
VARVE_AVX2_BODY __m256i load_avx2(const std::byte* from, size_t index) {
  const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + index * sizeof(T)));
  return kSwap ? Vectors<T>::swap(numbers) : numbers;
}
/// Which of these are no numbers, or no finite ones.
template <class T>
VARVE_AVX2_BODY __m256i not_finite_avx2(__m256i bits) {
  const __m256i exponent = Vectors<T>::all(kExponent<T>);
  return Vectors<T>::equal(_mm256_and_si256(bits, exponent), exponent);
}

template <class T, bool kSwap>
VARVE_TARGET_AVX2 void quotient_forward_avx2(size_t count, const std::byte* numbers, const std::byte* reference,
                                             std::byte* out) {
  constexpr size_t step = sizeof(__m256i) / sizeof(T);
  const size_t length = lane_length(count);
  for (size_t begin = 0; begin < count; begin += length) {
    const size_t end = std::min(begin + length, count);
    begin_lane_forward<T, kSwap>(begin, numbers, reference, out);
    size_t i = begin + 1;
    for (; i + step <= end; i += step) {
      const __m256i before = load_avx2<T, kSwap>(numbers, i - 1);
      const __m256i quotient =
          Vectors<T>::quotient(load_avx2<T, kSwap>(reference, i), load_avx2<T, kSwap>(reference, i - 1));
      const __m256i product = Vectors<T>::product(before, quotient);
      const __m256i expected = _mm256_blendv_epi8(product, before, not_finite_avx2<T>(product));
      const __m256i difference =
          Vectors<T>::difference(to_ordered_avx2<T>(load_avx2<T, kSwap>(numbers, i)), to_ordered_avx2<T>(expected));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * sizeof(T)), to_zigzag_avx2<T>(difference));
    }
    end_lane_forward<T, kSwap>(i, end, numbers, reference, out);
  }
}

/// Of each lane, the next steps from its number `at` on; a vector has the same step of 8, or of 4, lanes.
template <class T>
VARVE_AVX2_BODY void load_lanes(const std::byte* from, size_t length, size_t at,
                                __m256i (&steps)[Vectors<T>::kVectors][Vectors<T>::kSteps]) {
  for (size_t half = 0; half < Vectors<T>::kVectors; ++half) {
    for (size_t i = 0; i < Vectors<T>::kSteps; ++i) {
      const std::byte* const lane = from + ((half * Vectors<T>::kSteps + i) * length + at) * sizeof(T);
      steps[half][i] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lane));
    }
    Vectors<T>::turn(steps[half]);
  }
}

template <class T, bool kSwap>
VARVE_TARGET_AVX2 void quotient_inverse_avx2(size_t count, const std::byte* codes, const std::byte* reference,
                                             std::byte* out) {
  const size_t length = lane_length(count);
  std::array<T, kQuotientLanes> last = begin_lanes<T, kSwap>(count, codes, reference, out);
  // The last lane is the shortest, or is none.
  const size_t whole = count > (kQuotientLanes - 1) * length ? count - (kQuotientLanes - 1) * length : 0;
  __m256i before[Vectors<T>::kVectors], then[Vectors<T>::kVectors];
  for (size_t half = 0; half < Vectors<T>::kVectors; ++half) {
    std::array<T, Vectors<T>::kSteps> first{};
    for (size_t i = 0; whole > 0 && i < first.size(); ++i)
      first[i] = bits_at<T, kSwap>(reference, (half * Vectors<T>::kSteps + i) * length);
    then[half] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first.data()));
    before[half] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(last.data() + half * Vectors<T>::kSteps));
  }
  size_t at = 1;
  for (; at + Vectors<T>::kSteps <= whole; at += Vectors<T>::kSteps) {
    __m256i code[Vectors<T>::kVectors][Vectors<T>::kSteps], quotient[Vectors<T>::kVectors][Vectors<T>::kSteps];
    load_lanes<T>(codes, length, at, code);
    load_lanes<T>(reference, length, at, quotient);
    for (size_t half = 0; half < Vectors<T>::kVectors; ++half) {
      for (size_t i = 0; i < Vectors<T>::kSteps; ++i) {
        code[half][i] = from_zigzag_avx2<T>(code[half][i]);
        const __m256i now = kSwap ? Vectors<T>::swap(quotient[half][i]) : quotient[half][i];
        quotient[half][i] = Vectors<T>::quotient(now, then[half]);
        then[half] = now;
      }
    }
    for (size_t i = 0; i < Vectors<T>::kSteps; ++i) {
      for (size_t half = 0; half < Vectors<T>::kVectors; ++half) {
        const __m256i product = Vectors<T>::product(before[half], quotient[half][i]);
        // Both are made, as that takes less long than to wait for which it is.
        const __m256i ordered = _mm256_blendv_epi8(Vectors<T>::sum(to_ordered_avx2<T>(product), code[half][i]),
                                                   Vectors<T>::sum(to_ordered_avx2<T>(before[half]), code[half][i]),
                                                   not_finite_avx2<T>(product));
        before[half] = from_ordered_avx2<T>(ordered);
        code[half][i] = kSwap ? Vectors<T>::swap(before[half]) : before[half];
      }
    }
    for (size_t half = 0; half < Vectors<T>::kVectors; ++half) {
      Vectors<T>::turn(code[half]);
      for (size_t i = 0; i < Vectors<T>::kSteps; ++i) {
        std::byte* const lane = out + ((half * Vectors<T>::kSteps + i) * length + at) * sizeof(T);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(lane), code[half][i]);
      }
    }
  }
  for (size_t half = 0; half < Vectors<T>::kVectors; ++half)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(last.data() + half * Vectors<T>::kSteps), before[half]);
  end_lanes<T, kSwap>(last, at, count, codes, reference, out);
}

#endif

template <class T, bool kAdd>
VARVE_KERNEL_BODY void combine_body(size_t count, const std::byte* __restrict codes, const std::byte* __restrict others,
                                    std::byte* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    const T one = code_at<T>(codes, i), other = code_at<T>(others, i);
    put_code(out, i, static_cast<T>(kAdd ? one + other : one - other));
  }
}

template <class T>
VARVE_KERNEL_BODY uint64_t code_bits_body(size_t count, const std::byte* codes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) bits += static_cast<uint64_t>(std::bit_width(to_zigzag(code_at<T>(codes, i))));
  return bits;
}

using TwoInputs = void (*)(size_t count, const std::byte* first, const std::byte* second, std::byte* out);
template <class T, bool kAdd>
void combine_baseline(size_t count, const std::byte* codes, const std::byte* others, std::byte* out) {
  combine_body<T, kAdd>(count, codes, others, out);
}
template <class T, bool kAdd>
VARVE_TARGET_AVX2 void combine_avx2(size_t count, const std::byte* codes, const std::byte* others, std::byte* out) {
  combine_body<T, kAdd>(count, codes, others, out);
}

template <class T, bool kSwap, bool kForward>
TwoInputs pick_quotient() {
#if VARVE_HAS_AVX2_KERNELS
  if (machine_has_avx2()) return kForward ? quotient_forward_avx2<T, kSwap> : quotient_inverse_avx2<T, kSwap>;
#endif
  return kForward ? quotient_forward_baseline<T, kSwap> : quotient_inverse_baseline<T, kSwap>;
}
template <class T, bool kForward>
TwoInputs pick_quotient(bool swap) {
  return swap ? pick_quotient<T, true, kForward>() : pick_quotient<T, false, kForward>();
}

template <bool kForward>
void run_quotient(NumberFormat format, ByteSpan first, ByteSpan reference, MutableByteSpan out) {
  const bool swap = format.big_endian != kBigMachine;
  const TwoInputs kernel =
      format.bytes == 4 ? pick_quotient<uint32_t, kForward>(swap) : pick_quotient<uint64_t, kForward>(swap);
  const DefaultArithmetic arithmetic;
  kernel(out.size() / format.bytes, first.data(), reference.data(), out.data());
}

template <bool kAdd>
void combine(uint32_t bytes, ByteSpan codes, ByteSpan others, MutableByteSpan out) {
  const bool wide = bytes == 8;
  TwoInputs kernel = wide ? combine_baseline<uint64_t, kAdd> : combine_baseline<uint32_t, kAdd>;
  if (machine_has_avx2()) kernel = wide ? combine_avx2<uint64_t, kAdd> : combine_avx2<uint32_t, kAdd>;
  kernel(out.size() / bytes, codes.data(), others.data(), out.data());
}

#if VARVE_HAS_AVX2_KERNELS
/// Of each byte of a number, how many bits the number would have if that were its highest one; of all, the most.
template <class T>
VARVE_TARGET_AVX2 uint64_t code_bits_avx2(size_t count, const std::byte* codes) {
  constexpr size_t step = sizeof(__m256i) / sizeof(T);
  const __m256i nibble = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
  const __m256i width = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4));
  const __m256i width_above =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 8));
  const __m256i below = _mm256_broadcastsi128_si256(
      sizeof(T) == 4 ? _mm_setr_epi8(0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24, 0, 8, 16, 24)
                     : _mm_setr_epi8(0, 8, 16, 24, 32, 40, 48, 56, 0, 8, 16, 24, 32, 40, 48, 56));
  __m256i sums = zero;
  size_t i = 0;
  for (; i + step <= count; i += step) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i * sizeof(T)));
    const __m256i own =
        _mm256_max_epu8(_mm256_shuffle_epi8(width, _mm256_and_si256(bytes, nibble)),
                        _mm256_shuffle_epi8(width_above, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)));
    __m256i most = _mm256_andnot_si256(_mm256_cmpeq_epi8(bytes, zero), _mm256_add_epi8(own, below));
    if constexpr (sizeof(T) == 8) most = _mm256_max_epu8(most, _mm256_srli_epi64(most, 32));
    most = _mm256_max_epu8(most, _mm256_srli_epi32(most, 16));
    most = _mm256_max_epu8(most, _mm256_srli_epi32(most, 8));
    sums = _mm256_add_epi64(sums, _mm256_sad_epu8(_mm256_and_si256(most, Vectors<T>::all(0xff)), zero));
  }
  alignas(32) std::array<uint64_t, 4> each;
  _mm256_store_si256(reinterpret_cast<__m256i*>(each.data()), sums);
  return each[0] + each[1] + each[2] + each[3] + code_bits_body<T>(count - i, codes + i * sizeof(T));
}
#endif

template <class T>
uint64_t code_bits_of(ByteSpan codes) {
  const size_t count = codes.size() / sizeof(T);
#if VARVE_HAS_AVX2_KERNELS
  if (machine_has_avx2()) return code_bits_avx2<T>(count, codes.data());
#endif
  return code_bits_body<T>(count, codes.data());
}

/// What quotient_forward_plain() expects after the number of these bits.
uint64_t expected_plain(NumberFormat format, uint64_t before, uint64_t reference, uint64_t reference_before) {
  if (format.bytes == 4) {
    const auto as_float = [](uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); };
    const float quotient = as_float(reference) / as_float(reference_before);
    const float product = as_float(before) * quotient;
    return std::isfinite(product) ? std::bit_cast<uint32_t>(product) : before;
  }
  const double quotient = std::bit_cast<double>(reference) / std::bit_cast<double>(reference_before);
  const double product = std::bit_cast<double>(before) * quotient;
  return std::isfinite(product) ? std::bit_cast<uint64_t>(product) : before;
}
}  // namespace

void quotient_forward(NumberFormat format, ByteSpan numbers, ByteSpan reference, MutableByteSpan out) {
  run_quotient<true>(format, numbers, reference, out);
}
void quotient_inverse(NumberFormat format, ByteSpan codes, ByteSpan reference, MutableByteSpan out) {
  run_quotient<false>(format, codes, reference, out);
}

void quotient_forward_plain(NumberFormat format, ByteSpan numbers, ByteSpan reference, MutableByteSpan out) {
  const DefaultArithmetic arithmetic;
  const PlainMath math(format);
  const size_t count = out.size() / format.bytes, length = lane_length(count);
  const auto at = [&](ByteSpan from, size_t i) { return load_number(from.data() + i * format.bytes, format); };
  for (size_t i = 0; i < count; ++i) {
    const uint64_t expected = i % length == 0
                                  ? at(reference, i)
                                  : expected_plain(format, at(numbers, i - 1), at(reference, i), at(reference, i - 1));
    const uint64_t difference = (math.ordered(at(numbers, i)) - math.ordered(expected)) & math.mask;
    store_number(out.data() + i * format.bytes, {.bytes = format.bytes}, math.zigzag(difference));
  }
}

void quotient_inverse_plain(NumberFormat format, ByteSpan codes, ByteSpan reference, MutableByteSpan out) {
  const DefaultArithmetic arithmetic;
  const PlainMath math(format);
  const size_t count = out.size() / format.bytes, length = lane_length(count);
  const auto at = [&](ByteSpan from, size_t i) { return load_number(from.data() + i * format.bytes, format); };
  for (size_t i = 0; i < count; ++i) {
    const uint64_t expected = i % length == 0
                                  ? at(reference, i)
                                  : expected_plain(format, at(out, i - 1), at(reference, i), at(reference, i - 1));
    const uint64_t difference = math.unzigzag(load_number(codes.data() + i * format.bytes, {.bytes = format.bytes}));
    store_number(out.data() + i * format.bytes, format,
                 math.unordered((math.ordered(expected) + difference) & math.mask));
  }
}

void subtract_codes(uint32_t bytes, ByteSpan codes, ByteSpan others, MutableByteSpan out) {
  combine<false>(bytes, codes, others, out);
}
void add_codes(uint32_t bytes, ByteSpan codes, ByteSpan others, MutableByteSpan out) {
  combine<true>(bytes, codes, others, out);
}

uint64_t code_bits(uint32_t bytes, ByteSpan codes) {
  return bytes == 8 ? code_bits_of<uint64_t>(codes) : code_bits_of<uint32_t>(codes);
}

}  // namespace varve::kernels
