#include "codec/deflate_trees.h"

#include <algorithm>
#include <bit>

namespace varve {

namespace {

constexpr int kBitsMax = 15, kBitLengthBitsMax = 7;
constexpr size_t kBlockEnd = 256;
constexpr uint32_t kRepeat = 16, kZeros = 17, kManyZeros = 18;
/// RFC 1951: the order in which the lengths of the codes of code lengths come.
constexpr std::array<uint8_t, 19> kBitLengthOrder = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
constexpr std::array<uint8_t, 29> kLengthExtra = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                  2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<uint8_t, 30> kDistanceExtra = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                    6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
constexpr std::array<uint8_t, 19> kBitLengthExtra = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 3, 7};

template <size_t Count>
constexpr std::array<uint16_t, Count> bases_of(const std::array<uint8_t, Count>& extra) {
  std::array<uint16_t, Count> bases{};
  uint32_t base = 0;
  for (size_t code = 0; code < Count; ++code) {
    bases[code] = static_cast<uint16_t>(base);
    base += 1U << extra[code];
  }
  return bases;
}

/// The code of each length (less the least), and what is taken off for its extra bits.
constexpr auto kLengthBases = [] {
  auto bases = bases_of(kLengthExtra);
  bases[28] = 255;  // the longest has a code of its own
  return bases;
}();
constexpr auto kLengthCode = [] {
  std::array<uint8_t, 256> codes{};
  for (size_t code = 0; code < 28; ++code) {
    for (size_t i = 0; i < size_t{1} << kLengthExtra[code]; ++i) {
      codes[std::min<size_t>(kLengthBases[code] + i, 255)] = static_cast<uint8_t>(code);
    }
  }
  codes[255] = 28;
  return codes;
}();
/// Of distances less 1.
constexpr auto kDistanceBases = bases_of(kDistanceExtra);

uint32_t distance_code(uint32_t distance) {
  const uint32_t index = distance - 1;
  if (index < 4) return index;
  const auto high = static_cast<uint32_t>(std::bit_width(index)) - 1;
  return 2 * high + ((index >> (high - 1)) & 1);
}

uint16_t reversed_code(uint32_t code, uint32_t bits) {
  uint32_t result = 0;
  for (; bits > 0; --bits, code >>= 1) result = result << 1 | (code & 1);
  return static_cast<uint16_t>(result);
}

/// Canonical codes (RFC 1951, 3.2.2), the first bit lowest.
template <class Tree>
void number_codes(Tree& tree, size_t count) {
  std::array<uint32_t, kBitsMax + 2> of_length{};
  for (size_t code = 0; code < count; ++code) ++of_length[tree.bits[code]];
  of_length[0] = 0;
  std::array<uint32_t, kBitsMax + 2> next{};
  for (size_t length = 1; length <= kBitsMax; ++length) next[length] = (next[length - 1] + of_length[length - 1]) << 1;
  for (size_t code = 0; code < count; ++code) {
    if (const uint16_t length = tree.bits[code]; length > 0) tree.codes[code] = reversed_code(next[length]++, length);
  }
}

/// Runs of equal code lengths, as the format writes them: `put(code, extra, extra_bits)`.
template <class Lengths, class Put>
void for_each_bit_length(const Lengths& lengths, int code_max, const Put& put) {
  int last = -1, run = 0;
  int next = lengths[0];
  int run_max = next == 0 ? 138 : 7, run_min = next == 0 ? 3 : 4;
  for (int code = 0; code <= code_max; ++code) {
    const int length = next;
    next = code < code_max ? lengths[static_cast<size_t>(code) + 1] : -1;
    if (++run < run_max && length == next) continue;
    if (run < run_min) {
      for (; run > 0; --run) put(static_cast<uint32_t>(length), 0, 0);
    } else if (length != 0) {
      if (length != last) {
        put(static_cast<uint32_t>(length), 0, 0);
        --run;
      }
      put(kRepeat, run - 3, 2);
    } else if (run <= 10) {
      put(kZeros, run - 3, 3);
    } else {
      put(kManyZeros, run - 11, 7);
    }
    run = 0;
    last = length;
    if (next == 0) {
      run_max = 138;
      run_min = 3;
    } else {
      run_max = length == next ? 6 : 7;
      run_min = length == next ? 3 : 4;
    }
  }
}

}  // namespace

