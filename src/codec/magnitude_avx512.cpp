#include "codec/magnitude_coder.h"

#if VARVE_HAS_AVX2_KERNELS

#define VARVE_TARGET_AVX512 \
  __attribute__((target("avx2,bmi,bmi2,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,avx512vbmi2")))

namespace varve::kernels {

namespace {

// AVX-512: a vector of 16 numbers' states, or two of 8 numbers' bits

#define VARVE_AVX512_BODY VARVE_TARGET_AVX512 inline __attribute__((always_inline))

VARVE_AVX512_BODY __m512i bits_below_512(__m512i magnitudes) {
  const __m512i one = _mm512_set1_epi32(1);
  return _mm512_sub_epi32(_mm512_max_epu32(_mm512_srli_epi32(magnitudes, 2), one), one);
}

/// The tables of 16 numbers.
VARVE_AVX512_BODY __m512i tables_512(const uint8_t* magnitudes, size_t distance, __m512i table_of) {
  const __m128i contexts = contexts_of_16(magnitudes - distance);
  const __m512i tables = _mm512_permutexvar_epi8(_mm512_castsi128_si512(contexts), table_of);
  return _mm512_cvtepu8_epi32(_mm512_castsi512_si128(tables));
}

VARVE_AVX512_BODY __m512i high_product_512(__m512i a, __m512i b) {
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(a, b), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32));
  return _mm512_mask_blend_epi32(0xaaaa, even, odd);
}

/// Puts those of the words that are marked in front of `to`, in their order.
VARVE_AVX512_BODY void put_words_512(__m256i words, uint32_t marked, std::byte*& to) {
  const auto count = static_cast<uint32_t>(_mm_popcnt_u32(marked));
  to -= 2 * count;
  _mm256_mask_storeu_epi16(to, static_cast<__mmask16>(_bzhi_u32(0xffff, count)),
                           _mm256_maskz_compress_epi16(static_cast<__mmask16>(marked), words));
}

/// The bytes at `from`, and zeros behind `end`.
VARVE_AVX512_BODY __m256i load_256(const std::byte* from, const std::byte* end) {
  if (end - from >= 32) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  const auto mask = static_cast<__mmask32>(_bzhi_u32(~0u, static_cast<uint32_t>(end - from)));
  return _mm256_maskz_loadu_epi8(mask, from);
}

struct Stacks512 {
  __m512i held, count;

  VARVE_AVX512_BODY void push(__m512i values, __m512i bits, std::byte*& to) {
    held = _mm512_or_si512(_mm512_sllv_epi64(held, bits), values);
    count = _mm512_add_epi64(count, bits);
    const __mmask8 full = _mm512_cmpge_epu64_mask(count, _mm512_set1_epi64(kWordBits));
    const auto words = static_cast<uint32_t>(_mm_popcnt_u32(full));
    to -= 4 * words;
    _mm256_mask_storeu_epi32(to, static_cast<__mmask8>(_bzhi_u32(0xff, words)),
                             _mm256_maskz_compress_epi32(full, _mm512_cvtepi64_epi32(held)));
    held = _mm512_mask_srli_epi64(held, full, held, kWordBits);
    count = _mm512_mask_sub_epi64(count, full, count, _mm512_set1_epi64(kWordBits));
  }
  /// False if words are missing.
  VARVE_AVX512_BODY bool pop(__m512i bits, const std::byte*& from, const std::byte* end, __m512i& values) {
    const __mmask8 lacking = _mm512_cmplt_epu64_mask(count, bits);
    const auto words = static_cast<uint32_t>(_mm_popcnt_u32(lacking));
    const __m256i next = load_256(from, end);
    if (end - from < static_cast<ptrdiff_t>(4 * words)) return false;
    from += 4 * words;
    const __m512i spread = _mm512_cvtepu32_epi64(_mm256_maskz_expand_epi32(lacking, next));
    held = _mm512_mask_or_epi64(held, lacking, _mm512_slli_epi64(held, kWordBits), spread);
    count = _mm512_mask_add_epi64(count, lacking, count, _mm512_set1_epi64(kWordBits));
    const __m512i one = _mm512_set1_epi64(1);
    values = _mm512_and_si512(held, _mm512_sub_epi64(_mm512_sllv_epi64(one, bits), one));
    held = _mm512_srlv_epi64(held, bits);
    count = _mm512_sub_epi64(count, bits);
    return true;
  }

