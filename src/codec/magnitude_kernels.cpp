#include "codec/magnitude_kernels.h"

#include "codec/magnitude_coder.h"

namespace varve::kernels {

const SymbolCoders& coders_of(const MagnitudeTables& tables) {
  thread_local SymbolCoders coders;  // kept, as first touch costs
  coders.resize(std::max(coders.size(), tables.frequencies.size()));
  for (size_t table = 0; table < tables.frequencies.size(); ++table) {
    uint32_t start = 0;
    for (size_t symbol = 0; symbol < 256; ++symbol) {
      const uint32_t frequency = tables.frequencies[table][symbol];
      if (frequency > 0) coders[table][symbol] = SymbolCoder::of(start, frequency);
      start += frequency;
    }
  }
  return coders;
}

const uint32_t* places_of(const MagnitudeTables& tables) {
  thread_local std::vector<uint32_t> places;
  places.resize(std::max(places.size(), tables.frequencies.size() * kMagnitudeScale));
  uint32_t* to = places.data();
  for (const std::array<uint16_t, 256>& frequencies : tables.frequencies) {
    for (uint32_t symbol = 0; symbol < 256; ++symbol) {
      const uint32_t frequency = frequencies[symbol];
      for (uint32_t place = 0; place < frequency; ++place) *to++ = symbol << 24 | (frequency - 1) << 12 | place;
    }
  }
  return places.data();
}

void put_ends(const States& states, const Stacks& stacks, std::byte* code, std::byte* bits, StrandToEncode& strand) {
  code -= kMagnitudeStateBytes;
  for (size_t lane = 0; lane < states.size(); ++lane) store_le(code + 4 * lane, states[lane]);
  bits -= kBitsStateBytes;
  for (size_t i = 0; i < stacks.size(); ++i) {
    store_le(bits + 4 * i, static_cast<uint32_t>(stacks[i].held));
    bits[4 * stacks.size() + i] = static_cast<std::byte>(stacks[i].count);
  }
  strand.code = strand.code.last(static_cast<size_t>(strand.code.data() + strand.code.size() - code));
  strand.bits = strand.bits.last(static_cast<size_t>(strand.bits.data() + strand.bits.size() - bits));
}
States take_states(const std::byte*& code) {
  States states;
  for (uint32_t& state : states) {
    state = load_le<uint32_t>(code);
    code += 4;
  }
  return states;
}
Stacks take_stacks(const std::byte*& bits) {
  Stacks stacks;
  for (size_t i = 0; i < stacks.size(); ++i) {
    stacks[i].held = load_le<uint32_t>(bits + 4 * i);
    stacks[i].count = static_cast<uint32_t>(bits[4 * stacks.size() + i]) % kWordBits;
  }
  bits += kBitsStateBytes;
  return stacks;
}

bool are_as_begun(const States& states, const Stacks& stacks) {
  return std::all_of(states.begin(), states.end(), [](uint32_t state) { return state == kStateMin; }) &&
         std::all_of(stacks.begin(), stacks.end(), [](const BitStack& stack) { return stack.count == 0; });
}

bool have_states(StrandsToDecode strands) {
  for (const StrandToDecode& strand : strands) {
    if (strand.code.size() < kMagnitudeStateBytes || strand.bits.size() < kBitsStateBytes) return false;
    const std::byte* code = strand.code.data();
    for (const uint32_t state : take_states(code)) {
      if (state < kStateMin || state >> 16 >= kStateMin) return false;
    }
  }
  return true;
}

namespace {

/// How many of a magnitude's low bits are in the word that begins with bit `from_bit`.
unsigned bits_of_word(uint32_t magnitude, unsigned from_bit) {
  const unsigned below = bits_below(magnitude);
  return std::min(below - std::min(below, from_bit), kWordBits);
}

/// Encodes a strand from its end to its beginning, so that it can be decoded from its beginning.
template <class T>
class PlainEncoder {
 public:
  PlainEncoder(StrandToEncode& strand, size_t distance, const MagnitudeTables& tables, const SymbolCoders& coders)
      : strand_(strand),
        distance_(distance),
        tables_(tables),
        coders_(coders),
        code_(strand.code.data() + strand.code.size()),
        bits_(strand.bits.data() + strand.bits.size()) {
    states_.fill(kStateMin);
  }
  void step(size_t first) {
    for (size_t lane = kMagnitudeLanes; lane-- > 0;) encode_magnitude(first + lane, states_[lane]);
    for (size_t half : {kStacks, size_t{0}}) {
      if constexpr (sizeof(T) == 8) push_bits(first + half, kWordBits);
      push_bits(first + half, 0);
    }
  }
  void finish() { put_ends(states_, stacks_, code_, bits_, strand_); }

