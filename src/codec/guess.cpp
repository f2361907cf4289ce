#include "codec/guess.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <tuple>
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
/// Nor do floats of another width.
constexpr double kSimplerFloats = 0.97;
/// An earlier guess fits if it leaves no more than so many times as much. Where only sizes are alike, what is somewhat
/// different may be something else.
constexpr double kFits = 1.1, kFitsSizes = 1.02;
/// Of a row, so many numbers are compared with those so far before them, for all lengths of rows.
constexpr size_t kRowProbes = 48;
/// So many lengths are looked at before the next ones, since their counts fit in the first cache.
constexpr size_t kRowsTogether = 4096;
constexpr size_t kRowsTried = 24, kRowsVerified = 5, kPlanesVerified = 5;
/// So many numbers are enough to see some of the longest rows.
constexpr size_t kNumbersForRows = 4 * kRowMax;
/// Rows of other numbers of the type are taken to be these numbers' own if they gain so much.
constexpr double kKnownRows = 0.8;
constexpr uint64_t kRowMin = 4;
/// Regions are found by pieces of this length, of which one more kind has to gain so much of the bits of one, and begin
/// at such steps.
constexpr uint64_t kRegionBytesMin = kSectionBytesMin, kChangeStepBytes = 2_KiB;
constexpr double kChangeCost = 0.1;

/// The numbers of a format in some bytes, in the order of their values, one after the other from `phase` on.
struct Numbers {
  Numbers(ByteSpan raw, kernels::NumberFormat number_format, uint32_t phase)
      : begin(raw.data() + phase), count((raw.size() - phase) / number_format.bytes), format(number_format) {}

