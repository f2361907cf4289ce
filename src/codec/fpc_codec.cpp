#include <algorithm>
#include <array>
#include <bit>

#include "codec/numbers.h"
#include "codec/registry.h"

namespace varve {
namespace {

// M. Burtscher and P. Ratanaworabhan, "FPC: A High-Speed Compressor for Double-Precision Floating-Point Data", IEEE
// Transactions on Computers 58 (2009). FORMAT.md, "fpc": the codes of all values, then the bytes that prediction left
// over.

constexpr int kFpcDefaultLevel = 16;
constexpr int kFpcLevelMax = 25;
constexpr int kFpcLevelMin = 10;

/// Tables larger than the data gain nothing, and would let a hostile level allocate at will.
int level_max(uint64_t elements) {
  return std::clamp(static_cast<int>(std::bit_width(elements)), kFpcLevelMin, kFpcLevelMax);
}

/// The two predictors: each looks up what followed the last time that the values (FCM) or their differences (DFCM) went
/// like this.
class Predictors {
 public:
  explicit Predictors(int level) : mask_((uint64_t{1} << level) - 1), fcm_(mask_ + 1), dfcm_(mask_ + 1) {}

  uint64_t by_value() const { return fcm_[fcm_hash_]; }
  uint64_t by_difference() const { return dfcm_[dfcm_hash_] + last_; }

  void learn(uint64_t actual) {
    fcm_[fcm_hash_] = actual;
    fcm_hash_ = ((fcm_hash_ << 6) ^ (actual >> 48)) & mask_;
    const uint64_t difference = actual - last_;
    dfcm_[dfcm_hash_] = difference;
    dfcm_hash_ = ((dfcm_hash_ << 2) ^ (difference >> 40)) & mask_;
    last_ = actual;
  }

 private:
  uint64_t mask_;
  std::vector<uint64_t> fcm_, dfcm_;
  uint64_t fcm_hash_ = 0, dfcm_hash_ = 0, last_ = 0;
};

/// Three bits tell the leading zero bytes, 0 to 8 without 4, which is rare and coded as 3.
constexpr std::array<uint8_t, 8> kBytesLeft = {8, 7, 6, 5, 3, 2, 1, 0};

uint8_t zero_bytes_code(uint64_t residual) {
  const int zero_bytes = std::countl_zero(residual) / 8;
  return static_cast<uint8_t>(zero_bytes >= 4 ? zero_bytes - 1 : zero_bytes);
}

uint64_t in_order(uint64_t value, bool big_endian) { return big_endian ? __builtin_bswap64(value) : value; }

/// The first `count` bytes of `bytes`, which has at least so many, as a number.
uint64_t load_low_bytes(ByteSpan bytes, size_t count) {
  if (count == 0) return 0;
  if (bytes.size() >= 8) return load_le<uint64_t>(bytes.data()) & (~uint64_t{0} >> (64 - 8 * count));
  std::array<std::byte, 8> padded{};
  std::copy_n(bytes.begin(), count, padded.begin());
  return load_le<uint64_t>(padded.data());
}

class FpcCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::fpc; }
  std::string_view name() const override { return "fpc"; }
  bool applies_to(const PackShape& shape) const override {
    return shape.type.kind == ElementKind::floating && shape.type.bytes == 8;
  }

  /// `level` is the binary logarithm of the tables' entries, 1 to 25; tables larger than the data are cut.
  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level < 0 || level > kFpcLevelMax) return Status::invalid_argument("fpc has the levels 1 to 25");
    const uint64_t elements = in.size() / 8;
    const int used_level = std::min(level == 0 ? kFpcDefaultLevel : level, level_max(elements));
    const bool big_endian = number_format(shape.type).big_endian;
    ByteWriter(params).u8(static_cast<uint8_t>(used_level | (big_endian ? 0x80 : 0)));

    Predictors predictors(used_level);
    const size_t codes_at = out.size();
    out.resize(codes_at + (elements + 1) / 2 + in.size() + sizeof(uint64_t));  // residuals are stored as whole words
    std::byte* residuals = out.data() + codes_at + (elements + 1) / 2;
    for (uint64_t i = 0; i < elements; ++i) {
      const uint64_t actual = in_order(load_le<uint64_t>(in.data() + 8 * i), big_endian);
      const uint64_t by_value = actual ^ predictors.by_value();
      const uint64_t by_difference = actual ^ predictors.by_difference();
      const uint64_t residual = std::min(by_value, by_difference);
      const uint8_t zero_bytes = zero_bytes_code(residual);
      const uint8_t code = static_cast<uint8_t>((by_difference < by_value ? 8 : 0) | zero_bytes);
      out[codes_at + i / 2] |= static_cast<std::byte>(i % 2 == 0 ? code : code << 4);
      store_le(residuals, residual);
      residuals += kBytesLeft[zero_bytes];
      predictors.learn(actual);
    }
    residuals = std::copy(in.begin() + static_cast<ptrdiff_t>(elements * 8), in.end(), residuals);
    out.resize(static_cast<size_t>(residuals - out.data()));
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    const uint64_t elements = out.size() / 8;
    if (params.size() != 1) return Status::corrupt("bad parameters");
    const bool big_endian = (static_cast<uint8_t>(params[0]) & 0x80) != 0;
    const int level = static_cast<uint8_t>(params[0]) & 0x7f;
    if (level < 1 || level > level_max(elements)) return Status::corrupt("fpc: the tables are larger than the data");

    Predictors predictors(level);
    if (in.size() < (elements + 1) / 2) return Status::corrupt("fpc: damaged data");
    const ByteSpan codes = in.first((elements + 1) / 2);
    ByteSpan left = in.subspan(codes.size());
    for (uint64_t i = 0; i < elements; ++i) {
      const auto code = static_cast<uint8_t>(static_cast<uint8_t>(codes[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15);
      const size_t count = kBytesLeft[code & 7];
      if (count > left.size()) return Status::corrupt("fpc: damaged data");
      const uint64_t residual = load_low_bytes(left, count);
      left = left.subspan(count);
      const uint64_t predicted = (code & 8) != 0 ? predictors.by_difference() : predictors.by_value();
      const uint64_t actual = predicted ^ residual;
      store_le(out.data() + 8 * i, in_order(actual, big_endian));
      predictors.learn(actual);
    }
    if (left.size() != out.size() - elements * 8) return Status::corrupt("fpc: damaged data");
    std::copy(left.begin(), left.end(), out.begin() + static_cast<ptrdiff_t>(elements * 8));
    return {};
  }
};

}  // namespace

const Codec& fpc_codec() {
  static const FpcCodec codec;
  return codec;
}

}  // namespace varve
