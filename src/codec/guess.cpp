#include "codec/guess.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <type_traits>

#include "codec/kernels.h"
#include "codec/number_bits.h"
#include "codec/numbers.h"
#include "core/bytes.h"

namespace varve {

namespace {
/// Less says nothing.
constexpr size_t kRawBytesMin = 32_KiB;
/// No more is looked at, of the middle.
constexpr size_t kRawBytesMax = 1_MiB;
/// Numbers that are looked at for a type, and for what tells of a guess whether it fits.
constexpr size_t kPlaces = 64, kPlacesToVerify = 512;
/// The longest records and rows, in numbers, and the most rows of a plane.
constexpr uint64_t kRecordMax = 32, kRowMax = 65'536, kRowsMax = 2048;
/// Predictions that leave more of the bits than this are none.
constexpr double kCostMax = 0.92;
/// A guess of more structure has to leave so much less: narrower numbers, or records, than the best so far; rows.
constexpr double kSimplerType = 0.85, kSimplerRows = 0.97;
/// An earlier guess fits if it leaves no more than so many times as much.
constexpr double kFits = 1.1;
/// Of a row, so many numbers are compared with those so far before them, for all lengths of rows.
constexpr size_t kRowProbes = 48;
constexpr size_t kRowsTried = 6;
constexpr uint64_t kRowMin = 4;

/// The numbers of a format in some bytes, in the order of their values, one after the other from `phase` on.
struct Numbers {
  Numbers(ByteSpan raw, kernels::NumberFormat number_format, uint32_t phase)
      : begin(raw.data() + phase), count((raw.size() - phase) / number_format.bytes), format(number_format) {}

  template <class T>
  uint64_t number(size_t index) const {
    T value = kernels::load<T>(begin, index);
    if (format.big_endian) value = kernels::swap_bytes(value);
    if (format.floating) value = kernels::to_ordered(value);
    return value;
  }
  /// As a signed number, of which differences are meaningful at any width.
  int64_t operator[](size_t index) const {
    switch (format.bytes) {
      case 8: return static_cast<int64_t>(number<uint64_t>(index));
      case 4: return static_cast<int32_t>(number<uint32_t>(index));
      default: return static_cast<int16_t>(number<uint16_t>(index));
    }
  }

