#include "codec/magnitude_coder.h"

#if VARVE_HAS_AVX2_KERNELS

namespace varve::kernels {

namespace {

// AVX2: 16 numbers in two vectors of eight. What AVX-512 packs and spreads by masks, tables of permutations do.

struct LaneOrder {
  std::array<uint64_t, 256> lanes{};  ///< by a mask of eight lanes, a byte for each: which lane goes there
};
/// The lanes that are marked, in their order, as the last ones.
constexpr LaneOrder kMarkedLast = [] {
  LaneOrder order;
  for (uint64_t mask = 0; mask < 256; ++mask) {
    unsigned to = 8 - static_cast<unsigned>(std::popcount(mask));
    for (uint64_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) order.lanes[mask] |= lane << (8 * to++);
    }
  }
  return order;
}();
/// The first lanes where lanes are marked.
constexpr LaneOrder kFirstToMarked = [] {
  LaneOrder order;
  for (uint64_t mask = 0; mask < 256; ++mask) {
    uint64_t from = 0;
    for (unsigned lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) order.lanes[mask] |= from++ << (8 * lane);
    }
  }
  return order;
}();

VARVE_AVX2_BODY __m256i in_lane_order(__m256i vector, const LaneOrder& order, uint32_t mask) {
  const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(order.lanes[mask]));
  return _mm256_permutevar8x32_epi32(vector, _mm256_cvtepu8_epi32(bytes));
}
VARVE_AVX2_BODY uint32_t mask_of_32(__m256i marked) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(marked)));
}

/// Eight numbers of 64 bits.
struct Words256 {
  __m256i low, high;

  static VARVE_AVX2_BODY Words256 of(__m256i eight) {
    return {_mm256_cvtepu32_epi64(_mm256_castsi256_si128(eight)),
            _mm256_cvtepu32_epi64(_mm256_extracti128_si256(eight, 1))};
  }
  template <class T>
  static VARVE_AVX2_BODY Words256 load(const std::byte* from) {
    const auto* const vectors = reinterpret_cast<const __m256i*>(from);
    if constexpr (sizeof(T) == 8) return {_mm256_loadu_si256(vectors), _mm256_loadu_si256(vectors + 1)};
    return of(_mm256_loadu_si256(vectors));
  }
  /// The lower halves.
  VARVE_AVX2_BODY __m256i halves() const {
    const __m256 pairs = _mm256_shuffle_ps(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high), 0x88);
    return _mm256_permute4x64_epi64(_mm256_castps_si256(pairs), 0xd8);
  }
  template <class T>
  VARVE_AVX2_BODY void store(std::byte* to) const {
    auto* const vectors = reinterpret_cast<__m256i*>(to);
    if constexpr (sizeof(T) == 8) {
      _mm256_storeu_si256(vectors, low);
      _mm256_storeu_si256(vectors + 1, high);
    } else {
      _mm256_storeu_si256(vectors, halves());
    }
  }
};
VARVE_AVX2_BODY __m256i low_bits_256(__m256i words, __m256i bits) {
  const __m256i one = _mm256_set1_epi64x(1);
  return _mm256_and_si256(words, _mm256_sub_epi64(_mm256_sllv_epi64(one, bits), one));
}

/// The 16 or 32 bytes at `from`, and zeros behind `end`.
template <class Vector>
VARVE_AVX2_BODY Vector load_before_end(const std::byte* from, const std::byte* end) {
  Vector vector{};
  if (end - from >= static_cast<ptrdiff_t>(sizeof vector)) {
    std::memcpy(&vector, from, sizeof vector);
  } else {
    std::memcpy(&vector, from, static_cast<size_t>(end - from));
  }
  return vector;
}

struct FourStacks {
  __m256i held, count;