struct DeflateTrees::Alphabet {
  size_t codes;
  int bits_max;
  size_t extra_begin;  ///< the first code with extra bits
  std::span<const uint8_t> extra;
  const Tree* fixed;
};

const DeflateTrees::Tree& DeflateTrees::fixed_lengths() {
  static const Tree tree = [] {
    Tree fixed;
    // Two codes more than occur belong to the complete code.
    for (size_t code = 0; code < kLengthCodes + 2; ++code) {
      fixed.bits[code] = code < 144 ? 8 : code < 256 ? 9 : code < 280 ? 7 : 8;
    }
    number_codes(fixed, kLengthCodes + 2);
    return fixed;
  }();
  return tree;
}
const DeflateTrees::Tree& DeflateTrees::fixed_distances() {
  static const Tree tree = [] {
    Tree fixed;
    for (size_t code = 0; code < kDistanceCodes; ++code) fixed.bits[code] = 5;
    number_codes(fixed, kDistanceCodes);
    return fixed;
  }();
  return tree;
}
const DeflateTrees::Alphabet& DeflateTrees::length_alphabet() {
  static const Alphabet alphabet = {kLengthCodes, kBitsMax, kBlockEnd + 1, kLengthExtra, &fixed_lengths()};
  return alphabet;
}
const DeflateTrees::Alphabet& DeflateTrees::distance_alphabet() {
  static const Alphabet alphabet = {kDistanceCodes, kBitsMax, 0, kDistanceExtra, &fixed_distances()};
  return alphabet;
}
const DeflateTrees::Alphabet& DeflateTrees::bit_length_alphabet() {
  static const Alphabet alphabet = {kBitLengthCodes, kBitLengthBitsMax, 0, kBitLengthExtra, nullptr};
  return alphabet;
}

void DeflateTrees::begin_block() {
  std::fill_n(lengths_.counts.begin(), kLengthCodes, uint16_t{0});
  std::fill_n(distances_.counts.begin(), kDistanceCodes, uint16_t{0});
  std::fill_n(bit_lengths_.counts.begin(), kBitLengthCodes, uint16_t{0});
  lengths_.counts[kBlockEnd] = 1;
  own_bits_ = fixed_bits_ = 0;
}

void DeflateTrees::count_match(DeflateSymbol symbol) {
  ++lengths_.counts[kBlockEnd + 1 + kLengthCode[symbol.value]];
  ++distances_.counts[distance_code(symbol.distance)];
}

