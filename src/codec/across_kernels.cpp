#include "codec/across_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "codec/default_arithmetic.h"
#include "codec/number_bits.h"

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
VARVE_KERNEL_BODY void quotient_forward_body(size_t count, const std::byte* __restrict numbers,
                                             const std::byte* __restrict reference, std::byte* __restrict out) {
  const size_t length = lane_length(count);
  for (size_t begin = 0; begin < count; begin += length) {
    put_code(out, begin,
             static_cast<T>(to_ordered(bits_at<T, kSwap>(numbers, begin)) -
                            to_ordered(bits_at<T, kSwap>(reference, begin))));
    const size_t end = std::min(begin + length, count);
    for (size_t i = begin + 1; i < end; ++i) {
      const auto now = std::bit_cast<FloatOf<T>>(bits_at<T, kSwap>(reference, i));
      const auto then = std::bit_cast<FloatOf<T>>(bits_at<T, kSwap>(reference, i - 1));
      const T expected = expected_after<T>(bits_at<T, kSwap>(numbers, i - 1), now / then);
      put_code(out, i, static_cast<T>(to_ordered(bits_at<T, kSwap>(numbers, i)) - to_ordered(expected)));
    }
  }
}

template <class T, bool kSwap>
VARVE_KERNEL_BODY void quotient_inverse_body(size_t count, const std::byte* __restrict codes,
                                             const std::byte* __restrict reference, std::byte* __restrict out) {
  using Float = FloatOf<T>;
  constexpr size_t lanes = kQuotientLanes, tile = 512 / sizeof(T);
  const size_t length = lane_length(count);
  std::array<T, lanes> before{};
  for (size_t lane = 0; lane < lanes && lane * length < count; ++lane) {
    const size_t begin = lane * length;
    before[lane] =
        from_ordered(static_cast<T>(to_ordered(bits_at<T, kSwap>(reference, begin)) + code_at<T>(codes, begin)));
    store(out, begin, kSwap ? swap_bytes(before[lane]) : before[lane]);
  }
  // The quotients of some numbers of each lane, then all lanes side by side.
  Float quotients[lanes][tile];
  for (size_t from = 1; from < length; from += tile) {
    const size_t to = std::min(from + tile, length);
    size_t together = to;  // where the last of the lanes ends
    for (size_t lane = 0; lane < lanes; ++lane) {
      const size_t end = std::min(lane * length + to, std::max(count, lane * length + from));
      together = std::min(together, end - lane * length);
      for (size_t i = lane * length + from; i < end; ++i) {
        quotients[lane][i - lane * length - from] = std::bit_cast<Float>(bits_at<T, kSwap>(reference, i)) /
                                                    std::bit_cast<Float>(bits_at<T, kSwap>(reference, i - 1));
      }
    }
    const auto step = [&](size_t lane, size_t at) {
      const size_t i = lane * length + at;
      const T expected = expected_after<T>(before[lane], quotients[lane][at - from]);
      before[lane] = from_ordered(static_cast<T>(to_ordered(expected) + code_at<T>(codes, i)));
      store(out, i, kSwap ? swap_bytes(before[lane]) : before[lane]);
    };
    for (size_t at = from; at < together; ++at) {
      for (size_t lane = 0; lane < lanes; ++lane) step(lane, at);
    }
    for (size_t at = together; at < to; ++at) {
      for (size_t lane = 0; lane < lanes; ++lane) {
        if (lane * length + at < count) step(lane, at);
      }
    }
  }
}

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

#define VARVE_ARGUMENTS size_t count, const std::byte *first, const std::byte *second, std::byte *out
using TwoInputs = void (*)(VARVE_ARGUMENTS);
template <class T, bool kSwap, bool kForward>
void quotient_baseline(VARVE_ARGUMENTS) {
  if constexpr (kForward) return quotient_forward_body<T, kSwap>(count, first, second, out);
  quotient_inverse_body<T, kSwap>(count, first, second, out);
}
template <class T, bool kSwap, bool kForward>
VARVE_TARGET_AVX2 void quotient_avx2(VARVE_ARGUMENTS) {
  if constexpr (kForward) return quotient_forward_body<T, kSwap>(count, first, second, out);
  quotient_inverse_body<T, kSwap>(count, first, second, out);
}
template <class T, bool kAdd>
void combine_baseline(VARVE_ARGUMENTS) {
  combine_body<T, kAdd>(count, first, second, out);
}
template <class T, bool kAdd>
VARVE_TARGET_AVX2 void combine_avx2(VARVE_ARGUMENTS) {
  combine_body<T, kAdd>(count, first, second, out);
}
#undef VARVE_ARGUMENTS

template <class T, bool kForward>
TwoInputs pick_quotient(bool swap) {
  if (machine_has_avx2()) return swap ? quotient_avx2<T, true, kForward> : quotient_avx2<T, false, kForward>;
  return swap ? quotient_baseline<T, true, kForward> : quotient_baseline<T, false, kForward>;
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

VARVE_TARGET_AVX2 uint64_t code_bits_avx2(uint32_t bytes, ByteSpan codes) {
  return bytes == 8 ? code_bits_body<uint64_t>(codes.size() / 8, codes.data())
                    : code_bits_body<uint32_t>(codes.size() / 4, codes.data());
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
  if (machine_has_avx2()) return code_bits_avx2(bytes, codes);
  return bytes == 8 ? code_bits_body<uint64_t>(codes.size() / 8, codes.data())
                    : code_bits_body<uint32_t>(codes.size() / 4, codes.data());
}

}  // namespace varve::kernels