  /// Which of them have a word to leave now.
  VARVE_AVX2_BODY __m256i add(__m256i values, __m256i bits) {
    held = _mm256_or_si256(_mm256_sllv_epi64(held, bits), values);
    count = _mm256_add_epi64(count, bits);
    return _mm256_cmpgt_epi64(count, _mm256_set1_epi64x(kWordBits - 1));
  }
  VARVE_AVX2_BODY void drop_words(__m256i full) {
    held = _mm256_blendv_epi8(held, _mm256_srli_epi64(held, kWordBits), full);
    count = _mm256_sub_epi64(count, _mm256_and_si256(full, _mm256_set1_epi64x(kWordBits)));
  }
  VARVE_AVX2_BODY __m256i take(__m256i lacking, __m256i words, __m256i bits) {
    held = _mm256_blendv_epi8(held, _mm256_or_si256(_mm256_slli_epi64(held, kWordBits), words), lacking);
    count = _mm256_add_epi64(count, _mm256_and_si256(lacking, _mm256_set1_epi64x(kWordBits)));
    const __m256i values = low_bits_256(held, bits);
    held = _mm256_srlv_epi64(held, bits);
    count = _mm256_sub_epi64(count, bits);
    return values;
  }
};

struct Stacks256 {
  FourStacks low, high;

  VARVE_AVX2_BODY void push(const Words256& values, const Words256& bits, std::byte*& to) {
    const Words256 full{low.add(values.low, bits.low), high.add(values.high, bits.high)};
    const uint32_t mask = mask_of_32(full.halves());
    const __m256i words = in_lane_order(Words256{low.held, high.held}.halves(), kMarkedLast, mask);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to - 32), words);
    to -= 4 * _mm_popcnt_u32(mask);
    low.drop_words(full.low);
    high.drop_words(full.high);
  }
  /// False if words are missing.
  VARVE_AVX2_BODY bool pop(const Words256& bits, const std::byte*& from, const std::byte* end, Words256& values) {
    const Words256 lacking{_mm256_cmpgt_epi64(bits.low, low.count), _mm256_cmpgt_epi64(bits.high, high.count)};
    const uint32_t mask = mask_of_32(lacking.halves());
    const ptrdiff_t words_bytes = 4 * _mm_popcnt_u32(mask);
    const auto words = Words256::of(in_lane_order(load_before_end<__m256i>(from, end), kFirstToMarked, mask));
    if (end - from < words_bytes) return false;
    from += words_bytes;
    values = {low.take(lacking.low, words.low, bits.low), high.take(lacking.high, words.high, bits.high)};
    return true;
  }

  static VARVE_AVX2_BODY Stacks256 of(const Stacks& stacks) {
    std::array<uint64_t, kStacks> helds, counts;
    for (size_t i = 0; i < kStacks; ++i) {
      helds[i] = stacks[i].held;
      counts[i] = stacks[i].count;
    }
    const auto held = Words256::load<uint64_t>(reinterpret_cast<const std::byte*>(helds.data()));
    const auto count = Words256::load<uint64_t>(reinterpret_cast<const std::byte*>(counts.data()));
    return {{held.low, count.low}, {held.high, count.high}};
  }
  VARVE_AVX2_BODY Stacks stacks() const {
    std::array<uint64_t, kStacks> helds, counts;
    Words256{low.held, high.held}.store<uint64_t>(reinterpret_cast<std::byte*>(helds.data()));
    Words256{low.count, high.count}.store<uint64_t>(reinterpret_cast<std::byte*>(counts.data()));
    Stacks result;
    for (size_t i = 0; i < kStacks; ++i) result[i] = {helds[i], static_cast<uint32_t>(counts[i])};
    return result;
  }
};

/// The tables of 16 numbers.
VARVE_AVX2_BODY __m128i tables_256(const uint8_t* magnitudes, size_t distance, const __m128i* table_of) {
  const __m128i contexts = contexts_of_16(magnitudes - distance);
  __m128i tables = _mm_shuffle_epi8(_mm_loadu_si128(table_of), contexts);
  for (int part = 1; part < 4; ++part) {
    const __m128i is_there = _mm_cmpgt_epi8(contexts, _mm_set1_epi8(static_cast<char>(16 * part - 1)));
    tables = _mm_blendv_epi8(tables, _mm_shuffle_epi8(_mm_loadu_si128(table_of + part), contexts), is_there);
  }
  return tables;
}
VARVE_AVX2_BODY __m256i eighth_of(__m128i bytes, size_t half) {
  return _mm256_cvtepu8_epi32(half == 0 ? bytes : _mm_srli_si128(bytes, 8));
}
VARVE_AVX2_BODY __m256i bits_below_256(__m256i magnitudes) {
  const __m256i one = _mm256_set1_epi32(1);
  return _mm256_sub_epi32(_mm256_max_epu32(_mm256_srli_epi32(magnitudes, 2), one), one);
}
VARVE_AVX2_BODY __m256i high_product_256(__m256i a, __m256i b) {
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(a, b), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
  return _mm256_blend_epi32(even, odd, 0xaa);
}

