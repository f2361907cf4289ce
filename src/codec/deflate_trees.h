#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/bytes.h"

// How a block of RFC 1951 is written, to the bit as zlib does it.

namespace varve {

/// Bits, the lowest of a byte first.
class BitWriter {
 public:
  void put(uint32_t value, uint32_t count) {
    held_ |= static_cast<uint64_t>(value) << held_bits_;
    held_bits_ += count;
    if (held_bits_ < 32) return;
    const size_t at = bytes_.size();
    bytes_.resize(at + 4);
    store_le(bytes_.data() + at, static_cast<uint32_t>(held_));
    held_ >>= 32;
    held_bits_ -= 32;
  }
  /// Whole bytes go out; with zeros up to the end of the last one.
  void fill_byte() {
    held_bits_ = (held_bits_ + 7) / 8 * 8;
    put_whole_bytes();
  }
  /// After fill_byte().
  void put_bytes(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  ByteSpan bytes() {
    put_whole_bytes();
    return bytes_;
  }
  void drop_bytes() { bytes_.clear(); }
  void clear() {
    bytes_.clear();
    held_ = held_bits_ = 0;
  }

 private:
  void put_whole_bytes() {
    for (; held_bits_ >= 8; held_bits_ -= 8, held_ >>= 8) bytes_.push_back(static_cast<std::byte>(held_));
  }

  ByteVector bytes_;
  uint64_t held_ = 0;
  uint32_t held_bits_ = 0;
};

/// A literal, or a match; of that its length without the least one.
struct DeflateSymbol {
  uint16_t distance = 0;  ///< 0: a literal
  uint8_t value = 0;
};

/// The Huffman codes of a block, and the choice among the kinds of a block.
class DeflateTrees {
 public:
  void begin_block();
  void count_literal(uint8_t literal) { ++lengths_.counts[literal]; }
  void count_match(DeflateSymbol symbol);
  /// `content`: of the block; `at_hand`: it may be stored as it is.
  void put_block(std::span<const DeflateSymbol> symbols, ByteSpan content, bool at_hand, bool last, BitWriter& bits);

 private:
  static constexpr size_t kLengthCodes = 286, kDistanceCodes = 30, kBitLengthCodes = 19;
  static constexpr size_t kNodesMax = 2 * kLengthCodes + 1;

  /// The codes of one alphabet.
  struct Tree {
    std::array<uint16_t, kNodesMax> counts{};
    std::array<uint16_t, kNodesMax> bits{};  ///< how long each code is; 0: it does not occur
    std::array<uint16_t, kLengthCodes + 2> codes{};
    int code_max = 0;  ///< the last one that occurs
  };
  struct Alphabet;
  static const Alphabet& length_alphabet();
  static const Alphabet& distance_alphabet();
  static const Alphabet& bit_length_alphabet();

  void build(Tree& tree, const Alphabet& alphabet);
  void limit_bits(Tree& tree, const Alphabet& alphabet, std::span<const int> nodes_down,
                  const std::array<uint16_t, kNodesMax>& parents);
  void count_bit_lengths(const Tree& tree);
  void put_bit_lengths(const Tree& tree, BitWriter& bits) const;
  int last_bit_length() const;
  void put_trees(int bit_lengths, BitWriter& bits) const;
  static void put_symbols(std::span<const DeflateSymbol> symbols, const Tree& lengths, const Tree& distances,
                          BitWriter& bits);
  static const Tree& fixed_lengths();
  static const Tree& fixed_distances();

  Tree lengths_, distances_, bit_lengths_;
  uint64_t own_bits_ = 0, fixed_bits_ = 0;  ///< of the block with codes of its own, and with the fixed ones
};

}  // namespace varve
