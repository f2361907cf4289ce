#include "codec/deflater.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/deflate_trees.h"

namespace varve {

namespace {

constexpr uint32_t kMatchMin = 3, kMatchMax = 258;
constexpr uint32_t kWindowBytes = 32'768, kWindowMask = kWindowBytes - 1;
/// So much is known of what comes next, but for the content's end.
constexpr uint32_t kLookaheadMin = kMatchMax + kMatchMin + 1;
constexpr uint32_t kMatchDistanceMax = kWindowBytes - kLookaheadMin;
/// A match of the least length from further away is worth less than its three literals.
constexpr uint32_t kTooFar = 4096;

/// How much is done to find matches.
struct MatchEffort {
  uint32_t good;   ///< after a match as long as this, a fourth of the candidates is looked at
  uint32_t lazy;   ///< a match shorter than this may give way to one that begins a byte later; of `fast`, the longest
                   ///< match whose strings are all entered
  uint32_t nice;   ///< nothing longer is looked for
  uint32_t chain;  ///< candidates
  bool fast;       ///< takes every match at once
};
constexpr std::array<MatchEffort, 10> kEfforts = {{{0, 0, 0, 0, true},
                                                   {4, 4, 8, 4, true},
                                                   {4, 5, 16, 8, true},
                                                   {4, 6, 32, 32, true},
                                                   {4, 4, 16, 16, false},
                                                   {8, 16, 32, 32, false},
                                                   {8, 16, 128, 128, false},
                                                   {8, 32, 128, 256, false},
                                                   {32, 128, 258, 1024, false},
                                                   {32, 258, 258, 4096, false}}};

/// The first `bytes_max` bytes that are the same at both, of which that many can be read.
inline uint32_t same_bytes(const std::byte* a, const std::byte* b, uint32_t bytes_max) {
  uint32_t at = 0;
  while (at + 8 <= bytes_max) {
    const uint64_t differ = load_le<uint64_t>(a + at) ^ load_le<uint64_t>(b + at);
    if (differ != 0) return at + static_cast<uint32_t>(std::countr_zero(differ)) / 8;
    at += 8;
  }
  while (at < bytes_max && a[at] == b[at]) ++at;
  return at;
}

}  // namespace

/// One stream. Positions are those in the content, of which 0 stands for none: nothing matches the first byte.
class Deflater::Work {
 public:
  using Take = std::function<bool(ByteSpan made, size_t content_bytes)>;

  /// Gives the made bytes to `take`, a block at a time, and where its content ends, until it wants no more.
  void run(ByteSpan content, DeflateSettings settings, const Take& take) {
    begin(content, settings);
    bool wanted = kEfforts[settings.level].fast ? run_fast(take) : run_lazy(take);
    if (wanted) end_block(take, /*last=*/true);
  }

 private:
  void begin(ByteSpan content, DeflateSettings settings) {
    content_ = content.data();
    size_ = static_cast<uint32_t>(content.size());
    effort_ = kEfforts[settings.level];
    hash_bits_ = settings.memory_level + 7U;
    hash_shift_ = (hash_bits_ + kMatchMin - 1) / kMatchMin;
    block_symbols_ = deflate_block_symbols(settings.memory_level);
    heads_.assign(size_t{1} << hash_bits_, 0);
    before_.resize(kWindowBytes);
    symbols_.resize(block_symbols_);
    symbol_count_ = 0;
    block_begin_ = block_end_ = match_begin_ = 0;
    window_begin_ = 0;
    filled_ = std::min(size_, 2 * kWindowBytes);
    bits_.clear();
    trees_.begin_block();
  }

  /// What zlib has at hand is two windows' worth of the content, which slide on by one when little is left of them.
  void fill_window(uint32_t at) {
    if (filled_ - at >= kLookaheadMin) return;
    if (at - window_begin_ >= kWindowBytes + kMatchDistanceMax) window_begin_ += kWindowBytes;
    filled_ = std::min(size_, window_begin_ + 2 * kWindowBytes);
  }