  static VARVE_AVX512_BODY Stacks512 of(const Stacks& stacks) {
    alignas(64) std::array<uint64_t, kStacks> helds, counts;
    for (size_t i = 0; i < kStacks; ++i) {
      helds[i] = stacks[i].held;
      counts[i] = stacks[i].count;
    }
    return {_mm512_load_si512(helds.data()), _mm512_load_si512(counts.data())};
  }
  VARVE_AVX512_BODY Stacks stacks() const {
    alignas(64) std::array<uint64_t, kStacks> helds, counts;
    _mm512_store_si512(helds.data(), held);
    _mm512_store_si512(counts.data(), count);
    Stacks result;
    for (size_t i = 0; i < kStacks; ++i) result[i] = {helds[i], static_cast<uint32_t>(counts[i])};
    return result;
  }
};

/// Eight of 16 numbers of 32 bits, with 64 bits each.
VARVE_AVX512_BODY __m512i half_512(__m512i vector, size_t half) {
  return _mm512_cvtepu32_epi64(half == 0 ? _mm512_castsi512_si256(vector) : _mm512_extracti64x4_epi64(vector, 1));
}
VARVE_AVX512_BODY __m512i low_bits_512(__m512i numbers, __m512i bits) {
  const __m512i one = _mm512_set1_epi64(1);
  return _mm512_and_si512(numbers, _mm512_sub_epi64(_mm512_sllv_epi64(one, bits), one));
}

template <class T>
VARVE_AVX512_BODY __m512i load_half_512(const std::byte* numbers, size_t half) {
  const std::byte* from = numbers + half * kStacks * sizeof(T);
  if constexpr (sizeof(T) == 8) return _mm512_loadu_si512(from);
  return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

template <class T>
VARVE_TARGET_AVX512 void measure_avx512_of(ByteSpan numbers, uint8_t* magnitudes) {
  const std::byte* from = numbers.data();
  for (size_t i = 0; i < numbers.size() / sizeof(T); i += kMagnitudeLanes, from += kMagnitudeLanes * sizeof(T)) {
    auto* const to = magnitudes + i;
    if constexpr (sizeof(T) == 4) {
      const __m512i vector = _mm512_loadu_si512(from);
      const __m512i below =
          _mm512_subs_epu16(_mm512_sub_epi32(_mm512_set1_epi32(32), _mm512_lzcnt_epi32(vector)), _mm512_set1_epi32(3));
      const __m512i result = _mm512_add_epi32(_mm512_slli_epi32(below, 2), _mm512_srlv_epi32(vector, below));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(result));
    } else {
      for (size_t half = 0; half < 2; ++half) {
        const __m512i vector = load_half_512<T>(from, half);
        const __m512i below = _mm512_subs_epu16(_mm512_sub_epi64(_mm512_set1_epi64(64), _mm512_lzcnt_epi64(vector)),
                                                _mm512_set1_epi64(3));
        const __m512i result = _mm512_add_epi64(_mm512_slli_epi64(below, 2), _mm512_srlv_epi64(vector, below));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to + half * kStacks), _mm512_cvtepi64_epi8(result));
      }
    }
  }
}

template <class T>
class Encoder512 {
 public:
  VARVE_AVX512_BODY Encoder512(StrandToEncode& strand, size_t distance, const MagnitudeTables& tables,
                               const SymbolCoders& coders)
      : strand_(strand),
        distance_(distance),
        coders_(reinterpret_cast<const char*>(coders.data())),
        table_of_(_mm512_loadu_si512(tables.table_of.data())),
        code_(strand.code.data() + strand.code.size()),
        bits_(strand.bits.data() + strand.bits.size()),
        states_(_mm512_set1_epi32(kStateMin)),
        stacks_{_mm512_setzero_si512(), _mm512_setzero_si512()} {}