  const std::byte* begin;
  size_t count;
  kernels::NumberFormat format;
};

/// The difference, wrapped round at the width of the numbers.
int64_t wrapped(uint64_t difference, uint32_t bytes) {
  const uint32_t shift = 64 - 8 * bytes;
  return static_cast<int64_t>(difference << shift) >> shift;
}

/// Bits of a difference: 0 of none.
int bits_of(int64_t difference) {
  const auto value = static_cast<uint64_t>(difference);
  return std::bit_width(difference < 0 ? ~value : value) + (difference == 0 ? 0 : 1);
}

/// What is left of number `at` when those before it at all sums of the distances have predicted it (Lorenzo).
int64_t left_of(const Numbers& numbers, size_t at, const std::vector<uint64_t>& distances) {
  uint64_t sum = 0;
  for (size_t corner = 0; corner < size_t{1} << distances.size(); ++corner) {
    size_t from = at;
    for (size_t i = 0; i < distances.size(); ++i) from -= (corner >> i & 1) != 0 ? distances[i] : 0;
    const auto value = static_cast<uint64_t>(numbers[from]);
    sum += std::popcount(corner) % 2 == 0 ? value : 0 - value;
  }
  return wrapped(sum, numbers.format.bytes);
}

/// Some places of numbers, from `first` on. Not at a regular distance, which might be that of records.
class Places {
 public:
  Places(const Numbers& numbers, size_t first, size_t count)
      : first_(first),
        step_(std::max<size_t>((numbers.count - first) / count, 1)),
        end_(numbers.count),
        count_(count) {}
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (size_t i = 0; i < count_; ++i) {
      const size_t at = first_ + i * step_ + (i * size_t{2'654'435'761} >> 8) % step_;
      if (at >= end_) break;
      visit(at);
    }
  }

 private:
  const size_t first_, step_, end_, count_;
};

/// The share of their bits that predictions leave, at some places: `bits` of so many numbers; 1 if those are few. Of
/// noise, a bit less is left than numbers have.
double share_of_bits(uint64_t bits, size_t numbers, uint32_t number_bytes, size_t places) {
  if (numbers < places / 8) return 1;
  return static_cast<double>(bits) / static_cast<double>(numbers * (8 * number_bytes - 1));
}

/// The share that predictions from these distances leave. Numbers that are like the one before, which any coder finds,
/// do not count.
double cost_of(const Numbers& numbers, const std::vector<uint64_t>& distances, size_t places) {
  uint64_t reach = 0;
  for (const uint64_t distance : distances) reach += distance;
  if (numbers.count < reach + 2 * places) return 1;
  uint64_t bits = 0, counted = 0;
  Places(numbers, reach + 1, places).for_each([&](size_t at) {
    if (numbers[at] == numbers[at - 1]) return;
    bits += static_cast<uint64_t>(bits_of(left_of(numbers, at, distances)));
    ++counted;
  });
  return share_of_bits(bits, counted, numbers.format.bytes, places);
}

/// The same of each distance up to kRecordMax, by itself.
template <class T>
std::array<double, kRecordMax + 1> costs_of_records(const Numbers& numbers) {
  std::array<double, kRecordMax + 1> costs;
  costs.fill(1);
  if (numbers.count < kRecordMax + 2 * kPlaces) return costs;
  std::array<uint32_t, kRecordMax + 1> bits{};
  size_t counted = 0;
  Places(numbers, kRecordMax, kPlaces).for_each([&](size_t at) {
    const auto value = static_cast<T>(numbers.number<T>(at));
    if (value == static_cast<T>(numbers.number<T>(at - 1))) return;
    ++counted;
    for (size_t record = 1; record <= kRecordMax; ++record) {
      const auto before = static_cast<T>(numbers.number<T>(at - record));
      bits[record] +=
          static_cast<uint32_t>(bits_of(static_cast<std::make_signed_t<T>>(static_cast<T>(value - before))));
    }
  });
  for (size_t record = 1; record <= kRecordMax; ++record)
    costs[record] = share_of_bits(bits[record], counted, sizeof(T), kPlaces);
  return costs;
}

std::vector<uint64_t> distances_of(const NumberGuess& guess) {
  std::vector<uint64_t> distances = {guess.record};
  uint64_t distance = 1;
  for (size_t i = 0; i + 1 < guess.dims.size(); ++i) distances.push_back(distance *= guess.dims[i]);
  return distances;
}

Numbers numbers_of(const NumberGuess& guess, ByteSpan raw) { return {raw, number_format(guess.type), guess.phase}; }

/// The type, and how far before a number the one is that it is like.
NumberGuess guess_type(ByteSpan raw) {
  NumberGuess best;
  for (const uint32_t bytes : {8u, 4u, 2u}) {
    for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
      for (const ElementKind kind : {ElementKind::floating, ElementKind::signed_integer}) {
        for (uint32_t phase = 0; phase < bytes; ++phase) {
          NumberGuess guess{.type = {kind, order, bytes}, .phase = phase, .dims = {}};
          const Numbers numbers = numbers_of(guess, raw);
          const auto costs = bytes == 8   ? costs_of_records<uint64_t>(numbers)
                             : bytes == 4 ? costs_of_records<uint32_t>(numbers)
                                          : costs_of_records<uint16_t>(numbers);
          for (guess.record = 1; guess.record <= kRecordMax; ++guess.record) {
            guess.cost = costs[guess.record];
            const bool as_simple = guess.type.bytes == best.type.bytes && guess.record <= best.record;
            const double limit = (as_simple ? 1 : kSimplerType) * best.cost;
            if (guess.cost >= limit) continue;
            guess.cost = cost_of(numbers, {guess.record}, kPlacesToVerify);
            if (guess.cost < limit) best = guess;
          }
        }
      }
    }
  }
  return best;
}

/// How long the rows are, by how many numbers are better predicted with those of the row before; the likeliest first.
std::vector<uint64_t> likely_rows(const Numbers& numbers) {
  const uint64_t row_max = std::min<uint64_t>(kRowMax, numbers.count / 2);
  if (row_max < 2 * kRecordMax) return {};
  std::vector<float> steps(numbers.count);
  for (size_t i = 1; i < numbers.count; ++i) {
    const uint64_t difference = static_cast<uint64_t>(numbers[i]) - static_cast<uint64_t>(numbers[i - 1]);
    steps[i] = static_cast<float>(wrapped(difference, numbers.format.bytes));
  }
  std::vector<uint32_t> better(row_max + 1);
  const size_t gap = (numbers.count - row_max - 1) / kRowProbes;
  for (size_t probe = 0; probe < kRowProbes; ++probe) {
    const size_t at = row_max + probe * gap;
    const float step = steps[at];
    const float limit = std::abs(step) / 2;
    const float* const before = &steps[at - row_max];
    for (size_t row = 0; row < row_max; ++row) better[row] += std::abs(step - before[row]) < limit ? 1 : 0;
  }
  // better[i] is of rows of row_max - i.
  std::vector<uint64_t> rows;
  for (uint64_t row = kRowMin; row <= row_max; ++row) {
    if (better[row_max - row] > kRowProbes / 4) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](uint64_t a, uint64_t b) { return better[row_max - a] > better[row_max - b]; });
  rows.resize(std::min(rows.size(), kRowsTried));
  return rows;
}

/// Finds rows, and planes of rows.
void guess_dims(ByteSpan raw, NumberGuess& guess) {
  const Numbers numbers = numbers_of(guess, raw);
  const double cost_before = cost_of(numbers, {1}, kPlacesToVerify);
  uint64_t best_row = 0;
  double best_cost = kSimplerRows * cost_before;
  for (const uint64_t row : likely_rows(numbers)) {
    const double cost = cost_of(numbers, {1, row}, kPlacesToVerify);
    if (cost >= best_cost) continue;
    best_cost = cost;
    best_row = row;
  }
  if (best_row == 0) return;
  guess.dims = {best_row, numbers.count / best_row + 1};
  guess.cost = best_cost;
  double best_plane_cost = kSimplerRows * best_cost;
  for (uint64_t rows = 2; rows <= std::min(numbers.count / 2 / best_row, kRowsMax); ++rows) {
    const std::vector<uint64_t> distances = {1, best_row, rows * best_row};
    if (cost_of(numbers, distances, kPlaces / 4) >= best_plane_cost) continue;
    const double cost = cost_of(numbers, distances, kPlacesToVerify);
    if (cost >= best_plane_cost) continue;
    best_plane_cost = cost;
    guess.dims = {best_row, rows, numbers.count / best_row / rows + 1};
    guess.cost = cost;
  }
}
}  // namespace

