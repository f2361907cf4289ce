#include "codec/inflater.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace varve {

namespace {

constexpr uint32_t kCodeBitsMax = 15, kDirectBits = 10;
constexpr size_t kLengthSymbols = 288, kDistanceSymbols = 32;
constexpr size_t kEndSymbol = 256, kLongestMatch = 258;

/// Past the input's end come zeros; overran() tells.
class BitReader {
 public:
  explicit BitReader(ByteSpan in) : in_(in) {}
  /// What has not been used up.
  ByteSpan left() const { return in_.subspan(std::min(used_bytes(), in_.size())); }
  /// Goes on with `in`, which begins with left().
  void go_on(ByteSpan in) {
    at_ = held_bits_ / 8;
    in_ = in;
  }
  /// At least 48 bits are at hand then.
  void fill() {
    if (at_ + 8 <= in_.size()) {
      held_ |= load_le<uint64_t>(in_.data() + at_) << held_bits_;
      const uint32_t bytes = (63 - held_bits_) / 8;
      at_ += bytes;
      held_bits_ += 8 * bytes;
      return;
    }
    while (held_bits_ <= 48) {
      if (at_ < in_.size()) held_ |= static_cast<uint64_t>(in_[at_]) << held_bits_;
      ++at_;
      held_bits_ += 8;
    }
  }
  uint64_t held() const { return held_; }
  uint32_t peek(uint32_t bits) const { return static_cast<uint32_t>(held_ & ((uint64_t{1} << bits) - 1)); }
  void drop(uint32_t bits) {
    held_ >>= bits;
    held_bits_ -= bits;
  }
  uint32_t take(uint32_t bits) {
    const uint32_t value = peek(bits);
    drop(bits);
    return value;
  }
  bool overran() const { return used_bytes() > in_.size(); }
  /// Up to the byte that holds the last bit which was taken.
  size_t used_bytes() const { return at_ - held_bits_ / 8; }
  /// Whole bytes from here on; what is left of the byte before is dropped.
  ByteSpan rest() {
    at_ = std::min(used_bytes(), in_.size());
    held_ = held_bits_ = 0;
    return in_.subspan(at_);
  }
  void skip(size_t bytes) { at_ += bytes; }

 private:
  ByteSpan in_;
  size_t at_ = 0;
  uint64_t held_ = 0;
  uint32_t held_bits_ = 0;
};

/// A canonical code: short ones by a table, longer ones bit by bit.
class Code {
 public:
  /// False: it has more codes than fit, or fewer than there is room for, but for one alone.
  bool build(std::span<const uint8_t> lengths) {
    of_length_.fill(0);
    for (const uint8_t length : lengths) ++of_length_[length];
    const size_t used = lengths.size() - of_length_[0];
    of_length_[0] = 0;
    int left = 1;
    std::array<uint16_t, kCodeBitsMax + 2> places{};
    for (size_t length = 1; length <= kCodeBitsMax; ++length) {
      left = 2 * left - of_length_[length];
      if (left < 0) return false;
      places[length + 1] = static_cast<uint16_t>(places[length] + of_length_[length]);
    }
    if (left > 0 && used > 1) return false;
    direct_.fill(0);
    std::array<uint32_t, kCodeBitsMax + 2> next{};
    for (size_t length = 1; length <= kCodeBitsMax; ++length)
      next[length + 1] = (next[length] + of_length_[length]) << 1;
    for (size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const uint32_t length = lengths[symbol];
      if (length == 0) continue;
      symbols_[places[length]++] = static_cast<uint16_t>(symbol);
      const uint32_t code = next[length]++;
      if (length > kDirectBits) continue;
      uint32_t reversed = 0;
      for (uint32_t bit = 0; bit < length; ++bit) reversed |= (code >> bit & 1) << (length - 1 - bit);
      for (uint32_t i = reversed; i < 1U << kDirectBits; i += 1U << length)
        direct_[i] = static_cast<uint16_t>(symbol << 4 | length);
    }
    return true;
  }

  /// kNone: no such code. Takes 15 bits at most.
  uint32_t take(BitReader& bits) const {
    const uint16_t entry = direct_[bits.peek(kDirectBits)];
    if (entry != 0) {
      bits.drop(entry & 15);
      return entry >> 4;
    }
    uint32_t code = 0, first = 0, index = 0;
    for (uint32_t length = 1; length <= kCodeBitsMax; ++length) {
      code |= static_cast<uint32_t>(bits.held() >> (length - 1) & 1);
      const uint32_t count = of_length_[length];
      if (code < first + count) {
        bits.drop(length);
        return symbols_[index + code - first];
      }
      index += count;
      first = (first + count) << 1;
      code <<= 1;
    }
    return kNone;
  }
  static constexpr uint32_t kNone = UINT32_MAX;