  VARVE_AVX512_BODY void step(size_t first) {
    const uint8_t* const magnitudes = strand_.magnitudes + first;
    const __m512i magnitude = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(magnitudes)));
    const __m512i table = tables_512(magnitudes, distance_, table_of_);
    const __m512i at = _mm512_or_si512(_mm512_slli_epi32(table, 8), magnitude);
    const __m512i reciprocal = _mm512_i32gather_epi32(at, coders_, sizeof(SymbolCoder));
    const __m512i terms = _mm512_i32gather_epi32(at, coders_ + 4, sizeof(SymbolCoder));
    const __m512i others = _mm512_and_si512(terms, _mm512_set1_epi32(kMagnitudeScale - 1));
    const __mmask16 full = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(states_, kStateShift),
                                                   _mm512_sub_epi32(_mm512_set1_epi32(kMagnitudeScale), others));
    put_words_512(_mm512_cvtepi32_epi16(states_), full, code_);
    states_ = _mm512_mask_srli_epi32(states_, full, states_, 16);
    const __m512i shift = _mm512_and_si512(_mm512_srli_epi32(terms, 12), _mm512_set1_epi32(15));
    const __m512i quotient = _mm512_srlv_epi32(high_product_512(states_, reciprocal), shift);
    states_ =
        _mm512_add_epi32(states_, _mm512_add_epi32(_mm512_srli_epi32(terms, 16), _mm512_mullo_epi32(quotient, others)));

    const __m512i below = bits_below_512(magnitude);
    for (size_t half : {1, 0}) {
      const __m512i vector = load_half_512<T>(strand_.numbers.data() + first * sizeof(T), half);
      const __m512i count = half_512(below, half);
      if constexpr (sizeof(T) == 8) {
        const __m512i word = _mm512_set1_epi64(kWordBits);
        const __m512i high = _mm512_sub_epi64(_mm512_max_epu64(count, word), word);
        if (_mm512_test_epi64_mask(high, high) != 0)
          stacks_.push(low_bits_512(_mm512_srli_epi64(vector, kWordBits), high), high, bits_);
        const __m512i low = _mm512_min_epu64(count, word);
        stacks_.push(low_bits_512(vector, low), low, bits_);
      } else {
        stacks_.push(low_bits_512(vector, count), count, bits_);
      }
    }
  }

  VARVE_AVX512_BODY void finish() {
    alignas(64) States states;
    _mm512_store_si512(states.data(), states_);
    put_ends(states, stacks_.stacks(), code_, bits_, strand_);
  }

 private:
  StrandToEncode& strand_;
  const size_t distance_;
  const char* const coders_;
  const __m512i table_of_;
  std::byte *code_, *bits_;
  __m512i states_;
  Stacks512 stacks_;
};

template <class T>
class Decoder512 {
 public:
  VARVE_AVX512_BODY Decoder512(const StrandToDecode& strand, size_t distance, const MagnitudeTables& tables,
                               const uint32_t* places)
      : magnitudes_(strand.magnitudes),
        numbers_(strand.numbers.data()),
        code_end_(strand.code.data() + strand.code.size()),
        bits_end_(strand.bits.data() + strand.bits.size()),
        distance_(distance),
        places_(places),
        table_of_(_mm512_loadu_si512(tables.table_of.data())),
        code_(strand.code.data()),
        bits_(strand.bits.data()) {
    alignas(64) const States states = take_states(code_);
    states_ = _mm512_load_si512(states.data());
    stacks_ = Stacks512::of(take_stacks(bits_));
  }