  uint32_t hash_of(uint32_t at) const {
    const auto byte = [&](uint32_t index) { return static_cast<uint32_t>(content_[at + index]); };
    return ((byte(0) << 2 * hash_shift_) ^ (byte(1) << hash_shift_) ^ byte(2)) & ((1U << hash_bits_) - 1);
  }
  /// Returns the last string of the same hash.
  uint32_t enter(uint32_t at) {
    uint32_t& head = heads_[hash_of(at)];
    const uint32_t last = head;
    before_[at & kWindowMask] = static_cast<uint16_t>(std::min<uint32_t>(at - last, UINT16_MAX));
    head = at;
    return last;
  }
  bool reaches(uint32_t at, uint32_t candidate) const {
    return candidate > window_begin_ && at - candidate <= kMatchDistanceMax;
  }

  /// Looks for a match longer than `longest` and sets match_begin_ if there is one.
  uint32_t longest_match(uint32_t at, uint32_t candidate, uint32_t longest) {
    const uint32_t lookahead = size_ - at;
    const uint32_t length_max = std::min(kMatchMax, lookahead);
    if (longest >= length_max) return std::min(longest, lookahead);
    uint32_t tries = longest >= effort_.good ? effort_.chain >> 2 : effort_.chain;
    const uint32_t nice = std::min(effort_.nice, lookahead);
    const uint32_t limit = std::max(window_begin_, at > kMatchDistanceMax ? at - kMatchDistanceMax : 0);
    const std::byte* const here = content_ + at;
    const auto pair = [](const std::byte* from) { return load_le<uint16_t>(from); };
    uint16_t tail = pair(here + longest - 1);
    const uint16_t front = pair(here);
    for (;;) {
      const std::byte* const there = content_ + candidate;
      if (pair(there + longest - 1) == tail && pair(there) == front) {
        const uint32_t length = 2 + same_bytes(here + 2, there + 2, length_max - 2);
        if (length > longest) {
          match_begin_ = candidate;
          longest = length;
          if (length >= nice) break;
          tail = pair(here + longest - 1);
        }
      }
      const uint32_t back = before_[candidate & kWindowMask];
      if (back >= candidate - limit || --tries == 0) break;
      candidate -= back;
    }
    return longest;
  }

  bool run_fast(const Take& take) {
    uint32_t at = 0;
    while (at < size_) {
      fill_window(at);
      uint32_t length = 0;
      if (size_ - at >= kMatchMin) {
        const uint32_t candidate = enter(at);
        if (reaches(at, candidate)) length = longest_match(at, candidate, kMatchMin - 1);
      }
      bool full = false;
      if (length >= kMatchMin) {
        full = add_match(at - match_begin_, length);
        if (length <= effort_.lazy && size_ - at - length >= kMatchMin) {
          for (uint32_t i = 1; i < length; ++i) enter(at + i);
        }
        at += length;
      } else {
        full = add_literal(at);
        ++at;
      }
      block_end_ = at;
      if (full && !end_block(take, /*last=*/false)) return false;
    }
    return true;
  }

  /// A match waits for the one of the next byte, which takes its place if it is longer.
  bool run_lazy(const Take& take) {
    uint32_t at = 0, length = kMatchMin - 1;
    bool literal_waits = false;
    while (at < size_) {
      fill_window(at);
      const uint32_t last_length = length, last_begin = match_begin_;
      length = kMatchMin - 1;
      if (size_ - at >= kMatchMin) {
        const uint32_t candidate = enter(at);
        if (last_length < effort_.lazy && reaches(at, candidate)) {
          length = longest_match(at, candidate, last_length);
          if (length == kMatchMin && at - match_begin_ > kTooFar) length = kMatchMin - 1;
        }
      }
      if (last_length >= kMatchMin && length <= last_length) {
        const bool full = add_match(at - 1 - last_begin, last_length);
        const uint32_t end = at - 1 + last_length;
        for (uint32_t i = at + 1; i < end && i + kMatchMin <= size_; ++i) enter(i);
        at = block_end_ = end;
        literal_waits = false;
        length = kMatchMin - 1;
        if (full && !end_block(take, /*last=*/false)) return false;
        continue;
      }
      if (literal_waits) {
        const bool full = add_literal(at - 1);
        block_end_ = at;
        if (full && !end_block(take, /*last=*/false)) return false;
      }
      literal_waits = true;
      ++at;
    }
    if (literal_waits) add_literal(at - 1);
    block_end_ = at;
    return true;
  }