 private:
  void encode_magnitude(size_t i, uint32_t& state) {
    const uint8_t* const magnitude = strand_.magnitudes + i;
    const SymbolCoder& coder = coders_[tables_.table_of[context_of(magnitude, distance_)]][*magnitude];
    const uint32_t others = coder.terms & (kMagnitudeScale - 1);
    store_le(code_ - 2, static_cast<uint16_t>(state));
    const unsigned full = state >> kStateShift >= kMagnitudeScale - others ? 1 : 0;
    code_ -= 2 * full;
    state >>= 16 * full;
    const auto high = static_cast<uint32_t>(uint64_t{state} * coder.reciprocal >> 32);
    state += (coder.terms >> 16) + (high >> (coder.terms >> 12 & 15)) * others;
  }
  /// Of the numbers from `first` on, one in each stack, up to 32 bits from the one numbered `from_bit`.
  void push_bits(size_t first, unsigned from_bit) {
    for (size_t stack = kStacks; stack-- > 0;) {
      const auto number = uint64_t{load_le<T>(strand_.numbers.data() + (first + stack) * sizeof(T))};
      const unsigned count = bits_of_word(strand_.magnitudes[first + stack], from_bit);
      stacks_[stack].push(static_cast<uint32_t>(number >> from_bit & ((uint64_t{1} << count) - 1)), count, bits_);
    }
  }

  StrandToEncode& strand_;
  const size_t distance_;
  const MagnitudeTables& tables_;
  const SymbolCoders& coders_;
  std::byte *code_, *bits_;
  States states_{};
  Stacks stacks_;
};

template <class T>
class PlainDecoder {
 public:
  PlainDecoder(const StrandToDecode& strand, size_t distance, const MagnitudeTables& tables, const uint32_t* places)
      : strand_(strand),
        distance_(distance),
        tables_(tables),
        places_(places),
        code_(strand.code.data()),
        bits_(strand.bits.data()),
        states_(take_states(code_)),
        stacks_(take_stacks(bits_)) {}
  /// False if the code ends before the numbers.
  bool step(size_t first) {
    for (size_t lane = 0; lane < kMagnitudeLanes; ++lane) {
      if (!decode_magnitude(first + lane, states_[lane])) return false;
    }
    for (size_t half : {size_t{0}, kStacks}) {
      for (size_t i = first + half; i < first + half + kStacks; ++i)
        store_le(number(i), static_cast<T>(least_of(strand_.magnitudes[i])));
      if (!pop_bits(first + half, 0)) return false;
      if constexpr (sizeof(T) == 8) {
        if (!pop_bits(first + half, kWordBits)) return false;
      }
    }
    return true;
  }
  bool at_end() const {
    return code_ == strand_.code.data() + strand_.code.size() && bits_ == strand_.bits.data() + strand_.bits.size() &&
           are_as_begun(states_, stacks_);
  }