  VARVE_AVX512_BODY bool step(size_t first) {
    const __m256i next = load_256(code_, code_end_);  // before it is known how much of it is wanted
    const __m512i below_scale = _mm512_set1_epi32(kMagnitudeScale - 1);
    uint8_t* const magnitudes = magnitudes_ + first;
    const __m512i table = tables_512(magnitudes, distance_, table_of_);
    const __m512i at =
        _mm512_or_si512(_mm512_slli_epi32(table, kMagnitudeScaleBits), _mm512_and_si512(states_, below_scale));
    const __m512i place = _mm512_i32gather_epi32(at, places_, 4);
    const __m512i magnitude = _mm512_srli_epi32(place, 24);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(magnitudes), _mm512_cvtepi32_epi8(magnitude));
    const __m512i frequency =
        _mm512_add_epi32(_mm512_and_si512(_mm512_srli_epi32(place, 12), below_scale), _mm512_set1_epi32(1));
    states_ = _mm512_add_epi32(_mm512_mullo_epi32(frequency, _mm512_srli_epi32(states_, kMagnitudeScaleBits)),
                               _mm512_and_si512(place, below_scale));
    const __mmask16 lacking = _mm512_cmplt_epu32_mask(states_, _mm512_set1_epi32(kStateMin));
    const ptrdiff_t words_bytes = 2 * _mm_popcnt_u32(lacking);
    if (code_end_ - code_ < words_bytes) return false;
    code_ += words_bytes;
    const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_expand_epi16(lacking, next));
    states_ = _mm512_mask_or_epi32(states_, lacking, _mm512_slli_epi32(states_, 16), words);

    const __m512i below = bits_below_512(magnitude);
    const __m512i highest = _mm512_sub_epi32(magnitude, _mm512_slli_epi32(below, 2));
    std::byte* const to = numbers_ + first * sizeof(T);
    __m512i halves[2];
    for (size_t half : {0, 1}) {
      const __m512i count = half_512(below, half);
      __m512i value;
      if constexpr (sizeof(T) == 8) {
        const __m512i word = _mm512_set1_epi64(kWordBits);
        if (!stacks_.pop(_mm512_min_epu64(count, word), bits_, bits_end_, value)) return false;
        const __m512i high = _mm512_sub_epi64(_mm512_max_epu64(count, word), word);
        if (_mm512_test_epi64_mask(high, high) != 0) {
          __m512i high_value;
          if (!stacks_.pop(high, bits_, bits_end_, high_value)) return false;
          value = _mm512_or_si512(value, _mm512_slli_epi64(high_value, kWordBits));
        }
      } else {
        if (!stacks_.pop(count, bits_, bits_end_, value)) return false;
      }
      halves[half] = _mm512_or_si512(value, _mm512_sllv_epi64(half_512(highest, half), count));
    }
    if constexpr (sizeof(T) == 8) {
      _mm512_storeu_si512(to, halves[0]);
      _mm512_storeu_si512(to + 64, halves[1]);
    } else {
      _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(halves[0])),
                                                 _mm512_cvtepi64_epi32(halves[1]), 1));
    }
    return true;
  }

  VARVE_AVX512_BODY bool at_end() const {
    alignas(64) States states;
    _mm512_store_si512(states.data(), states_);
    return code_ == code_end_ && bits_ == bits_end_ && are_as_begun(states, stacks_.stacks());
  }

 private:
  uint8_t* const magnitudes_;
  std::byte* const numbers_;
  const std::byte *const code_end_, *const bits_end_;
  const size_t distance_;
  const uint32_t* const places_;
  const __m512i table_of_;
  const std::byte *code_, *bits_;
  __m512i states_;
  Stacks512 stacks_;
};

template <class T>
VARVE_TARGET_AVX512 void encode_avx512_of(StrandsToEncode strands, size_t distance, const MagnitudeTables& tables) {
  const SymbolCoders& coders = coders_of(tables);
  Encoder512<T> first(strands[0], distance, tables, coders), second(strands[1], distance, tables, coders);
  for (size_t i = strands[0].numbers.size() / sizeof(T); i > 0;) {
    i -= kMagnitudeLanes;
    first.step(i);
    second.step(i);
  }
  first.finish();
  second.finish();
}

template <class T>
VARVE_TARGET_AVX512 bool decode_avx512_of(StrandsToDecode strands, size_t distance, const MagnitudeTables& tables) {
  if (!have_states(strands)) return false;
  const uint32_t* const places = places_of(tables);
  Decoder512<T> first(strands[0], distance, tables, places), second(strands[1], distance, tables, places);
  for (size_t i = 0; i < strands[0].numbers.size() / sizeof(T); i += kMagnitudeLanes) {
    if (!first.step(i) || !second.step(i)) return false;
  }
  return first.at_end() && second.at_end();
}

}  // namespace

MagnitudeKernels avx512_magnitude_kernels() {
  return {"avx512", of_wide_numbers<measure_plain, measure_avx512_of<uint32_t>, measure_avx512_of<uint64_t>>,
          of_wide_numbers<encode_plain, encode_avx512_of<uint32_t>, encode_avx512_of<uint64_t>>,
          of_wide_numbers<decode_plain, decode_avx512_of<uint32_t>, decode_avx512_of<uint64_t>>};
}

}  // namespace varve::kernels

#endif