template <class T>
class Encoder256 {
 public:
  VARVE_AVX2_BODY Encoder256(StrandToEncode& strand, size_t distance, const MagnitudeTables& tables,
                             const SymbolCoders& coders)
      : strand_(strand),
        distance_(distance),
        coders_(reinterpret_cast<const int*>(coders.data())),
        table_of_(reinterpret_cast<const __m128i*>(tables.table_of.data())),
        code_(strand.code.data() + strand.code.size()),
        bits_(strand.bits.data() + strand.bits.size()),
        states_{_mm256_set1_epi32(kStateMin), _mm256_set1_epi32(kStateMin)},
        stacks_(Stacks256::of({})) {}

  VARVE_AVX2_BODY void step(size_t first) {
    const uint8_t* const of_step = strand_.magnitudes + first;
    const __m128i magnitudes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(of_step));
    const __m128i tables = tables_256(of_step, distance_, table_of_);
    for (size_t half : {1, 0}) {
      const __m256i magnitude = eighth_of(magnitudes, half);
      const __m256i at = _mm256_or_si256(_mm256_slli_epi32(eighth_of(tables, half), 8), magnitude);
      encode_magnitudes(at, states_[half]);
      push_bits(strand_.numbers.data() + (first + half * kStacks) * sizeof(T), bits_below_256(magnitude));
    }
  }

  VARVE_AVX2_BODY void finish() {
    States states;
    for (size_t half : {0, 1}) _mm256_storeu_si256(reinterpret_cast<__m256i*>(&states[half * kStacks]), states_[half]);
    put_ends(states, stacks_.stacks(), code_, bits_, strand_);
  }

 private:
  VARVE_AVX2_BODY void encode_magnitudes(__m256i at, __m256i& states) {
    const __m256i reciprocal = _mm256_i32gather_epi32(coders_, at, sizeof(SymbolCoder));
    const __m256i terms = _mm256_i32gather_epi32(coders_ + 1, at, sizeof(SymbolCoder));
    const __m256i others = _mm256_and_si256(terms, _mm256_set1_epi32(kMagnitudeScale - 1));
    const __m256i frequency = _mm256_sub_epi32(_mm256_set1_epi32(kMagnitudeScale), others);
    const __m256i fits = _mm256_cmpgt_epi32(frequency, _mm256_srli_epi32(states, kStateShift));
    const uint32_t full = ~mask_of_32(fits) & 0xff;
    const __m256i words = in_lane_order(_mm256_and_si256(states, _mm256_set1_epi32(0xffff)), kMarkedLast, full);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(code_ - 16), packed);
    code_ -= 2 * _mm_popcnt_u32(full);
    states = _mm256_blendv_epi8(_mm256_srli_epi32(states, 16), states, fits);
    const __m256i shift = _mm256_and_si256(_mm256_srli_epi32(terms, 12), _mm256_set1_epi32(15));
    const __m256i quotient = _mm256_srlv_epi32(high_product_256(states, reciprocal), shift);
    states =
        _mm256_add_epi32(states, _mm256_add_epi32(_mm256_srli_epi32(terms, 16), _mm256_mullo_epi32(quotient, others)));
  }
  VARVE_AVX2_BODY void push_bits(const std::byte* numbers, __m256i below) {
    const Words256 vector = Words256::load<T>(numbers);
    if constexpr (sizeof(T) == 8) {
      const __m256i word = _mm256_set1_epi32(kWordBits);
      const __m256i above = _mm256_sub_epi32(_mm256_max_epu32(below, word), word);
      if (_mm256_testz_si256(above, above) == 0) {
        const Words256 high = Words256::of(above);
        stacks_.push({low_bits_256(_mm256_srli_epi64(vector.low, kWordBits), high.low),
                      low_bits_256(_mm256_srli_epi64(vector.high, kWordBits), high.high)},
                     high, bits_);
      }
      below = _mm256_min_epu32(below, word);
    }
    const Words256 low = Words256::of(below);
    stacks_.push({low_bits_256(vector.low, low.low), low_bits_256(vector.high, low.high)}, low, bits_);
  }

  StrandToEncode& strand_;
  const size_t distance_;
  const int* const coders_;
  const __m128i* const table_of_;
  std::byte *code_, *bits_;
  __m256i states_[2];
  Stacks256 stacks_;
};