 private:
  std::byte* number(size_t i) { return strand_.numbers.data() + i * sizeof(T); }
  bool decode_magnitude(size_t i, uint32_t& state) {
    uint8_t* const magnitude = strand_.magnitudes + i;
    const uint32_t table = tables_.table_of[context_of(magnitude, distance_)];
    const uint32_t place = places_[table * kMagnitudeScale + (state & (kMagnitudeScale - 1))];
    *magnitude = static_cast<uint8_t>(place >> 24);
    const uint32_t frequency = (place >> 12 & (kMagnitudeScale - 1)) + 1;
    state = frequency * (state >> kMagnitudeScaleBits) + (place & (kMagnitudeScale - 1));
    const unsigned lacking = state < kStateMin ? 1 : 0;
    const bool ended = strand_.code.data() + strand_.code.size() - code_ < 2;
    if (ended && lacking != 0) return false;
    const uint32_t word = ended ? 0 : load_le<uint16_t>(code_);
    state = state << 16 * lacking | word * lacking;
    code_ += 2 * lacking;
    return true;
  }
  bool pop_bits(size_t first, unsigned from_bit) {
    const std::byte* const end = strand_.bits.data() + strand_.bits.size();
    for (size_t stack = 0; stack < kStacks; ++stack) {
      uint32_t value = 0;
      if (!stacks_[stack].pop(bits_of_word(strand_.magnitudes[first + stack], from_bit), bits_, end, value))
        return false;
      std::byte* const to = number(first + stack);
      store_le(to, static_cast<T>(load_le<T>(to) | uint64_t{value} << from_bit));
    }
    return true;
  }

  const StrandToDecode& strand_;
  const size_t distance_;
  const MagnitudeTables& tables_;
  const uint32_t* const places_;
  const std::byte *code_, *bits_;
  States states_;
  Stacks stacks_;
};

template <class T>
void encode_of(StrandsToEncode strands, size_t distance, const MagnitudeTables& tables) {
  const SymbolCoders& coders = coders_of(tables);
  for (StrandToEncode& strand : strands) {
    PlainEncoder<T> encoder(strand, distance, tables, coders);
    for (size_t i = strand.numbers.size() / sizeof(T); i > 0;) encoder.step(i -= kMagnitudeLanes);
    encoder.finish();
  }
}

template <class T>
bool decode_of(StrandsToDecode strands, size_t distance, const MagnitudeTables& tables) {
  if (!have_states(strands)) return false;
  const uint32_t* const places = places_of(tables);
  for (const StrandToDecode& strand : strands) {
    PlainDecoder<T> decoder(strand, distance, tables, places);
    for (size_t i = 0; i < strand.numbers.size() / sizeof(T); i += kMagnitudeLanes) {
      if (!decoder.step(i)) return false;
    }
    if (!decoder.at_end()) return false;
  }
  return true;
}

/// A kernel of numbers of so many bytes.
template <class Kernel>
auto of_size(size_t number_bytes, Kernel kernel) {
  switch (number_bytes) {
    case 2: return kernel(uint16_t{});
    case 4: return kernel(uint32_t{});
    case 8: return kernel(uint64_t{});
    default: return kernel(uint8_t{});
  }
}

}  // namespace

void measure_plain(size_t number_bytes, ByteSpan numbers, uint8_t* magnitudes) {
  of_size(number_bytes, [&](auto number) { measure_body<decltype(number)>(numbers, magnitudes); });
}
void encode_plain(size_t number_bytes, StrandsToEncode strands, size_t distance, const MagnitudeTables& tables) {
  of_size(number_bytes, [&](auto number) { encode_of<decltype(number)>(strands, distance, tables); });
}
bool decode_plain(size_t number_bytes, StrandsToDecode strands, size_t distance, const MagnitudeTables& tables) {
  return of_size(number_bytes, [&](auto number) { return decode_of<decltype(number)>(strands, distance, tables); });
}

namespace {

#if VARVE_HAS_AVX2_KERNELS
bool machine_has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vbmi") &&
                          __builtin_cpu_supports("avx512vbmi2");
  return has && machine_has_avx2();
}
#endif

std::vector<MagnitudeKernels> kernels_of_machine() {
  std::vector<MagnitudeKernels> kernels = {{"plain", measure_plain, encode_plain, decode_plain}};
#if VARVE_HAS_AVX2_KERNELS
  if (machine_has_avx2()) kernels.push_back(avx2_magnitude_kernels());
  if (machine_has_avx512()) kernels.push_back(avx512_magnitude_kernels());
#endif
  return kernels;
}

}  // namespace

std::span<const MagnitudeKernels> magnitude_kernels() {
  static const auto& kernels = *new std::vector<MagnitudeKernels>(kernels_of_machine());  // as posix_file_system()
  return kernels;
}

}  // namespace varve::kernels
