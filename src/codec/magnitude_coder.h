#pragma once

#include "codec/kernels.h"
#include "codec/magnitude_kernels.h"

#if VARVE_HAS_AVX2_KERNELS
#include <immintrin.h>
#endif

// What the kernels of magnitudes for all processors share.

namespace varve::kernels {

/// Between two symbols a coder's state is at least this, and below 2^16 times as much: rANS with words of 16 bits.
constexpr unsigned kStateMinBits = 15;
constexpr uint32_t kStateMin = 1u << kStateMinBits;
/// A state takes a symbol without giving a word away if it is, without these bits, below its frequency.
constexpr unsigned kStateShift = kStateMinBits + 16 - kMagnitudeScaleBits;
/// Bits are kept in so many stacks, number i in stack i mod 8, and leave them in words of 32 bits.
constexpr size_t kStacks = kMagnitudeLanes / 2;
constexpr unsigned kWordBits = 32;

/// How a symbol changes a coder's state x: x / frequency · scale + x mod frequency + start, by the reciprocal of the
/// frequency: R. Alverson, "Integer division using reciprocals", 1991.
struct SymbolCoder {
  uint32_t reciprocal;
  uint32_t terms;  ///< scale − frequency, bits 0 to 11; shift, bits 12 to 15; what is added, bits 16 to 31

  static SymbolCoder of(uint32_t start, uint32_t frequency) {
    if (frequency == 1) return {~0u, (kMagnitudeScale - 1) | (start + kMagnitudeScale - 1) << 16};
    const auto shift = static_cast<unsigned>(std::bit_width(frequency - 1));
    const uint64_t reciprocal = ((uint64_t{1} << (shift + 31)) + frequency - 1) / frequency;
    return {static_cast<uint32_t>(reciprocal), (kMagnitudeScale - frequency) | (shift - 1) << 12 | start << 16};
  }
};
using SymbolCoders = std::vector<std::array<SymbolCoder, 256>>;
/// Of all symbols that have a frequency. The thread's own, until the next call.
const SymbolCoders& coders_of(const MagnitudeTables& tables);
/// Which symbol each place of each table's scale belongs to: magnitude << 24 | (frequency − 1) << 12 | place − start.
/// The thread's own, until the next call.
const uint32_t* places_of(const MagnitudeTables& tables);

template <class T>
VARVE_KERNEL_BODY void measure_body(ByteSpan numbers, uint8_t* magnitudes) {
  for (size_t i = 0; i < numbers.size() / sizeof(T); ++i) {
    const T number = load_le<T>(numbers.data() + i * sizeof(T));
    magnitudes[i] = magnitude_of(number);
  }
}

/// Without branches that nothing foretells: four bytes in front of `to` may be written, whether they are wanted or not.
struct BitStack {
  uint64_t held = 0;
  uint32_t count = 0;  ///< of the bits held, below 32 between two numbers

  void push(uint32_t value, unsigned bits, std::byte*& to) {
    held = held << bits | value;
    count += bits;
    store_le(to - 4, static_cast<uint32_t>(held));
    const unsigned full = count / kWordBits;
    to -= 4 * full;
    held >>= kWordBits * full;
    count -= kWordBits * full;
  }
  /// False if a word is missing.
  bool pop(unsigned bits, const std::byte*& from, const std::byte* end, uint32_t& value) {
    const unsigned lacking = count < bits ? 1 : 0;
    const bool at_end = end - from < 4;
    if (at_end && lacking != 0) return false;
    const uint64_t word = at_end ? 0 : load_le<uint32_t>(from);
    held = held << kWordBits * lacking | word * lacking;
    from += 4 * lacking;
    count += kWordBits * lacking;
    value = static_cast<uint32_t>(held & ((uint64_t{1} << bits) - 1));
    held >>= bits;
    count -= bits;
    return true;
  }
};

using States = std::array<uint32_t, kMagnitudeLanes>;
using Stacks = std::array<BitStack, kStacks>;

using StrandsToEncode = std::span<StrandToEncode, kMagnitudeStrands>;
using StrandsToDecode = std::span<const StrandToDecode, kMagnitudeStrands>;

/// Ends a strand that was encoded down to `code` and `bits`.
void put_ends(const States& states, const Stacks& stacks, std::byte* code, std::byte* bits, StrandToEncode& strand);
/// What a strand begins with, if have_states(): behind it afterwards.
States take_states(const std::byte*& code);
Stacks take_stacks(const std::byte*& bits);
/// Whether strands begin with states that an encoder may have ended with.
bool have_states(StrandsToDecode strands);
/// Whether states are those before the first number was encoded, and no stack holds a bit.
bool are_as_begun(const States& states, const Stacks& stacks);

void measure_plain(size_t number_bytes, ByteSpan numbers, uint8_t* magnitudes);
void encode_plain(size_t number_bytes, StrandsToEncode strands, size_t distance, const MagnitudeTables& tables);
bool decode_plain(size_t number_bytes, StrandsToDecode strands, size_t distance, const MagnitudeTables& tables);

#if VARVE_HAS_AVX2_KERNELS

/// context_of() of 16 numbers.
VARVE_AVX2_BODY __m128i contexts_of_16(const uint8_t* above) {
  const __m128i before = _mm_loadu_si128(reinterpret_cast<const __m128i*>(above - 1));
  const __m128i behind = _mm_loadu_si128(reinterpret_cast<const __m128i*>(above + 1));
  const __m128i between = _mm_loadu_si128(reinterpret_cast<const __m128i*>(above));
  const __m128i nearby = _mm_avg_epu8(_mm_avg_epu8(before, behind), between);
  return _mm_and_si128(_mm_srli_epi16(nearby, 2), _mm_set1_epi8(kMagnitudeContexts - 1));
}

/// A kernel for numbers of four bytes and one for eight as one for all: shorter numbers go by the plain one.
template <auto kPlain, auto kFour, auto kEight, class... Arguments>
auto of_wide_numbers(size_t number_bytes, Arguments... arguments) -> decltype(kPlain(number_bytes, arguments...)) {
  if (number_bytes == 8) return kEight(arguments...);
  if (number_bytes == 4) return kFour(arguments...);
  return kPlain(number_bytes, arguments...);
}
MagnitudeKernels avx2_magnitude_kernels();
MagnitudeKernels avx512_magnitude_kernels();

#endif

}  // namespace varve::kernels