 private:
  std::array<uint16_t, kCodeBitsMax + 1> of_length_{};
  std::array<uint16_t, kLengthSymbols> symbols_{};
  std::array<uint16_t, 1U << kDirectBits> direct_{};  ///< symbol and length; 0: a longer one, or none
};

struct Range {
  uint16_t base;
  uint8_t extra_bits;
};
constexpr auto kLengthRanges = [] {
  std::array<Range, 29> ranges{};
  uint32_t base = 3;
  for (size_t code = 0; code < 28; ++code) {
    const uint32_t extra = code < 8 ? 0 : static_cast<uint32_t>(code / 4) - 1;
    ranges[code] = {static_cast<uint16_t>(base), static_cast<uint8_t>(extra)};
    base += 1U << extra;
  }
  ranges[28] = {kLongestMatch, 0};
  return ranges;
}();
constexpr auto kDistanceRanges = [] {
  std::array<Range, 30> ranges{};
  uint32_t base = 1;
  for (size_t code = 0; code < 30; ++code) {
    const uint32_t extra = code < 4 ? 0 : static_cast<uint32_t>(code / 2) - 1;
    ranges[code] = {static_cast<uint16_t>(base), static_cast<uint8_t>(extra)};
    base += 1U << extra;
  }
  return ranges;
}();

struct Match {
  size_t length, distance;
};

/// The two codes of a block.
struct BlockCodes {
  Code lengths_or_literals, of_distances;

  /// Of a symbol that is no literal nor the end. Nothing: there is none.
  std::optional<Match> match(BitReader& bits, uint32_t symbol) const {
    if (symbol - kEndSymbol - 1 >= kLengthRanges.size()) return std::nullopt;
    const Range length = kLengthRanges[symbol - kEndSymbol - 1];
    Match match{length.base + bits.take(length.extra_bits), 0};
    const uint32_t code = of_distances.take(bits);
    if (code >= kDistanceRanges.size()) return std::nullopt;
    match.distance = kDistanceRanges[code].base + bits.take(kDistanceRanges[code].extra_bits);
    return match;
  }

  bool read_fixed() {
    std::array<uint8_t, kLengthSymbols> lengths{};
    for (size_t symbol = 0; symbol < kLengthSymbols; ++symbol)
      lengths[symbol] = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
    std::array<uint8_t, kDistanceSymbols> distances{};
    distances.fill(5);
    return lengths_or_literals.build(lengths) && of_distances.build(distances);
  }

  bool read(BitReader& bits) {
    constexpr std::array<uint8_t, 19> order = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    const size_t length_count = 257 + bits.take(5), distance_count = 1 + bits.take(5), count = 4 + bits.take(4);
    if (length_count > 286 || distance_count > 30) return false;
    std::array<uint8_t, 19> code_lengths{};
    for (size_t i = 0; i < count; ++i) {
      bits.fill();
      code_lengths[order[i]] = static_cast<uint8_t>(bits.take(3));
    }
    // Of the code of lengths and that of literals, one alone leaves room, too; programs do not write that.
    if (!lengths_or_literals.build(code_lengths)) return false;
    std::array<uint8_t, 286 + 30> lengths{};
    for (size_t i = 0; i < length_count + distance_count;) {
      bits.fill();
      const uint32_t symbol = lengths_or_literals.take(bits);
      if (symbol > 18 || bits.overran()) return false;
      if (symbol < 16) {
        lengths[i++] = static_cast<uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) return false;
      const uint8_t length = symbol == 16 ? lengths[i - 1] : uint8_t{0};
      const size_t repeats = symbol == 16 ? 3 + bits.take(2) : symbol == 17 ? 3 + bits.take(3) : 11 + bits.take(7);
      if (i + repeats > length_count + distance_count) return false;
      std::fill_n(lengths.begin() + static_cast<ptrdiff_t>(i), repeats, length);
      i += repeats;
    }
    if (lengths[kEndSymbol] == 0) return false;
    return lengths_or_literals.build(std::span(lengths).first(length_count)) &&
           of_distances.build(std::span(lengths).subspan(length_count, distance_count));
  }
};

/// Bytes before `to`, of which some may be those that are written first.
void copy_match(const Match& match, std::byte* to) {
  for (size_t i = 0; i < match.length; ++i)
    to[i] = to[static_cast<ptrdiff_t>(i) - static_cast<ptrdiff_t>(match.distance)];
}

class InflateWork {
 public:
  using End = Inflated::End;
  InflateWork(ByteSpan in, size_t out_bytes_max, ByteVector& out)
      : bits_(in), out_(out), begin_(out.size()), at_(out.size()), end_max_(out.size() + out_bytes_max) {}

