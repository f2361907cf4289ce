#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "codec/kept_room.h"
#include "codec/magnitude_kernels.h"
#include "codec/numbers.h"
#include "codec/range_coder.h"
#include "codec/registry.h"

namespace varve {
namespace {

// What differences leave is small here and large there, and its lowest bits are noise. So there is one symbol for each
// number, its magnitude, and no coder for the bits that none shrinks; and what is near a number tells how large it is.
// The coder is rANS: J. Duda, "Asymmetric numeral systems", 2013; F. Giesen, "Interleaved entropy coders", 2014.
// FORMAT.md, "magnitudes".

using kernels::kMagnitudeContexts;
using kernels::kMagnitudeDistanceMin;
using kernels::kMagnitudeLanes;
using kernels::kMagnitudeScale;
using kernels::kMagnitudeTablesMax;
using kernels::MagnitudeTables;

/// How often each magnitude occurs, a row for each context.
using ContextCounts = std::array<uint32_t, kMagnitudeContexts * 256>;

/// What a table takes itself, about, in bits, and each symbol of it.
constexpr float kTableBits = 16, kTableSymbolBits = 4;

/// count · log2(count), to about one in a thousand.
float weighted_log2(uint32_t count) {
  constexpr unsigned steps_bits = 8;
  static const auto logarithms = [] {
    std::array<float, 1 << steps_bits> of_steps;
    for (size_t i = 0; i < of_steps.size(); ++i)
      of_steps[i] = static_cast<float>(std::log2(1 + (static_cast<double>(i) + 0.5) / of_steps.size()));
    of_steps[0] = 0;  // powers of two are exact
    return of_steps;
  }();
  if (count < 2) return 0;
  const unsigned exponent = static_cast<unsigned>(std::bit_width(count)) - 1;
  const auto step = static_cast<uint32_t>((uint64_t{count} << steps_bits >> exponent) & ((1 << steps_bits) - 1));
  return static_cast<float>(count) * (static_cast<float>(exponent) + logarithms[step]);
}

/// Neighbouring contexts that share a table.
struct SharedTable {
  size_t contexts_end;         ///< behind the last of them
  std::span<uint32_t> counts;  ///< of all magnitudes, in the row of the first of them
  size_t begin = 0, end = 0;   ///< the magnitudes that occur are in between
  float bits = 0;              ///< what its numbers' magnitudes take, with the table
  float bits_joined = 0;       ///< and, with those of the next table, in one
};

/// What the magnitudes of both take by one table, with the table.
float bits_of(const SharedTable& table, const SharedTable& next) {
  uint32_t total = 0;
  float sum = 0, table_bits = kTableBits;
  for (size_t i = std::min(table.begin, next.begin); i < std::max(table.end, next.end); ++i) {
    const uint32_t count = table.counts[i] + next.counts[i];
    if (count == 0) continue;
    total += count;
    sum += weighted_log2(count);
    table_bits += kTableSymbolBits;
  }
  return weighted_log2(total) - sum + table_bits;
}

/// A table for each context in which there is anything.
std::vector<SharedTable> tables_of_contexts(ContextCounts& counts) {
  static std::array<uint32_t, 256> none{};
  std::vector<SharedTable> tables;
  for (size_t context = 0; context < kMagnitudeContexts; ++context) {
    const auto row = std::span(counts).subspan(256 * context, 256);
    const auto occurs = [](uint32_t count) { return count > 0; };
    const auto begin = std::find_if(row.begin(), row.end(), occurs);
    if (begin == row.end()) continue;
    const auto end = std::find_if(row.rbegin(), row.rend(), occurs).base();
    tables.push_back({.contexts_end = context + 1,
                      .counts = row,
                      .begin = static_cast<size_t>(begin - row.begin()),
                      .end = static_cast<size_t>(end - row.begin())});
    tables.back().bits = bits_of(tables.back(), {.contexts_end = 0, .counts = none, .begin = tables.back().begin});
  }
  return tables;
}

/// Joins the tables of neighbouring contexts as long as that makes all smaller, or there are too many; in `counts`, so
/// do their rows.
std::vector<SharedTable> shared_tables(ContextCounts& counts) {
  std::vector<SharedTable> tables = tables_of_contexts(counts);
  for (size_t i = 0; i + 1 < tables.size(); ++i) tables[i].bits_joined = bits_of(tables[i], tables[i + 1]);
  const auto gain = [&](size_t i) { return tables[i].bits + tables[i + 1].bits - tables[i].bits_joined; };
  while (tables.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < tables.size(); ++i) {
      if (gain(i) > gain(best)) best = i;
    }
    if (gain(best) <= 0 && tables.size() <= kMagnitudeTablesMax) break;
    SharedTable& table = tables[best];
    const SharedTable& next = tables[best + 1];
    for (size_t i = next.begin; i < next.end; ++i) table.counts[i] += next.counts[i];
    table.contexts_end = next.contexts_end;
    table.begin = std::min(table.begin, next.begin);
    table.end = std::max(table.end, next.end);
    table.bits = table.bits_joined;
    tables.erase(tables.begin() + static_cast<ptrdiff_t>(best) + 1);
    if (best > 0) tables[best - 1].bits_joined = bits_of(tables[best - 1], tables[best]);
    if (best + 1 < tables.size()) tables[best].bits_joined = bits_of(tables[best], tables[best + 1]);
  }
  return tables;
}

/// Frequencies are written as magnitudes, too.
constexpr uint32_t kFrequencyMagnitudes = kernels::magnitude_of(kMagnitudeScale) + 1;
using FrequencyMagnitudes = std::array<uint8_t, 256>;

FrequencyMagnitudes frequency_magnitudes(std::span<const uint32_t> counts) {
  uint64_t total = 0;
  for (const uint32_t count : counts) total += count;
  FrequencyMagnitudes magnitudes{};
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const uint64_t frequency = std::max<uint64_t>((counts[i] * uint64_t{kMagnitudeScale} + total / 2) / total, 1);
    const unsigned below = kernels::bits_below(kernels::magnitude_of(frequency));
    magnitudes[i] = kernels::magnitude_of(std::min<uint64_t>(frequency + (1u << below) / 2, kMagnitudeScale));
  }
  return magnitudes;
}