/// Huffman's algorithm with a heap; the order of what occurs as often is part of the format's bytes: the subtree that
/// is less deep comes first, and else what the heap has first.
void DeflateTrees::build(Tree& tree, const Alphabet& alphabet) {
  std::array<int, kNodesMax> heap{};  // from 1 on; what has been taken out of it is at the end, the last one first
  std::array<uint8_t, kNodesMax> depths{};
  std::array<uint16_t, kNodesMax> parents{};
  size_t heap_bytes = 0, taken_begin = kNodesMax;
  const auto at = [](int node) { return static_cast<size_t>(node); };
  const auto before = [&](int a, int b) {
    const uint16_t of_a = tree.counts[at(a)], of_b = tree.counts[at(b)];
    return of_a < of_b || (of_a == of_b && depths[at(a)] <= depths[at(b)]);
  };
  const auto sift_down = [&](size_t place) {
    const int node = heap[place];
    for (size_t child = 2 * place; child <= heap_bytes; child *= 2) {
      if (child < heap_bytes && before(heap[child + 1], heap[child])) ++child;
      if (before(node, heap[child])) break;
      heap[place] = heap[child];
      place = child;
    }
    heap[place] = node;
  };

  tree.code_max = -1;
  for (size_t code = 0; code < alphabet.codes; ++code) {
    tree.bits[code] = 0;
    if (tree.counts[code] == 0) continue;
    heap[++heap_bytes] = tree.code_max = static_cast<int>(code);
  }
  // There are always two codes at least.
  while (heap_bytes < 2) {
    const int code = heap[++heap_bytes] = tree.code_max < 2 ? ++tree.code_max : 0;
    tree.counts[at(code)] = 1;
    --own_bits_;
    if (alphabet.fixed != nullptr) fixed_bits_ -= alphabet.fixed->bits[at(code)];
  }
  for (size_t place = heap_bytes / 2; place >= 1; --place) sift_down(place);
  auto node = static_cast<int>(alphabet.codes);
  do {
    const int first = heap[1];
    heap[1] = heap[heap_bytes--];
    sift_down(1);
    const int second = heap[1];
    heap[--taken_begin] = first;
    heap[--taken_begin] = second;
    tree.counts[at(node)] = static_cast<uint16_t>(tree.counts[at(first)] + tree.counts[at(second)]);
    depths[at(node)] = static_cast<uint8_t>(std::max(depths[at(first)], depths[at(second)]) + 1);
    parents[at(first)] = parents[at(second)] = static_cast<uint16_t>(node);
    heap[1] = node++;
    sift_down(1);
  } while (heap_bytes >= 2);
  heap[--taken_begin] = heap[1];
  limit_bits(tree, alphabet, std::span(heap).subspan(taken_begin), parents);
  number_codes(tree, at(tree.code_max) + 1);
}

/// `nodes_down`: from the root on.
void DeflateTrees::limit_bits(Tree& tree, const Alphabet& alphabet, std::span<const int> nodes_down,
                              const std::array<uint16_t, kNodesMax>& parents) {
  std::array<int, kBitsMax + 1> of_length{};
  int too_long = 0;
  tree.bits[static_cast<size_t>(nodes_down.front())] = 0;
  for (const int node : nodes_down.subspan(1)) {
    const auto code = static_cast<size_t>(node);
    int bits = tree.bits[parents[code]] + 1;
    if (bits > alphabet.bits_max) {
      bits = alphabet.bits_max;
      ++too_long;
    }
    tree.bits[code] = static_cast<uint16_t>(bits);
    if (node > tree.code_max) continue;
    ++of_length[static_cast<size_t>(bits)];
    const uint64_t extra = code >= alphabet.extra_begin ? alphabet.extra[code - alphabet.extra_begin] : 0;
    own_bits_ += tree.counts[code] * (static_cast<uint64_t>(bits) + extra);
    if (alphabet.fixed != nullptr) fixed_bits_ += tree.counts[code] * (alphabet.fixed->bits[code] + extra);
  }
  if (too_long == 0) return;
  for (; too_long > 0; too_long -= 2) {
    auto bits = static_cast<size_t>(alphabet.bits_max) - 1;
    while (of_length[bits] == 0) --bits;
    --of_length[bits];
    of_length[bits + 1] += 2;
    --of_length[static_cast<size_t>(alphabet.bits_max)];
  }
  // The lengths go to the leaves anew, the longest to those that were taken out of the heap first.
  size_t left = nodes_down.size();
  for (auto bits = static_cast<size_t>(alphabet.bits_max); bits > 0; --bits) {
    for (int count = of_length[bits]; count > 0;) {
      const int node = nodes_down[--left];
      if (node > tree.code_max) continue;
      const auto code = static_cast<size_t>(node);
      own_bits_ += (bits - tree.bits[code]) * uint64_t{tree.counts[code]};
      tree.bits[code] = static_cast<uint16_t>(bits);
      --count;
    }
  }
}

void DeflateTrees::count_bit_lengths(const Tree& tree) {
  for_each_bit_length(tree.bits, tree.code_max, [&](uint32_t code, int, uint32_t) { ++bit_lengths_.counts[code]; });
}