  bool add_literal(uint32_t at) {
    const auto literal = static_cast<uint8_t>(content_[at]);
    symbols_[symbol_count_++] = {0, literal};
    trees_.count_literal(literal);
    return symbol_count_ == block_symbols_;
  }
  bool add_match(uint32_t distance, uint32_t length) {
    const DeflateSymbol symbol = {static_cast<uint16_t>(distance), static_cast<uint8_t>(length - kMatchMin)};
    symbols_[symbol_count_++] = symbol;
    trees_.count_match(symbol);
    return symbol_count_ == block_symbols_;
  }

  /// False: no more is wanted.
  bool end_block(const Take& take, bool last) {
    // What has left the window cannot be stored as it is.
    const bool at_hand = block_begin_ >= window_begin_;
    trees_.put_block(std::span(symbols_).first(symbol_count_),
                     ByteSpan(content_ + block_begin_, block_end_ - block_begin_), at_hand, last, bits_);
    symbol_count_ = 0;
    block_begin_ = block_end_;
    trees_.begin_block();
    if (last) bits_.fill_byte();
    const bool wanted = take(bits_.bytes(), block_end_);
    bits_.drop_bytes();
    return wanted;
  }

  const std::byte* content_ = nullptr;
  uint32_t size_ = 0;
  MatchEffort effort_{};
  uint32_t hash_bits_ = 0, hash_shift_ = 0, block_symbols_ = 0;
  std::vector<uint32_t> heads_;   ///< the last string of each hash
  std::vector<uint16_t> before_;  ///< of each string, how far back the one before it is; the most: out of reach
  std::vector<DeflateSymbol> symbols_;
  size_t symbol_count_ = 0;
  uint32_t block_begin_ = 0, block_end_ = 0;
  uint32_t window_begin_ = 0, filled_ = 0;
  uint32_t match_begin_ = 0;
  DeflateTrees trees_;
  BitWriter bits_;
};

Deflater::Deflater() : work_(std::make_unique<Work>()) {}
Deflater::~Deflater() = default;

size_t Deflater::make(ByteSpan content, DeflateSettings settings, MutableByteSpan out) {
  size_t made_bytes = 0;
  work_->run(content, settings, [&](ByteSpan made, size_t) {
    const size_t taken = std::min(made.size(), out.size() - made_bytes);
    if (taken > 0) std::memcpy(out.data() + made_bytes, made.data(), taken);
    made_bytes += taken;
    return made_bytes < out.size();
  });
  return made_bytes;
}

Deflater::Agreement Deflater::compare(ByteSpan content, DeflateSettings settings, ByteSpan expected) {
  Agreement agreement;
  work_->run(content, settings, [&](ByteSpan made, size_t content_bytes) {
    agreement.whole = false;
    const ByteSpan rest = expected.subspan(agreement.bytes);
    const size_t bytes = std::min(made.size(), rest.size());
    const auto same = static_cast<size_t>(
        std::mismatch(made.begin(), made.begin() + static_cast<ptrdiff_t>(bytes), rest.begin()).first - made.begin());
    agreement.bytes += same;
    if (same < made.size()) return false;
    agreement.content_bytes = content_bytes;
    agreement.whole = content_bytes == content.size();
    return true;
  });
  return agreement;
}

}  // namespace varve