/// Frequencies in about these proportions, of at least 1 where there is any, which sum up to kMagnitudeScale. None if
/// there are none.
std::optional<std::array<uint16_t, 256>> frequencies_of(const FrequencyMagnitudes& magnitudes) {
  uint64_t sum = 0;
  for (const uint8_t magnitude : magnitudes) sum += kernels::least_of(magnitude);
  if (sum == 0) return std::nullopt;
  std::array<uint16_t, 256> frequencies{};
  uint32_t taken = 0;
  size_t most = 0;
  for (size_t i = 0; i < magnitudes.size(); ++i) {
    if (magnitudes[i] == 0) continue;
    frequencies[i] =
        static_cast<uint16_t>(std::max<uint64_t>(kernels::least_of(magnitudes[i]) * kMagnitudeScale / sum, 1));
    taken += frequencies[i];
    if (frequencies[i] > frequencies[most]) most = i;
  }
  const int64_t frequency = int64_t{frequencies[most]} + kMagnitudeScale - taken;
  if (frequency < 1) return std::nullopt;
  frequencies[most] = static_cast<uint16_t>(frequency);
  return frequencies;
}

/// Writes tables as what a range coder makes of them: the contexts of each, its symbols, and how each one's frequency
/// differs from the one's before.
Status write_tables(const std::vector<SharedTable>& tables, ByteVector& out, MagnitudeTables& result) {
  RangeEncoder coder(out);
  QuasiStaticModel model(kFrequencyMagnitudes);
  coder.bits(tables.size() - 1, 4);
  size_t context = 0;
  for (const SharedTable& table : tables) {
    const FrequencyMagnitudes magnitudes = frequency_magnitudes(table.counts);
    const auto frequencies = frequencies_of(magnitudes);
    if (!frequencies) return Status::internal("the frequencies of magnitudes cannot be told");
    for (; context < table.contexts_end; ++context)
      result.table_of[context] = static_cast<uint8_t>(result.frequencies.size());
    coder.bits(context - 1, 6);
    size_t end = magnitudes.size();
    while (magnitudes[end - 1] == 0) --end;
    coder.bits(end - 1, 8);
    uint32_t before = 0;
    for (size_t i = 0; i < end; ++i) {
      coder.symbol(model, (magnitudes[i] + kFrequencyMagnitudes - before) % kFrequencyMagnitudes);
      before = magnitudes[i];
    }
    result.frequencies.push_back(*frequencies);
  }
  coder.finish();
  return {};
}