PackShape NumberGuess::shape_of(uint64_t raw_bytes) const {
  const uint64_t elements = raw_bytes / type.bytes;
  if (dims.empty()) return {.type = type, .runs = {{elements, {}, false}}};
  // As many planes, or rows, as there are; what is left is a part of one.
  uint64_t plane = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) plane *= dims[i];
  const uint64_t planes = elements / plane;
  PackShape shape{.type = type, .runs = {}};
  if (planes > 0) {
    shape.runs.push_back({planes * plane, dims, true});
    shape.runs.back().dims.back() = planes;
  }
  if (const uint64_t left = elements - planes * plane; left > 0) shape.runs.push_back({left, dims, false});
  return shape;
}

double cost_as(ByteSpan raw, const NumberGuess& guess) {
  return cost_of(numbers_of(guess, raw), distances_of(guess), kPlacesToVerify);
}

std::optional<NumberGuess> guess_numbers(ByteSpan raw, const std::optional<NumberGuess>& last) {
  if (raw.size() < kRawBytesMin) return std::nullopt;
  const size_t skipped = raw.size() > kRawBytesMax ? (raw.size() - kRawBytesMax) / 2 / 8 * 8 : 0;
  raw = raw.subspan(skipped, std::min(raw.size(), kRawBytesMax));
  if (last && cost_as(raw, *last) <= kFits * last->cost) return last;
  NumberGuess guess = guess_type(raw);
  if (guess.cost > kCostMax) return std::nullopt;
  NumberGuess of_rows = guess;
  of_rows.record = 1;
  guess_dims(raw, of_rows);
  const double limit = (guess.record > 1 ? kSimplerType : 1) * guess.cost;
  return of_rows.dims.empty() || of_rows.cost > limit ? guess : of_rows;
}

}  // namespace varve
