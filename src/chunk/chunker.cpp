#include "chunk/chunker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string_view>

namespace varve {

namespace {

constexpr const char* kChunkerHint =
    "write fixed:SIZE, gear:AVERAGE or rabin:AVERAGE, or give gear and rabin MIN,AVERAGE,MAX";

std::string_view kind_name(ChunkerKind kind) {
  switch (kind) {
    case ChunkerKind::fixed: return "fixed";
    case ChunkerKind::gear: return "gear";
    case ChunkerKind::rabin: return "rabin";
  }
  return "unknown";
}

ChunkBounds with_defaults(const ChunkerOptions& options) {
  const uint64_t average = options.bytes_average;
  const auto min = static_cast<uint32_t>(std::max<uint64_t>(average / 4, kChunkBytesMin));
  const auto max = static_cast<uint32_t>(std::min<uint64_t>(average * 8, kChunkBytesMax));
  return {.min = options.bytes_min != 0 ? options.bytes_min : min,
          .average = options.bytes_average,
          .max = options.bytes_max != 0 ? options.bytes_max : max};
}

Status check(const ChunkerOptions& options) {
  const std::string name = chunker_name(options);
  if (options.bytes_average < kChunkBytesMin || options.bytes_average > kChunkBytesMax) {
    return Status::invalid_argument(
        fmt::format("a chunk size must lie between {} and {} bytes", kChunkBytesMin, kChunkBytesMax), name);
  }
  if (options.kind == ChunkerKind::fixed) {
    if (options.bytes_min == 0 && options.bytes_max == 0) return {};
    return Status::invalid_argument("fixed chunks have one size, no smallest and largest", name, kChunkerHint);
  }
  if (!std::has_single_bit(options.bytes_average)) {
    return Status::invalid_argument("the average size of content-defined chunks must be a power of two", name);
  }
  const ChunkBounds bounds = with_defaults(options);
  if (bounds.min < kChunkBytesMin || bounds.max > kChunkBytesMax) {
    return Status::invalid_argument(
        fmt::format("chunk sizes must lie between {} and {} bytes", kChunkBytesMin, kChunkBytesMax), name);
  }
  if (bounds.min > bounds.average || bounds.average > bounds.max) {
    return Status::invalid_argument("the smallest, average and largest chunk size must come in this order", name);
  }
  return {};
}

bool parse_number(std::string_view text, uint32_t& number) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number != 0;
}

/// One to three numbers between commas; returns how many, 0 if it is anything else.
size_t parse_numbers(std::string_view text, std::array<uint32_t, 3>& numbers) {
  for (size_t count = 0; count < numbers.size(); ++count) {
    const size_t comma = text.find(',');
    if (!parse_number(text.substr(0, comma), numbers[count])) return 0;
    if (comma == std::string_view::npos) return count + 1;
    text.remove_prefix(comma + 1);
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<Chunker>> make_chunker(const ChunkerOptions& options) {
  VARVE_TRY(check(options));
  switch (options.kind) {
    case ChunkerKind::fixed: return make_fixed_chunker(options.bytes_average);
    case ChunkerKind::gear: return make_gear_chunker(with_defaults(options));
    case ChunkerKind::rabin: return make_rabin_chunker(with_defaults(options));
  }
  return Status::invalid_argument("unknown kind of chunker", std::to_string(static_cast<unsigned>(options.kind)));
}

Result<ChunkerOptions> parse_chunker(std::string_view text) {
  const Status bad = Status::invalid_argument("not a chunker", std::string(text), kChunkerHint);
  const size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  ChunkerOptions options;
  if (kind == "fixed") {
    options.kind = ChunkerKind::fixed;
  } else if (kind == "gear") {
    options.kind = ChunkerKind::gear;
  } else if (kind == "rabin") {
    options.kind = ChunkerKind::rabin;
  } else {
    return bad;
  }
  if (colon != std::string_view::npos) {
    std::array<uint32_t, 3> numbers{};
    const size_t count = parse_numbers(text.substr(colon + 1), numbers);
    if (count == 1) {
      options.bytes_average = numbers[0];
    } else if (count == 3) {
      options.bytes_min = numbers[0];
      options.bytes_average = numbers[1];
      options.bytes_max = numbers[2];
    } else {
      return bad;
    }
  }
  VARVE_TRY(check(options));
  return options;
}

std::string chunker_name(const ChunkerOptions& options) {
  if (options.bytes_min == 0 && options.bytes_max == 0) {
    return fmt::format("{}:{}", kind_name(options.kind), options.bytes_average);
  }
  const ChunkBounds bounds = with_defaults(options);
  return fmt::format("{}:{},{},{}", kind_name(options.kind), bounds.min, bounds.average, bounds.max);
}

namespace {

class FixedChunker final : public Chunker {
 public:
  explicit FixedChunker(uint32_t average)
      : average_(average), whole_below_(std::min(average + (average + 1) / 2, kChunkBytesMax + 1)) {}

  size_t next(ByteSpan ahead, uint64_t remaining) const override {
    return std::min<size_t>(ahead.size(), remaining < whole_below_ ? remaining : average_);
  }
  size_t bytes_ahead() const override { return whole_below_ - 1; }

 private:
  uint32_t average_;
  uint32_t whole_below_;  ///< a rest shorter than this is one chunk
};

}  // namespace

std::unique_ptr<Chunker> make_fixed_chunker(uint32_t average) { return std::make_unique<FixedChunker>(average); }

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