  template <class T>
  uint64_t number(size_t index) const {
    T value = kernels::load<T>(begin, index);
    if (format.big_endian) value = kernels::swap_bytes(value);
    if (!format.floating) return value;
    return format.sign_last ? kernels::to_sign_last(value) : kernels::to_ordered(value);
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

/// Predicts a number from those before it at all sums of some distances (Lorenzo).
class Prediction {
 public:
  explicit Prediction(const std::vector<uint64_t>& distances) {
    for (size_t corner = 0; corner < size_t{1} << distances.size(); ++corner) {
      uint64_t before = 0;
      for (size_t i = 0; i < distances.size(); ++i) before += (corner >> i & 1) != 0 ? distances[i] : 0;
      (std::popcount(corner) % 2 == 0 ? added_ : subtracted_).push_back(before);
    }
  }
  /// What it leaves of number `at`.
  int64_t left_of(const Numbers& numbers, size_t at) const {
    uint64_t sum = 0;
    for (const uint64_t before : added_) sum += static_cast<uint64_t>(numbers[at - before]);
    for (const uint64_t before : subtracted_) sum -= static_cast<uint64_t>(numbers[at - before]);
    return wrapped(sum, numbers.format.bytes);
  }

 private:
  std::vector<uint64_t> added_, subtracted_;
};

/// What is looked at for a guess.
ByteSpan looked_at(ByteSpan raw) {
  const size_t skipped = raw.size() > kRawBytesMax ? (raw.size() - kRawBytesMax) / 2 / 8 * 8 : 0;
  return raw.subspan(skipped, std::min(raw.size(), kRawBytesMax));
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

uint64_t reach_of(const std::vector<uint64_t>& distances) {
  return std::accumulate(distances.begin(), distances.end(), uint64_t{0});
}

/// The share that predictions from these distances leave, at places from `first` on. Numbers that are like the one
/// before, which any coder finds, do not count.
double cost_from(size_t first, const Numbers& numbers, const std::vector<uint64_t>& distances, size_t places) {
  if (numbers.count < first + 2 * places) return 1;
  const Prediction prediction(distances);
  uint64_t bits = 0, counted = 0;
  Places(numbers, first + 1, places).for_each([&](size_t at) {
    if (numbers[at] == numbers[at - 1]) return;
    bits += static_cast<uint64_t>(bits_of(prediction.left_of(numbers, at)));
    ++counted;
  });
  return share_of_bits(bits, counted, numbers.format.bytes, places);
}

/// The same, from the first number on that has all before it that predict it.
double cost_of(const Numbers& numbers, const std::vector<uint64_t>& distances, size_t places) {
  return cost_from(reach_of(distances), numbers, distances, places);
}

/// What all numbers take with one more distance, to what they take without. Measured at the same places, as numbers may
/// be smoother there than before those that it predicts.
double gain_of(const Numbers& numbers, std::vector<uint64_t> distances, uint64_t more, size_t places) {
  const size_t first = reach_of(distances) + more;
  const double without = cost_from(first, numbers, distances, places);
  distances.push_back(more);
  const uint64_t wholes = numbers.count / more;  // rows, or planes; what is left at the end is not predicted by them
  if (without == 0 || wholes < 2) return 1;
  const double with = cost_from(first, numbers, distances, places);
  const double share = static_cast<double>((wholes - 1) * more) / static_cast<double>(numbers.count);
  return 1 - share * (1 - with / without);
}

/// What cost_of() is of each distance up to `record_max`, by itself.
template <class T, uint64_t record_max>
std::array<double, record_max + 1> costs_of_records_as(const Numbers& numbers) {
  std::array<double, record_max + 1> costs;
  costs.fill(1);
  if (numbers.count < record_max + 2 * kPlaces) return costs;
  std::array<uint32_t, record_max + 1> bits{};
  size_t counted = 0;
  Places(numbers, record_max, kPlaces).for_each([&](size_t at) {
    const auto value = static_cast<T>(numbers.number<T>(at));
    if (value == static_cast<T>(numbers.number<T>(at - 1))) return;
    ++counted;
    for (size_t record = 1; record <= record_max; ++record) {
      const auto before = static_cast<T>(numbers.number<T>(at - record));
      bits[record] +=
          static_cast<uint32_t>(bits_of(static_cast<std::make_signed_t<T>>(static_cast<T>(value - before))));
    }
  });
  for (size_t record = 1; record <= record_max; ++record)
    costs[record] = share_of_bits(bits[record], counted, sizeof(T), kPlaces);
  return costs;
}
template <uint64_t record_max>
std::array<double, record_max + 1> costs_of_records(const Numbers& numbers) {
  switch (numbers.format.bytes) {
    case 8: return costs_of_records_as<uint64_t, record_max>(numbers);
    case 4: return costs_of_records_as<uint32_t, record_max>(numbers);
    default: return costs_of_records_as<uint16_t, record_max>(numbers);
  }
}

std::vector<uint64_t> distances_of(const NumberGuess& guess) {
  std::vector<uint64_t> distances = {guess.record};
  uint64_t distance = 1;
  for (size_t i = 0; i + 1 < guess.dims.size(); ++i) distances.push_back(distance *= guess.dims[i]);
  return distances;
}

Numbers numbers_of(const NumberGuess& guess, ByteSpan raw) {
  kernels::NumberFormat format = number_format(guess.type);
  format.sign_last = guess.sign_last;
  return {raw, format, guess.phase};
}

/// The kinds of numbers that there may be: each type, from each byte on.
std::vector<NumberGuess> kinds_of(const std::vector<ElementType>& types) {
  std::vector<NumberGuess> kinds;
  for (const ElementType& type : types) {
    for (uint32_t phase = 0; phase < type.bytes; ++phase) kinds.push_back({.type = type, .phase = phase, .dims = {}});
  }
  return kinds;
}
const std::vector<NumberGuess>& likely_kinds() {
  // As posix_file_system(): never destroyed.
  static const auto& kinds = *new std::vector<NumberGuess>([] {
    std::vector<ElementType> types;
    for (const uint32_t bytes : {8u, 4u, 2u}) {
      for (const ByteOrder order : {ByteOrder::little, ByteOrder::big}) {
        for (const ElementKind kind : {ElementKind::floating, ElementKind::signed_integer})
          types.push_back({kind, order, bytes});
      }
    }
    return kinds_of(types);
  }());
  return kinds;
}

/// Which of the kinds, and how far before a number the one is that it is like.
NumberGuess guess_kind(ByteSpan raw, const std::vector<NumberGuess>& kinds) {
  NumberGuess best;
  for (NumberGuess guess : kinds) {
    const Numbers numbers = numbers_of(guess, raw);
    const auto costs = costs_of_records<kRecordMax>(numbers);
    for (guess.record = 1; guess.record <= kRecordMax; ++guess.record) {
      guess.cost = costs[guess.record];
      const bool as_simple = guess.type.bytes == best.type.bytes && guess.record <= best.record;
      const double limit = (as_simple ? 1 : kSimplerType) * best.cost;
      if (guess.cost >= limit) continue;
      guess.cost = cost_of(numbers, {guess.record}, kPlacesToVerify);
      if (guess.cost < limit) best = guess;
    }
  }
  return best;
}

/// Of what nothing predicts, floats of which those that follow each other are of about the same size.
std::optional<NumberGuess> guess_floats(ByteSpan raw, const std::vector<NumberGuess>& kinds) {
  NumberGuess best;
  best.cost = kCostMax;
  for (NumberGuess guess : kinds) {
    if (guess.type.kind != ElementKind::floating) continue;
    guess.sign_last = true;
    const Numbers numbers = numbers_of(guess, raw);
    const bool other_width = best.sign_last && guess.type.bytes != best.type.bytes;
    const double limit = (other_width ? kSimplerFloats : 1) * best.cost;
    if (costs_of_records<1>(numbers)[1] >= limit) continue;
    guess.cost = cost_of(numbers, {1}, kPlacesToVerify);
    if (guess.cost < limit) best = guess;
  }
  return best.sign_last ? std::optional(best) : std::nullopt;
}

/// From each number but the first to the next one.
template <class T>
std::vector<float> steps_as(const Numbers& numbers, size_t count) {
  std::vector<float> steps(count);
  T before = static_cast<T>(numbers.number<T>(0));
  for (size_t i = 1; i < count; ++i) {
    const T value = static_cast<T>(numbers.number<T>(i));
    steps[i] = static_cast<float>(static_cast<std::make_signed_t<T>>(static_cast<T>(value - before)));
    before = value;
  }
  return steps;
}
std::vector<float> steps_of(const Numbers& numbers, size_t count) {
  switch (numbers.format.bytes) {
    case 8: return steps_as<uint64_t>(numbers, count);
    case 4: return steps_as<uint32_t>(numbers, count);
    default: return steps_as<uint16_t>(numbers, count);
  }
}

/// How long the rows are, by how many numbers are better predicted with those of the row before; the likeliest first.
std::vector<uint64_t> likely_rows(const Numbers& numbers) {
  const uint64_t row_max = std::min<uint64_t>(kRowMax, numbers.count / 2);
  if (row_max < 2 * kRecordMax) return {};
  const std::vector<float> steps = steps_of(numbers, std::min(numbers.count, kNumbersForRows));
  std::vector<uint32_t> better(row_max + 1);  // the more, the closer they are
  const size_t gap = (steps.size() - row_max - 1) / kRowProbes;
  for (size_t begin = 0; begin < row_max; begin += kRowsTogether) {
    const size_t count = std::min<size_t>(kRowsTogether, row_max - begin);
    for (size_t at = row_max; at < row_max + kRowProbes * gap; at += gap)
      kernels::count_near(steps[at], {&steps[at - row_max + begin], count}, {&better[begin], count});
  }
  // better[i] is of rows of row_max - i.
  std::vector<uint64_t> rows;
  for (uint64_t row = kRowMin; row <= row_max; ++row) {
    if (better[row_max - row] > kRowProbes / 4) rows.push_back(row);
  }
  const auto likelier = [&](uint64_t a, uint64_t b) {
    return std::tuple(better[row_max - b], a) < std::tuple(better[row_max - a], b);
  };
  const size_t tried = std::min(rows.size(), kRowsTried);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(tried), rows.end(), likelier);
  rows.resize(tried);
  return rows;
}

/// What rows of this length gain, and what they gain if straight lines across them are taken, too: these show which the
/// rows are.
struct RowGain {
  RowGain() = default;
  RowGain(const Numbers& numbers, uint64_t length, size_t places)
      : row(length),
        gain(gain_of(numbers, {1}, row, places)),
        with_straight(gain * std::min(gain_of(numbers, {1, row}, 2 * row, places), 1.0)) {}
  bool operator<(const RowGain& other) const { return with_straight < other.with_straight; }

  uint64_t row = 0;
  double gain = 1, with_straight = 1;
};

/// The likeliest length of rows; if none gain enough, of 0 numbers.
RowGain guess_rows(const Numbers& numbers) {
  std::vector<RowGain> by_few;
  for (const uint64_t row : likely_rows(numbers)) by_few.emplace_back(numbers, row, kPlaces);
  std::stable_sort(by_few.begin(), by_few.end());
  RowGain best;
  best.with_straight = kSimplerRows;
  for (size_t i = 0; i < std::min(by_few.size(), kRowsVerified); ++i)
    best = std::min(best, RowGain(numbers, by_few[i].row, kPlacesToVerify));
  return best;
}
/// Of other numbers of the type, those that these seem to have, too.
RowGain known_rows(const Numbers& numbers, std::span<const NumberGuess> known, const ElementType& type) {
  RowGain best;
  best.with_straight = kKnownRows;
  std::vector<uint64_t> tried;
  for (const NumberGuess& other : known) {
    if (other.dims.empty() || other.type != type || numbers.count < 2 * other.dims.front()) continue;
    if (std::find(tried.begin(), tried.end(), other.dims.front()) != tried.end()) continue;
    tried.push_back(other.dims.front());
    best = std::min(best, RowGain(numbers, other.dims.front(), kPlacesToVerify));
  }
  return best;
}

/// Finds rows, and planes of rows.
void guess_dims(ByteSpan raw, std::span<const NumberGuess> known, NumberGuess& guess) {
  const Numbers numbers = numbers_of(guess, raw);
  RowGain best = known_rows(numbers, known, guess.type);
  if (best.row == 0) best = guess_rows(numbers);
  const uint64_t best_row = best.row;
  if (best_row == 0) return;
  guess.dims = {best_row, numbers.count / best_row + 1};
  const auto plane_gain_of = [&](uint64_t rows, size_t places) {
    return gain_of(numbers, {1, best_row}, rows * best_row, places);
  };
  // A few places tell; but of straight planes, which gain little, all.
  std::vector<std::pair<double, uint64_t>> planes = {{0, 2}};
  const uint64_t rows_max = std::min(numbers.count / 2 / best_row, kRowsMax);
  for (uint64_t rows = 3; rows <= rows_max; ++rows) {
    const double gain = plane_gain_of(rows, kPlaces / 4);
    if (gain < kSimplerRows) planes.emplace_back(gain, rows);
  }
  const size_t verified = std::min(planes.size(), kPlanesVerified);
  std::partial_sort(planes.begin(), planes.begin() + static_cast<ptrdiff_t>(verified), planes.end());
  planes.resize(rows_max < 2 ? 0 : verified);
  double plane_gain = kSimplerRows;
  for (const auto& [few, rows] : planes) {
    const double gain = plane_gain_of(rows, kPlacesToVerify);
    if (gain >= plane_gain) continue;
    plane_gain = gain;
    guess.dims = {best_row, rows, numbers.count / best_row / rows + 1};
  }
  guess.cost = best.gain * cost_of(numbers, {1}, kPlacesToVerify) * (guess.dims.size() > 2 ? plane_gain : 1);
}

double cost_of_kind(ByteSpan piece, const NumberGuess& kind) {
  return std::min(costs_of_records<1>(numbers_of(kind, piece))[1], 1.0);
}

/// What a piece of bytes would cost as numbers of each kind, and as none.
using KindCosts = std::vector<double>;

/// The kind of each piece, such that all of them cost least and it seldom changes. The last kind is that of none.
std::vector<size_t> cheapest_kinds(const std::vector<KindCosts>& pieces) {
  const size_t kinds = pieces.front().size();
  KindCosts least(kinds, 0);
  std::vector<std::vector<size_t>> before;  // of each piece and kind, the kind of the piece before it
  for (const KindCosts& costs : pieces) {
    const size_t cheapest = static_cast<size_t>(std::min_element(least.begin(), least.end()) - least.begin());
    const double changed = least[cheapest] + kChangeCost;
    std::vector<size_t>& from = before.emplace_back(kinds);
    for (size_t kind = 0; kind < kinds; ++kind) {
      from[kind] = least[kind] <= changed ? kind : cheapest;
      least[kind] = std::min(least[kind], changed) + costs[kind];
    }
  }
  std::vector<size_t> chosen(pieces.size());
  size_t kind = static_cast<size_t>(std::min_element(least.begin(), least.end()) - least.begin());
  for (size_t i = pieces.size(); i-- > 0; kind = before[i][kind]) chosen[i] = kind;
  return chosen;
}

/// Where one kind becomes another, between `begin` and `end`: what of it is before costs least as the first.
uint64_t change_between(ByteSpan raw, uint64_t begin, uint64_t end, const NumberGuess* first,
                        const NumberGuess* second) {
  const auto cost = [&](uint64_t at, const NumberGuess* kind) {
    return kind == nullptr ? kCostMax : cost_of_kind(raw.subspan(at, kChangeStepBytes), *kind);
  };
  double sum = 0, least = 0;
  uint64_t change = begin;
  for (uint64_t at = begin; at + kChangeStepBytes <= end; at += kChangeStepBytes) {
    sum += cost(at, first) - cost(at, second);
    if (sum >= least) continue;
    least = sum;
    change = at + kChangeStepBytes;
  }
  return change;
}
}  // namespace

std::vector<Region> find_regions(ByteSpan raw) {
  const size_t count = raw.size() / kRegionBytesMin;
  if (count < 2) return {{raw.size(), {}}};
  const std::vector<NumberGuess>& kinds = likely_kinds();
  std::vector<KindCosts> costs;
  for (size_t i = 0; i < count; ++i) {
    KindCosts& of_piece = costs.emplace_back();
    const ByteSpan piece = raw.subspan(i * kRegionBytesMin, kRegionBytesMin);
    for (const NumberGuess& kind : kinds) of_piece.push_back(cost_of_kind(piece, kind));
    of_piece.push_back(kCostMax);
  }
  const std::vector<size_t> chosen = cheapest_kinds(costs);
  const auto kind_of = [&](size_t piece) { return chosen[piece] < kinds.size() ? &kinds[chosen[piece]] : nullptr; };
  const auto type_of = [&](size_t piece) {
    const NumberGuess* const kind = kind_of(piece);
    return kind == nullptr ? std::nullopt : std::optional(kind->type);
  };
  std::vector<Region> regions;
  uint64_t begin = 0;
  for (size_t i = 1; i < count; ++i) {
    if (chosen[i] == chosen[i - 1]) continue;
    const uint64_t around = i * kRegionBytesMin;
    const uint64_t change =
        change_between(raw, around - kRegionBytesMin, around + kRegionBytesMin, kind_of(i - 1), kind_of(i));
    if (change < begin + kRegionBytesMin || change == raw.size()) continue;
    regions.push_back({change - begin, type_of(i - 1)});
    begin = change;
  }
  regions.push_back({raw.size() - begin, type_of(count - 1)});
  return regions;
}

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

namespace {
bool fits_at(double cost, const NumberGuess& guess, ByteSpan raw) {
  if (!guess.sign_last) return cost <= kFits * guess.cost;
  if (cost > std::min(kFitsSizes * guess.cost, kCostMax) || kFitsSizes * cost < guess.cost) return false;
  NumberGuess in_order = guess;
  in_order.sign_last = false;
  const auto of_records = costs_of_records<kRecordMax>(numbers_of(in_order, raw));
  return *std::min_element(of_records.begin(), of_records.end()) > kFitsSizes * cost;
}
}  // namespace

double cost_as(ByteSpan raw, const NumberGuess& guess) {
  return cost_of(numbers_of(guess, raw), distances_of(guess), kPlacesToVerify);
}

bool fits(ByteSpan raw, const NumberGuess& guess) {
  return raw.size() >= kRawBytesMin && fits_at(cost_as(looked_at(raw), guess), guess, looked_at(raw));
}

std::optional<NumberGuess> guess_numbers(ByteSpan raw, std::span<const NumberGuess> known, const ElementType& type) {
  if (raw.size() < kRawBytesMin) return std::nullopt;
  raw = looked_at(raw);
  const NumberGuess* fitting = nullptr;
  double least = 1;
  for (const NumberGuess& guess : known) {
    if (type.numeric() && guess.type != type) continue;
    const double cost = cost_as(raw, guess);
    if (!fits_at(cost, guess, raw) || cost >= least) continue;
    fitting = &guess;
    least = cost;
  }
  if (fitting != nullptr) return *fitting;
  NumberGuess guess = guess_kind(raw, type.numeric() ? kinds_of({type}) : likely_kinds());
  if (guess.cost > kCostMax) return type.numeric() ? std::nullopt : guess_floats(raw, likely_kinds());
  NumberGuess of_rows = guess;
  of_rows.record = 1;
  guess_dims(raw, known, of_rows);
  const double limit = (guess.record > 1 ? kSimplerType : 1) * guess.cost;
  if (!of_rows.dims.empty() && of_rows.cost <= limit) {
    of_rows.cost = cost_as(raw, of_rows);
    return of_rows;
  }
  return guess;
}

}  // namespace varve