Result<MagnitudeTables> read_tables(ByteSpan in, size_t magnitude_count) {
  MagnitudeTables tables;
  RangeDecoder decoder(in);
  QuasiStaticModel model(kFrequencyMagnitudes);
  const size_t table_count = decoder.bits(4) + 1;
  size_t context = 0;
  while (tables.frequencies.size() < table_count) {
    const size_t contexts_end = decoder.bits(6) + 1, end = decoder.bits(8) + 1;
    if (decoder.failed() || contexts_end <= context || end > magnitude_count)
      return Status::corrupt("the tables of magnitudes are none");
    for (; context < contexts_end; ++context)
      tables.table_of[context] = static_cast<uint8_t>(tables.frequencies.size());
    FrequencyMagnitudes magnitudes{};
    uint32_t before = 0;
    for (size_t i = 0; i < end; ++i) {
      before = (before + decoder.symbol(model)) % kFrequencyMagnitudes;
      magnitudes[i] = static_cast<uint8_t>(before);
    }
    const auto frequencies = frequencies_of(magnitudes);
    if (!frequencies) return Status::corrupt("a table of magnitudes is empty");
    tables.frequencies.push_back(*frequencies);
  }
  if (decoder.failed() || !decoder.at_end()) return Status::corrupt("the tables of magnitudes are none");
  return tables;
}

/// Where the number lies that tells most of the next: in the row before, or before that, as near as may be.
size_t telling_distance(const PackShape& shape, size_t numbers) {
  const Run* longest = nullptr;
  for (const Run& run : shape.runs) {
    if (longest == nullptr || run.elements > longest->elements) longest = &run;
  }
  if (longest == nullptr || longest->dims.size() < 2) return kMagnitudeDistanceMin;
  const uint64_t row = longest->dims.front();
  if (row == 0 || row >= numbers) return kMagnitudeDistanceMin;
  const uint64_t distance = (kMagnitudeDistanceMin + row - 1) / row * row;
  return distance < numbers ? static_cast<size_t>(distance) : kMagnitudeDistanceMin;
}

/// How often each magnitude is in each context. Numbers take turns to be counted in two: the same one twice in a row
/// would wait for its own count to be written.
struct MagnitudeCounts {
  ContextCounts even, odd;

  void clear() {
    even.fill(0);
    odd.fill(0);
  }
  void add(const uint8_t* magnitudes, size_t numbers, size_t distance) {
    constexpr size_t counted_at_once = 1024;
    std::array<uint16_t, counted_at_once> places;
    uint32_t *const to_even = even.data(), *const to_odd = odd.data();
    for (size_t begin = 0; begin < numbers; begin += counted_at_once) {
      const size_t count = std::min(numbers - begin, counted_at_once);
      const uint8_t* const of_them = magnitudes + begin;
      for (size_t i = 0; i < count; ++i)
        places[i] = static_cast<uint16_t>(kernels::context_of(of_them + i, distance) << 8 | of_them[i]);
      for (size_t i = 0; i < count; i += 2) {
        ++to_even[places[i]];
        ++to_odd[places[i + 1]];
      }
    }
  }
  /// Once, when all are counted.
  ContextCounts& sums() {
    for (size_t i = 0; i < even.size(); ++i) even[i] += odd[i];
    return even;
  }
};

/// A strand's parts of a room that the thread keeps: magnitudes, one byte a number, with zeros before them, and what
/// they are encoded to.
struct StrandRoom {
  uint8_t* magnitudes = nullptr;
  MutableByteSpan code, bits;
};
using StrandRooms = std::array<StrandRoom, kernels::kMagnitudeStrands>;