void DeflateTrees::put_bit_lengths(const Tree& tree, BitWriter& bits) const {
  for_each_bit_length(tree.bits, tree.code_max, [&](uint32_t code, int extra, uint32_t extra_bits) {
    bits.put(bit_lengths_.codes[code], bit_lengths_.bits[code]);
    if (extra_bits > 0) bits.put(static_cast<uint32_t>(extra), extra_bits);
  });
}

int DeflateTrees::last_bit_length() const {
  int last = static_cast<int>(kBitLengthOrder.size()) - 1;
  while (last >= 3 && bit_lengths_.bits[kBitLengthOrder[static_cast<size_t>(last)]] == 0) --last;
  return last;
}

void DeflateTrees::put_trees(int bit_lengths, BitWriter& bits) const {
  bits.put(static_cast<uint32_t>(lengths_.code_max + 1 - 257), 5);
  bits.put(static_cast<uint32_t>(distances_.code_max + 1 - 1), 5);
  bits.put(static_cast<uint32_t>(bit_lengths - 4), 4);
  for (int i = 0; i < bit_lengths; ++i) bits.put(bit_lengths_.bits[kBitLengthOrder[static_cast<size_t>(i)]], 3);
  put_bit_lengths(lengths_, bits);
  put_bit_lengths(distances_, bits);
}

void DeflateTrees::put_symbols(std::span<const DeflateSymbol> symbols, const Tree& lengths, const Tree& distances,
                               BitWriter& bits) {
  for (const DeflateSymbol symbol : symbols) {
    if (symbol.distance == 0) {
      bits.put(lengths.codes[symbol.value], lengths.bits[symbol.value]);
      continue;
    }
    const size_t length_code = kLengthCode[symbol.value];
    const size_t length = kBlockEnd + 1 + length_code;
    const auto length_extra = static_cast<uint32_t>(symbol.value - kLengthBases[length_code]);
    bits.put(lengths.codes[length] | length_extra << lengths.bits[length],
             lengths.bits[length] + uint32_t{kLengthExtra[length_code]});
    const size_t distance = distance_code(symbol.distance);
    const auto distance_extra = static_cast<uint32_t>(symbol.distance - 1 - kDistanceBases[distance]);
    bits.put(distances.codes[distance] | distance_extra << distances.bits[distance],
             distances.bits[distance] + uint32_t{kDistanceExtra[distance]});
  }
  bits.put(lengths.codes[kBlockEnd], lengths.bits[kBlockEnd]);
}

void DeflateTrees::put_block(std::span<const DeflateSymbol> symbols, ByteSpan content, bool at_hand, bool last,
                             BitWriter& bits) {
  build(lengths_, length_alphabet());
  build(distances_, distance_alphabet());
  count_bit_lengths(lengths_);
  count_bit_lengths(distances_);
  build(bit_lengths_, bit_length_alphabet());
  const int bit_lengths = last_bit_length() + 1;
  own_bits_ += 3 * static_cast<uint64_t>(bit_lengths) + 5 + 5 + 4;
  const uint64_t fixed_bytes = (fixed_bits_ + 3 + 7) / 8;
  const uint64_t least_bytes = std::min((own_bits_ + 3 + 7) / 8, fixed_bytes);
  const uint32_t last_bit = last ? 1 : 0;
  if (at_hand && content.size() + 4 <= least_bytes) {
    bits.put(last_bit, 3);
    bits.fill_byte();
    const auto size = static_cast<uint32_t>(content.size());
    bits.put((size & 0xffff) | ~size << 16, 32);
    bits.fill_byte();
    bits.put_bytes(content);
  } else if (fixed_bytes == least_bytes) {
    bits.put(2 | last_bit, 3);
    put_symbols(symbols, fixed_lengths(), fixed_distances(), bits);
  } else {
    bits.put(4 | last_bit, 3);
    put_trees(bit_lengths, bits);
    put_symbols(symbols, lengths_, distances_, bits);
  }
}

}  // namespace varve