template <class T>
class Decoder256 {
 public:
  VARVE_AVX2_BODY Decoder256(const StrandToDecode& strand, size_t distance, const MagnitudeTables& tables,
                             const uint32_t* places)
      : magnitudes_(strand.magnitudes),
        numbers_(strand.numbers.data()),
        code_end_(strand.code.data() + strand.code.size()),
        bits_end_(strand.bits.data() + strand.bits.size()),
        distance_(distance),
        places_(reinterpret_cast<const int*>(places)),
        table_of_(reinterpret_cast<const __m128i*>(tables.table_of.data())),
        code_(strand.code.data()),
        bits_(strand.bits.data()) {
    const States states = take_states(code_);
    for (size_t half : {0, 1})
      states_[half] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&states[half * kStacks]));
    stacks_ = Stacks256::of(take_stacks(bits_));
  }

  VARVE_AVX2_BODY bool step(size_t first) {
    uint8_t* const of_step = magnitudes_ + first;
    const __m128i tables = tables_256(of_step, distance_, table_of_);
    for (size_t half : {0, 1}) {
      __m256i magnitude;
      if (!decode_magnitudes(eighth_of(tables, half), states_[half], magnitude)) return false;
      const __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(magnitude, magnitude), _mm256_setzero_si256());
      const __m128i eight = _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(of_step + half * kStacks), eight);
      if (!pop_bits(magnitude, numbers_ + (first + half * kStacks) * sizeof(T))) return false;
    }
    return true;
  }

  VARVE_AVX2_BODY bool at_end() const {
    States states;
    for (size_t half : {0, 1}) _mm256_storeu_si256(reinterpret_cast<__m256i*>(&states[half * kStacks]), states_[half]);
    return code_ == code_end_ && bits_ == bits_end_ && are_as_begun(states, stacks_.stacks());
  }

 private:
  VARVE_AVX2_BODY bool decode_magnitudes(__m256i tables, __m256i& states, __m256i& magnitude) {
    const __m256i below_scale = _mm256_set1_epi32(kMagnitudeScale - 1);
    const __m256i at =
        _mm256_or_si256(_mm256_slli_epi32(tables, kMagnitudeScaleBits), _mm256_and_si256(states, below_scale));
    const __m256i place = _mm256_i32gather_epi32(places_, at, 4);
    magnitude = _mm256_srli_epi32(place, 24);
    const __m256i frequency =
        _mm256_add_epi32(_mm256_and_si256(_mm256_srli_epi32(place, 12), below_scale), _mm256_set1_epi32(1));
    states = _mm256_add_epi32(_mm256_mullo_epi32(frequency, _mm256_srli_epi32(states, kMagnitudeScaleBits)),
                              _mm256_and_si256(place, below_scale));
    const __m256i lacking = _mm256_cmpgt_epi32(_mm256_set1_epi32(kStateMin), states);
    const uint32_t mask = mask_of_32(lacking);
    const __m256i next = _mm256_cvtepu16_epi32(load_before_end<__m128i>(code_, code_end_));
    const ptrdiff_t words_bytes = 2 * _mm_popcnt_u32(mask);
    if (code_end_ - code_ < words_bytes) return false;
    code_ += words_bytes;
    const __m256i words = in_lane_order(next, kFirstToMarked, mask);
    states = _mm256_blendv_epi8(states, _mm256_or_si256(_mm256_slli_epi32(states, 16), words), lacking);
    return true;
  }
  VARVE_AVX2_BODY bool pop_bits(__m256i magnitude, std::byte* to) {
    const __m256i below = bits_below_256(magnitude);
    const Words256 highest = Words256::of(_mm256_sub_epi32(magnitude, _mm256_slli_epi32(below, 2)));
    const Words256 count = Words256::of(below);
    Words256 value;
    if constexpr (sizeof(T) == 8) {
      const __m256i word = _mm256_set1_epi32(kWordBits);
      if (!stacks_.pop(Words256::of(_mm256_min_epu32(below, word)), bits_, bits_end_, value)) return false;
      const __m256i above = _mm256_sub_epi32(_mm256_max_epu32(below, word), word);
      if (_mm256_testz_si256(above, above) == 0) {
        Words256 high;
        if (!stacks_.pop(Words256::of(above), bits_, bits_end_, high)) return false;
        value.low = _mm256_or_si256(value.low, _mm256_slli_epi64(high.low, kWordBits));
        value.high = _mm256_or_si256(value.high, _mm256_slli_epi64(high.high, kWordBits));
      }
    } else {
      if (!stacks_.pop(count, bits_, bits_end_, value)) return false;
    }
    value.low = _mm256_or_si256(value.low, _mm256_sllv_epi64(highest.low, count.low));
    value.high = _mm256_or_si256(value.high, _mm256_sllv_epi64(highest.high, count.high));
    value.template store<T>(to);
    return true;
  }

  uint8_t* const magnitudes_;
  std::byte* const numbers_;
  const std::byte *const code_end_, *const bits_end_;
  const size_t distance_;
  const int* const places_;
  const __m128i* const table_of_;
  const std::byte *code_, *bits_;
  __m256i states_[2];
  Stacks256 stacks_;
};