  Inflated run() {
    Inflated found;
    for (bool first = true;; first = false) {
      bits_.fill();
      const bool last = bits_.take(1) != 0;
      const uint32_t kind = bits_.take(2);
      symbols_ = 0;
      const std::optional<End> failed = kind == 0 ? copy_stored() : block(kind);
      if (failed) {
        found.end = *failed;
        break;
      }
      ++found.blocks;
      if (first) {
        found.first_block_symbols = symbols_;
        found.first_block_bytes = at_ - begin_;
        found.one_block = last;
      }
      if (!last) continue;
      found.end = End::whole;
      found.in_bytes = bits_.used_bytes();
      break;
    }
    out_.resize(at_);
    return found;
  }

 private:
  std::optional<End> copy_stored() {
    const ByteSpan rest = bits_.rest();
    if (rest.size() < 4) return End::cut;
    const auto bytes = load_le<uint16_t>(rest.data());
    if (load_le<uint16_t>(rest.data() + 2) != static_cast<uint16_t>(~bytes)) return End::damaged;
    const size_t there = std::min<size_t>(bytes, rest.size() - 4);
    if (!reserve(there)) return End::cut;
    std::copy_n(rest.begin() + 4, there, out_.begin() + static_cast<ptrdiff_t>(at_));
    at_ += there;
    bits_.skip(4 + there);
    return there < bytes ? std::optional(End::cut) : std::nullopt;
  }

  std::optional<End> block(uint32_t kind) {
    if (kind == 3) return End::damaged;
    if (!(kind == 1 ? codes_.read_fixed() : codes_.read(bits_))) return bits_.overran() ? End::cut : End::damaged;
    for (;;) {
      bits_.fill();
      const uint32_t symbol = codes_.lengths_or_literals.take(bits_);
      if (bits_.overran()) return End::cut;
      if (symbol == kEndSymbol) return std::nullopt;
      if (symbol < kEndSymbol) {
        if (!reserve(1)) return End::cut;
        out_[at_++] = static_cast<std::byte>(symbol);
      } else {
        const std::optional<Match> match = codes_.match(bits_, symbol);
        if (!match) return End::damaged;
        if (bits_.overran()) return End::cut;
        if (match->distance > at_ - begin_) return End::damaged;
        if (!reserve(match->length)) return End::cut;
        copy_match(*match, out_.data() + at_);
        at_ += match->length;
      }
      ++symbols_;
    }
  }

  /// There is room for so many bytes more.
  bool reserve(size_t bytes) {
    if (at_ + bytes <= out_.size()) return true;
    if (at_ + bytes > end_max_) return false;
    out_.resize(std::min(end_max_, std::max(at_ + bytes + 16_KiB, at_ + (at_ - begin_))));
    return true;
  }

  BitReader bits_;
  ByteVector& out_;
  const size_t begin_;
  size_t at_;
  const size_t end_max_;
  uint32_t symbols_ = 0;
  BlockCodes codes_;
};

}  // namespace

Inflated inflate(ByteSpan in, size_t out_bytes_max, ByteVector& out) {
  return InflateWork(in, out_bytes_max, out).run();
}

class InflateStream::Work {
 public:
  explicit Work(MoreInput more) : more_(std::move(more)) {}

  Status read(MutableByteSpan into) {
    while (!into.empty()) {
      if (given_ == made_) VARVE_TRY(make_more());
      if (given_ == made_) return cut();
      const size_t bytes = std::min(into.size(), made_ - given_);
      std::copy_n(window_.begin() + static_cast<ptrdiff_t>(given_), bytes, into.begin());
      given_ += bytes;
      into = into.subspan(bytes);
    }
    return {};
  }

 private:
  enum class Phase : uint8_t { header, stored, coded, ended };

  static Status cut() { return Status::corrupt("a deflated stream ends before its content does"); }
  Status damaged() const { return bits_.overran() ? cut() : Status::corrupt("a deflated stream is damaged"); }