KeptRoom& room_of_thread() {
  thread_local KeptRoom room;
  return room;
}
/// Without room for code and bits if numbers have no bytes.
StrandRooms rooms_of(size_t numbers, size_t distance, size_t number_bytes) {
  const size_t before = distance + 1, code_bytes = number_bytes == 0 ? 0 : kernels::code_bytes_max(numbers);
  const size_t bits_bytes = number_bytes == 0 ? 0 : kernels::bits_bytes_max(number_bytes, numbers);
  MutableByteSpan room =
      room_of_thread().take(kernels::kMagnitudeStrands * (before + numbers + code_bytes + bits_bytes));
  const auto take = [&room](size_t bytes) {
    const MutableByteSpan taken = room.first(bytes);
    room = room.subspan(bytes);
    return taken;
  };
  StrandRooms rooms;
  for (StrandRoom& strand : rooms) {
    const MutableByteSpan magnitudes = take(before + numbers);
    std::fill_n(magnitudes.begin(), before, std::byte{0});
    strand.magnitudes = reinterpret_cast<uint8_t*>(magnitudes.data()) + before;
    strand.code = take(code_bytes);
    strand.bits = take(bits_bytes);
  }
  return rooms;
}

/// FORMAT.md, "magnitudes".
struct MagnitudesParams {
  size_t number_bytes = 0;
  uint64_t distance = 0, tables_bytes = 0;
  struct Strand {
    uint64_t code_bytes = 0, bits_bytes = 0;
  };
  std::array<Strand, kernels::kMagnitudeStrands> strands;

  void write(ByteVector& params) const {
    ByteWriter writer(params);
    writer.u8(static_cast<uint8_t>(std::countr_zero(number_bytes)));
    writer.varint(distance);
    writer.varint(tables_bytes);
    for (const Strand& strand : strands) {
      writer.varint(strand.code_bytes);
      writer.varint(strand.bits_bytes);
    }
  }
  static Result<MagnitudesParams> read(ByteSpan params) {
    ByteReader reader(params);
    MagnitudesParams result;
    VARVE_ASSIGN(const uint8_t head, reader.u8());
    result.number_bytes = size_t{1} << (head & 3);
    VARVE_ASSIGN(result.distance, reader.varint());
    VARVE_ASSIGN(result.tables_bytes, reader.varint());
    for (Strand& strand : result.strands) {
      VARVE_ASSIGN(strand.code_bytes, reader.varint());
      VARVE_ASSIGN(strand.bits_bytes, reader.varint());
    }
    if (head > 3 || !reader.at_end()) return Status::corrupt("bad parameters");
    return result;
  }
};

class MagnitudesCodec final : public Codec {
 public:
  CodecNumber number() const override { return CodecNumber::magnitudes; }
  std::string_view name() const override { return "magnitudes"; }
  bool applies_to(const PackShape& shape) const override { return is_machine_number(shape.type); }

  Status encode(ByteSpan in, const PackShape& shape, int level, ByteVector& params, ByteVector& out) const override {
    if (level != 0) return Status::invalid_argument("magnitudes has no levels");
    const size_t number_bytes = shape.type.bytes;
    const size_t numbers = in.size() / number_bytes / kernels::kMagnitudeStride * kMagnitudeLanes;  // of a strand
    MagnitudesParams head{.number_bytes = number_bytes, .distance = telling_distance(shape, numbers), .strands = {}};
    if (numbers > 0) VARVE_TRY(encode_strands(in, numbers, head, out));
    const ByteSpan tail = in.subspan(kernels::kMagnitudeStrands * numbers * number_bytes);
    out.insert(out.end(), tail.begin(), tail.end());
    head.write(params);
    return {};
  }

