#pragma once

#include <array>
#include <vector>

#include "core/bytes.h"

namespace varve {

/// How often each of a small alphabet's symbols is expected, out of kTotal: Schindler's quasi-static model ("A fast
/// renormalisation for arithmetic coding", 1998), whose frequencies change only now and then, in rounds that double up
/// to kRoundMax symbols. Coder and decoder that see the same symbols hold the same model.
class QuasiStaticModel {
 public:
  static constexpr unsigned kTotalBits = 16;
  static constexpr uint32_t kTotal = 1u << kTotalBits;
  static constexpr uint32_t kRoundMax = 1024;

  struct Slot {
    uint32_t start, width;
  };

  explicit QuasiStaticModel(uint32_t symbol_count);

  Slot slot(uint32_t symbol) const { return {starts_[symbol], starts_[symbol + 1] - starts_[symbol]}; }
  /// The symbol whose slot holds `position` < kTotal.
  uint32_t symbol_at(uint32_t position) const {
    uint32_t symbol = first_symbol_[position >> kLookupShift];
    while (starts_[symbol + 1] <= position) ++symbol;
    return symbol;
  }
  void learn(uint32_t symbol) {
    if (left_in_round_ == 0) begin_round();
    --left_in_round_;
    weights_[symbol] += increment_;
  }

 private:
  static constexpr unsigned kLookupShift = 9;
  static constexpr size_t kLookupCount = kTotal >> kLookupShift;

  void begin_round();

  std::vector<uint32_t> weights_;                      ///< as learned since the last round began
  std::vector<uint32_t> starts_;                       ///< cumulated, as in use
  std::array<uint32_t, kLookupCount> first_symbol_{};  ///< of each of equal parts of kTotal
  uint32_t round_length_;
  uint32_t increment_ = 0;
  uint32_t left_in_round_ = 0;
  uint32_t left_with_more_ = 0;  ///< symbols of this round that add one more, so that weights sum up to kTotal
};

/// Subbotin's carry-less range coder ("Carryless Rangecoder", 1999), as in fpzip.
class RangeEncoder {
 public:
  explicit RangeEncoder(ByteVector& out) : out_(out) {}

  void symbol(QuasiStaticModel& model, uint32_t symbol) {
    const QuasiStaticModel::Slot slot = model.slot(symbol);
    model.learn(symbol);
    range_ >>= QuasiStaticModel::kTotalBits;
    low_ += range_ * slot.start;
    range_ *= slot.width;
    normalize();
  }
  /// The low `count` bits of `value`, as they are.
  void bits(uint64_t value, unsigned count) {
    for (; count > 16; count -= 16, value >>= 16) few_bits(static_cast<uint32_t>(value & 0xffff), 16);
    few_bits(static_cast<uint32_t>(value), count);
  }
  void finish() { put(4); }

 private:
  void few_bits(uint32_t value, unsigned count) {
    range_ >>= count;
    low_ += range_ * value;
    normalize();
  }
  void normalize() {
    while (((low_ ^ (low_ + range_)) >> 24) == 0) {
      put(1);
      range_ <<= 8;
    }
    if ((range_ >> 16) == 0) {
      put(2);
      range_ = 0u - low_;
    }
  }
  void put(int count) {
    for (; count > 0; --count, low_ <<= 8) out_.push_back(static_cast<std::byte>(low_ >> 24));
  }

  ByteVector& out_;
  uint32_t low_ = 0;
  uint32_t range_ = ~0u;
};

/// Decodes what RangeEncoder wrote, from untrusted bytes: where they cannot be its work, failed() is true from then on
/// and symbols are meaningless.
class RangeDecoder {
 public:
  explicit RangeDecoder(ByteSpan in) : in_(in) { get(4); }

  uint32_t symbol(QuasiStaticModel& model) {
    range_ >>= QuasiStaticModel::kTotalBits;
    const uint32_t position = below(QuasiStaticModel::kTotal);
    const uint32_t symbol = model.symbol_at(position);
    const QuasiStaticModel::Slot slot = model.slot(symbol);
    model.learn(symbol);
    low_ += range_ * slot.start;
    range_ *= slot.width;
    normalize();
    return symbol;
  }
  uint64_t bits(unsigned count) {
    uint64_t value = 0;
    unsigned shift = 0;
    for (; count > 16; count -= 16, shift += 16) value |= uint64_t{few_bits(16)} << shift;
    return value | uint64_t{few_bits(count)} << shift;
  }
  bool failed() const { return failed_; }
  bool at_end() const { return at_ == in_.size(); }

 private:
  /// Where the code lies in the interval, in units of the range; must be below `limit`.
  uint32_t below(uint32_t limit) {
    const uint32_t position = (code_ - low_) / range_;
    if (position < limit) return position;
    failed_ = true;
    return 0;
  }
  uint32_t few_bits(unsigned count) {
    range_ >>= count;
    const uint32_t value = below(1u << count);
    low_ += range_ * value;
    normalize();
    return value;
  }
  void normalize() {
    while (((low_ ^ (low_ + range_)) >> 24) == 0) {
      get(1);
      range_ <<= 8;
    }
    if ((range_ >> 16) == 0) {
      get(2);
      range_ = 0u - low_;
    }
  }
  void get(int count) {
    for (; count > 0; --count, low_ <<= 8) {
      code_ = code_ << 8 | (at_ < in_.size() ? static_cast<uint32_t>(in_[at_]) : 0);
      if (at_ < in_.size()) {
        ++at_;
      } else {
        failed_ = true;
      }
    }
  }

  ByteSpan in_;
  size_t at_ = 0;
  uint32_t low_ = 0;
  uint32_t range_ = ~0u;
  uint32_t code_ = 0;
  bool failed_ = false;
};

}  // namespace varve