  /// Fills what is free of the window, unless the stream ends.
  Status make_more() {
    const size_t kept = std::min(made_, kFarthest);
    std::copy_n(window_.begin() + static_cast<ptrdiff_t>(made_ - kept), kept, window_.begin());
    made_ = given_ = kept;
    while (phase_ != Phase::ended && has_room()) {
      VARVE_TRY(look_ahead());
      switch (phase_) {
        case Phase::header: VARVE_TRY(begin_block()); break;
        case Phase::stored: VARVE_TRY(copy_stored()); break;
        case Phase::coded: VARVE_TRY(take_symbols()); break;
        case Phase::ended: break;
      }
    }
    return {};
  }

  bool has_room() const { return made_ + kLongestMatch <= window_.size(); }

  bool lacks_input() const { return !input_ended_ && bits_.left().size() < kAheadBytes; }

  /// As much input as a block's header or a symbol takes at most, or all that is left.
  Status look_ahead() {
    if (!lacks_input()) return {};
    const ByteSpan left = bits_.left();
    std::copy(left.begin(), left.end(), input_.begin());  // to the front
    const MutableByteSpan rest = MutableByteSpan(input_).subspan(left.size());
    VARVE_ASSIGN(const size_t got, more_(rest));
    input_ended_ = got < rest.size();
    bits_.go_on(ByteSpan(input_).first(left.size() + got));
    return {};
  }

  Status begin_block() {
    if (last_) {
      phase_ = Phase::ended;
      return {};
    }
    bits_.fill();
    last_ = bits_.take(1) != 0;
    const uint32_t kind = bits_.take(2);
    if (kind == 0) {
      const ByteSpan rest = bits_.rest();
      if (rest.size() < 4) return cut();
      stored_left_ = load_le<uint16_t>(rest.data());
      if (load_le<uint16_t>(rest.data() + 2) != static_cast<uint16_t>(~stored_left_)) return damaged();
      bits_.skip(4);
      phase_ = stored_left_ > 0 ? Phase::stored : Phase::header;
      return {};
    }
    phase_ = Phase::coded;
    if (kind == 3 || !(kind == 1 ? codes_.read_fixed() : codes_.read(bits_)) || bits_.overran()) return damaged();
    return {};
  }

  Status copy_stored() {
    const ByteSpan left = bits_.left();
    const size_t bytes = std::min({stored_left_, left.size(), window_.size() - made_});
    if (bytes == 0) return cut();
    std::copy_n(left.begin(), bytes, window_.begin() + static_cast<ptrdiff_t>(made_));
    bits_.skip(bytes);
    made_ += bytes;
    stored_left_ -= bytes;
    if (stored_left_ == 0) phase_ = Phase::header;
    return {};
  }

  Status take_symbols() {
    while (has_room()) {
      if (lacks_input()) VARVE_TRY(look_ahead());
      bits_.fill();
      const uint32_t symbol = codes_.lengths_or_literals.take(bits_);
      if (bits_.overran()) return damaged();
      if (symbol == kEndSymbol) {
        phase_ = Phase::header;
        return {};
      }
      if (symbol < kEndSymbol) {
        window_[made_++] = static_cast<std::byte>(symbol);
        continue;
      }
      const std::optional<Match> match = codes_.match(bits_, symbol);
      if (!match || bits_.overran() || match->distance > made_) return damaged();
      copy_match(*match, window_.data() + made_);
      made_ += match->length;
    }
    return {};
  }

  static constexpr size_t kFarthest = 32_KiB, kMadeBytes = 64_KiB, kInputBytes = 64_KiB, kAheadBytes = 1_KiB;

  const MoreInput more_;
  ByteVector input_ = ByteVector(kInputBytes), window_ = ByteVector(kFarthest + kMadeBytes);
  bool input_ended_ = false;
  BitReader bits_{ByteSpan()};
  BlockCodes codes_;
  Phase phase_ = Phase::header;
  bool last_ = false;            ///< the block is
  size_t stored_left_ = 0;       ///< of a block that is not compressed
  size_t made_ = 0, given_ = 0;  ///< of the window
};

InflateStream::InflateStream(MoreInput more) : work_(std::make_unique<Work>(std::move(more))) {}
InflateStream::~InflateStream() = default;

Status InflateStream::read(MutableByteSpan into) { return work_->read(into); }

}  // namespace varve