  Status decode(ByteSpan in, ByteSpan params, MutableByteSpan out) const override {
    VARVE_ASSIGN(const MagnitudesParams head, MagnitudesParams::read(params));
    const size_t numbers = out.size() / head.number_bytes / kernels::kMagnitudeStride * kMagnitudeLanes;
    if (head.distance < kMagnitudeDistanceMin || head.distance > std::max<uint64_t>(numbers, kMagnitudeDistanceMin))
      return Status::corrupt("the distance is out of range");
    const auto take = [&in](uint64_t bytes) -> Result<ByteSpan> {
      if (bytes > in.size()) return Status::corrupt("the body is too short");
      const ByteSpan taken = in.first(bytes);
      in = in.subspan(bytes);
      return taken;
    };
    VARVE_ASSIGN(const ByteSpan tables, take(head.tables_bytes));
    std::array<kernels::StrandToDecode, kernels::kMagnitudeStrands> strands;
    for (size_t i = 0; i < strands.size(); ++i) {
      VARVE_ASSIGN(strands[i].code, take(head.strands[i].code_bytes));
      VARVE_ASSIGN(strands[i].bits, take(head.strands[i].bits_bytes));
      strands[i].numbers = out.first(numbers * head.number_bytes);
      out = out.subspan(strands[i].numbers.size());
    }
    if (in.size() != out.size()) return Status::corrupt("the body has another size than it says");
    std::copy(in.begin(), in.end(), out.begin());
    if (numbers > 0) return decode_strands(tables, strands, head);
    const bool empty = tables.empty() && strands[0].code.empty() && strands[0].bits.empty() &&
                       strands[1].code.empty() && strands[1].bits.empty();
    return empty ? Status() : Status::corrupt("bytes are left");
  }

 private:
  /// The first numbers of `in`, so many in each strand.
  static Status encode_strands(ByteSpan in, size_t numbers, MagnitudesParams& head, ByteVector& out) {
    const kernels::MagnitudeKernels& kernel = kernels::magnitude_kernels().back();
    // Not in the thread's own memory itself, of which every thread of a program that has this library has a share.
    thread_local auto counts = std::make_unique<MagnitudeCounts>();
    counts->clear();
    const StrandRooms rooms = rooms_of(numbers, head.distance, head.number_bytes);
    std::array<kernels::StrandToEncode, kernels::kMagnitudeStrands> strands;
    for (size_t i = 0; i < strands.size(); ++i) {
      const size_t bytes = numbers * head.number_bytes;
      strands[i] = {in.subspan(i * bytes, bytes), rooms[i].magnitudes, rooms[i].code, rooms[i].bits};
      kernel.measure(head.number_bytes, strands[i].numbers, rooms[i].magnitudes);
      counts->add(rooms[i].magnitudes, numbers, head.distance);
    }
    const size_t before = out.size();
    MagnitudeTables tables;
    VARVE_TRY(write_tables(shared_tables(counts->sums()), out, tables));
    head.tables_bytes = out.size() - before;
    kernel.encode(head.number_bytes, strands, head.distance, tables);
    for (size_t i = 0; i < strands.size(); ++i) {
      head.strands[i] = {strands[i].code.size(), strands[i].bits.size()};
      out.insert(out.end(), strands[i].code.begin(), strands[i].code.end());
      out.insert(out.end(), strands[i].bits.begin(), strands[i].bits.end());
    }
    room_of_thread().shrink();
    return {};
  }

  static Status decode_strands(ByteSpan tables_bytes,
                               std::array<kernels::StrandToDecode, kernels::kMagnitudeStrands>& strands,
                               const MagnitudesParams& head) {
    VARVE_ASSIGN(const MagnitudeTables tables, read_tables(tables_bytes, kernels::magnitude_count(head.number_bytes)));
    const StrandRooms rooms = rooms_of(strands[0].numbers.size() / head.number_bytes, head.distance, 0);
    for (size_t i = 0; i < strands.size(); ++i) strands[i].magnitudes = rooms[i].magnitudes;
    const bool decoded = kernels::magnitude_kernels().back().decode(head.number_bytes, strands, head.distance, tables);
    room_of_thread().shrink();
    return decoded ? Status() : Status::corrupt("the code of the magnitudes does not end with them");
  }
};

}  // namespace

const Codec& magnitudes_codec() {
  static const MagnitudesCodec codec;
  return codec;
}

}  // namespace varve