/// The magnitudes of eight numbers of 32 bits.
VARVE_AVX2_BODY __m256i magnitudes_of_8(__m256i numbers) {
  // Without each bit that is right below another one, a number has none right below its highest: no rounding takes it
  // to the next power of two, and its exponent as a float tells how long it is. What would be negative has all 32 bits.
  const __m256i highest = _mm256_andnot_si256(_mm256_srli_epi32(numbers, 1), numbers);
  const __m256i exponents = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(highest)), 23);
  const __m256i bits_less_3 = _mm256_subs_epu16(exponents, _mm256_set1_epi32(126 + 3));
  const __m256i below = _mm256_blendv_epi8(bits_less_3, _mm256_set1_epi32(32 - 3), _mm256_srai_epi32(numbers, 31));
  return _mm256_add_epi32(_mm256_slli_epi32(below, 2), _mm256_srlv_epi32(numbers, below));
}

template <class T>
VARVE_TARGET_AVX2 void measure_avx2_of(ByteSpan numbers, uint8_t* magnitudes) {
  if constexpr (sizeof(T) == 8) return measure_body<T>(numbers, magnitudes);
  const std::byte* from = numbers.data();
  for (size_t i = 0; i < numbers.size() / sizeof(T); i += kMagnitudeLanes, from += kMagnitudeLanes * sizeof(T)) {
    const auto* const vectors = reinterpret_cast<const __m256i*>(from);
    const __m256i first = magnitudes_of_8(_mm256_loadu_si256(vectors));
    const __m256i second = magnitudes_of_8(_mm256_loadu_si256(vectors + 1));
    // Each half of a vector is packed by itself.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(magnitudes + i), bytes);
  }
}

template <class T>
VARVE_TARGET_AVX2 void encode_avx2_of(StrandsToEncode strands, size_t distance, const MagnitudeTables& tables) {
  const SymbolCoders& coders = coders_of(tables);
  Encoder256<T> first(strands[0], distance, tables, coders), second(strands[1], distance, tables, coders);
  for (size_t i = strands[0].numbers.size() / sizeof(T); i > 0;) {
    i -= kMagnitudeLanes;
    first.step(i);
    second.step(i);
  }
  first.finish();
  second.finish();
}

template <class T>
VARVE_TARGET_AVX2 bool decode_avx2_of(StrandsToDecode strands, size_t distance, const MagnitudeTables& tables) {
  if (!have_states(strands)) return false;
  const uint32_t* const places = places_of(tables);
  Decoder256<T> first(strands[0], distance, tables, places), second(strands[1], distance, tables, places);
  for (size_t i = 0; i < strands[0].numbers.size() / sizeof(T); i += kMagnitudeLanes) {
    if (!first.step(i) || !second.step(i)) return false;
  }
  return first.at_end() && second.at_end();
}

}  // namespace

MagnitudeKernels avx2_magnitude_kernels() {
  return {"avx2", of_wide_numbers<measure_plain, measure_avx2_of<uint32_t>, measure_avx2_of<uint64_t>>,
          of_wide_numbers<encode_plain, encode_avx2_of<uint32_t>, encode_avx2_of<uint64_t>>,
          of_wide_numbers<decode_plain, decode_avx2_of<uint32_t>, decode_avx2_of<uint64_t>>};
}

}  // namespace varve::kernels

#endif
