#include <algorithm>
#include <array>

#include "chunk/chunker_kinds.h"

namespace varve {

namespace {

constexpr int kDegree = 53;
static_assert(kRabinPolynomial >> kDegree == 1);

/// The polynomial `value` * x^`shift` modulo kRabinPolynomial.
constexpr uint64_t shifted(uint64_t value, unsigned shift) {
  for (unsigned i = 0; i < shift; ++i) {
    value <<= 1;
    if (value >> kDegree != 0) value ^= kRabinPolynomial;
  }
  return value;
}

/// What the bits above the degree leave, together with those bits themselves, so that one xor reduces.
constexpr std::array<uint64_t, 256> make_reduction_table() {
  std::array<uint64_t, 256> table{};
  for (uint64_t i = 0; i < 256; ++i) table[i] = (i << kDegree) ^ shifted(i, kDegree);
  return table;
}

/// The share of a fingerprint that the oldest byte of the window has.
constexpr std::array<uint64_t, 256> make_removal_table() {
  std::array<uint64_t, 256> table{};
  for (uint64_t i = 0; i < 256; ++i) table[i] = shifted(i, 8 * (kRollingWindowBytes - 1));
  return table;
}

constexpr std::array<uint64_t, 256> kReductionTable = make_reduction_table();
constexpr std::array<uint64_t, 256> kRemovalTable = make_removal_table();

uint64_t append(uint64_t fingerprint, std::byte byte) {
  return (fingerprint << 8 | static_cast<uint64_t>(byte)) ^ kReductionTable[fingerprint >> (kDegree - 8)];
}

class RabinChunker final : public Chunker {
 public:
  explicit RabinChunker(const ChunkBounds& bounds) : min_(bounds.min), max_(bounds.max) {
    // Beyond the smallest size, one fingerprint in (average - min) is a cut: the highest ones. Not the lowest, so that
    // a run of zeros, whose fingerprint is 0, makes chunks of the largest size.
    const uint64_t rarity = std::max<uint32_t>(bounds.average - bounds.min, 1);
    cut_from_ = (uint64_t{1} << kDegree) - (uint64_t{1} << kDegree) / rarity;
  }

  size_t next(ByteSpan ahead, uint64_t remaining) const override {
    const size_t end = std::min<uint64_t>({ahead.size(), remaining, max_});
    if (end <= min_) return end;
    const std::byte* data = ahead.data();
    uint64_t fingerprint = 0;
    for (size_t at = min_ - kRollingWindowBytes; at < min_; ++at) fingerprint = append(fingerprint, data[at]);
    size_t at = min_;
    while (at < end && fingerprint < cut_from_) {
      const auto oldest = static_cast<uint8_t>(data[at - kRollingWindowBytes]);
      fingerprint = append(fingerprint ^ kRemovalTable[oldest], data[at]);
      ++at;
    }
    return at;
  }
  size_t bytes_ahead() const override { return max_; }

 private:
  uint32_t min_;
  uint32_t max_;
  uint64_t cut_from_;
};

}  // namespace

std::unique_ptr<Chunker> make_rabin_chunker(const ChunkBounds& bounds) {
  return std::make_unique<RabinChunker>(bounds);
}

}  // namespace varve
