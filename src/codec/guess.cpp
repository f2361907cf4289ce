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
  const std::byte* begin;
  size_t count;
  kernels::NumberFormat format;
};

/// Calls work.operator()<T>() with the unsigned integer as wide as the numbers.
template <class Work>
auto as_wide_as(const Numbers& numbers, Work&& work) {
  switch (numbers.format.bytes) {
    case 8: return work.template operator()<uint64_t>();
    case 4: return work.template operator()<uint32_t>();
    default: return work.template operator()<uint16_t>();
  }
}

/// Bits of a difference, wrapped round at the width of the numbers: 0 of none.
template <class T>
uint32_t bits_of(T difference) {
  const auto sign = static_cast<T>(static_cast<std::make_signed_t<T>>(difference) >> (8 * sizeof(T) - 1));
  return static_cast<uint32_t>(std::bit_width(static_cast<T>(difference ^ sign))) + (difference == 0 ? 0 : 1);
}

/// Predicts a number from those before it at all sums of some distances (Lorenzo).
class Prediction {
 public:
  explicit Prediction(const std::vector<uint64_t>& distances) : corners_(size_t{1} << distances.size()) {
    for (size_t corner = 0; corner < corners_; ++corner) {
      for (size_t i = 0; i < distances.size(); ++i) before_[corner] += (corner >> i & 1) != 0 ? distances[i] : 0;
    }
  }
  /// What it leaves of number `at`.
  template <class T>
  T left_of(const Numbers& numbers, size_t at) const {
    T left = 0;
    for (size_t corner = 0; corner < corners_; ++corner) {
      const auto number = static_cast<T>(numbers.number<T>(at - before_[corner]));
      left = static_cast<T>(std::popcount(corner) % 2 == 0 ? left + number : left - number);
    }
    return left;
  }

 private:
  const size_t corners_;
  std::array<uint64_t, 8> before_{};  // three distances at most
};

/// What is looked at for a guess.
ByteSpan looked_at(ByteSpan raw) {
  const size_t skipped = raw.size() > kRawBytesMax ? (raw.size() - kRawBytesMax) / 2 / 8 * 8 : 0;
  return raw.subspan(skipped, std::min(raw.size(), kRawBytesMax));
}

/// Some places of numbers, from `first` on. Not at a regular distance, which might be that of records.
class Places {
 public:
  Places(size_t numbers, size_t first, size_t count)
      : first_(first), step_(std::max<size_t>((numbers - first) / count, 1)), end_(numbers), count_(count) {}
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

/// The share that predictions from these distances leave, at places that have all before them that predict them.
/// Numbers that are like the one before, which any coder finds, do not count.
double cost_of(const Numbers& numbers, const std::vector<uint64_t>& distances, size_t places) {
  const uint64_t reach = std::accumulate(distances.begin(), distances.end(), uint64_t{0});
  if (numbers.count < reach + 2 * places) return 1;
  const Prediction prediction(distances);
  return as_wide_as(numbers, [&]<class T>() {
    uint64_t bits = 0, counted = 0;
    Places(numbers.count, reach + 1, places).for_each([&](size_t at) {
      if (numbers.number<T>(at) == numbers.number<T>(at - 1)) return;
      bits += bits_of(prediction.left_of<T>(numbers, at));
      ++counted;
    });
    return share_of_bits(bits, counted, sizeof(T), places);
  });
}

/// What cost_of() is of each distance up to `record_max`, by itself.
template <uint64_t record_max>
std::array<double, record_max + 1> costs_of_records(const Numbers& numbers) {
  std::array<double, record_max + 1> costs;
  costs.fill(1);
  if (numbers.count < record_max + 2 * kPlaces) return costs;
  as_wide_as(numbers, [&]<class T>() {
    std::array<uint32_t, record_max + 1> bits{};
    size_t counted = 0;
    Places(numbers.count, record_max, kPlaces).for_each([&](size_t at) {
      const auto value = static_cast<T>(numbers.number<T>(at));
      if (value == static_cast<T>(numbers.number<T>(at - 1))) return;
      ++counted;
      for (size_t record = 1; record <= record_max; ++record)
        bits[record] += bits_of(static_cast<T>(value - static_cast<T>(numbers.number<T>(at - record))));
    });
    for (size_t record = 1; record <= record_max; ++record)
      costs[record] = share_of_bits(bits[record], counted, sizeof(T), kPlaces);
  });
  return costs;
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

/// From each number to the next one, by which rows and planes are found: what these predict is what is left of steps.
template <class T>
class Steps {
 public:
  explicit Steps(const Numbers& numbers) : steps_(numbers.count) {
    auto before = static_cast<T>(numbers.number<T>(0));
    for (size_t i = 1; i < steps_.size(); ++i) {
      const auto value = static_cast<T>(numbers.number<T>(i));
      steps_[i] = static_cast<T>(value - before);
      before = value;
    }
  }
  uint64_t count() const { return steps_.size(); }

  /// The first of them, so many.
  std::vector<float> as_floats(size_t count) const {
    std::vector<float> floats(count);
    for (size_t i = 0; i < count; ++i) floats[i] = static_cast<float>(static_cast<std::make_signed_t<T>>(steps_[i]));
    return floats;
  }
  /// What all steps, or of rows of `row` numbers what each leaves of that in the row before, take if that of the one
  /// `more` before is taken, too, to what they take without. Measured at the same places, as numbers may be smoother
  /// there than before those that it predicts. 0: no rows.
  double gain_of(uint64_t row, uint64_t more, size_t places) const {
    const uint64_t first = 1 + row + more;
    const uint64_t wholes = count() / more;  // rows, or planes; what is left at the end is not predicted by them
    if (wholes < 2 || count() < first + 2 * places) return 1;
    const auto left = [&](size_t at) { return row == 0 ? steps_[at] : static_cast<T>(steps_[at] - steps_[at - row]); };
    uint64_t without = 0, with = 0, counted = 0;
    Places(count(), first + 1, places).for_each([&](size_t at) {
      if (steps_[at] == 0) return;
      const T left_without = left(at);
      without += bits_of(left_without);
      with += bits_of(static_cast<T>(left_without - left(at - more)));
      ++counted;
    });
    if (without == 0 || counted < places / 8) return 1;
    const double share = static_cast<double>((wholes - 1) * more) / static_cast<double>(count());
    return 1 - share * (1 - static_cast<double>(with) / static_cast<double>(without));
  }

 private:
  std::vector<T> steps_;
};

/// How long the rows are, by how many numbers are better predicted with those of the row before; the likeliest first.
template <class T>
std::vector<uint64_t> likely_rows(const Steps<T>& all_steps) {
  const uint64_t row_max = std::min<uint64_t>(kRowMax, all_steps.count() / 2);
  if (row_max < 2 * kRecordMax) return {};
  const std::vector<float> steps = all_steps.as_floats(std::min<uint64_t>(all_steps.count(), kNumbersForRows));
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
  template <class T>
  RowGain(const Steps<T>& steps, uint64_t length, size_t places)
      : row(length),
        gain(steps.gain_of(0, row, places)),
        with_straight(gain * std::min(steps.gain_of(row, 2 * row, places), 1.0)) {}
  bool operator<(const RowGain& other) const { return with_straight < other.with_straight; }

  uint64_t row = 0;
  double gain = 1, with_straight = 1;
};

/// The likeliest length of rows; if none gain enough, of 0 numbers.
template <class T>
RowGain guess_rows(const Steps<T>& steps) {
  std::vector<RowGain> by_few;
  for (const uint64_t row : likely_rows(steps)) by_few.emplace_back(steps, row, kPlaces);
  std::stable_sort(by_few.begin(), by_few.end());
  RowGain best;
  best.with_straight = kSimplerRows;
  for (size_t i = 0; i < std::min(by_few.size(), kRowsVerified); ++i)
    best = std::min(best, RowGain(steps, by_few[i].row, kPlacesToVerify));
  return best;
}
/// Of other numbers of the type, those that these seem to have, too.
template <class T>
RowGain known_rows(const Steps<T>& steps, std::span<const NumberGuess> known, const ElementType& type) {
  RowGain best;
  best.with_straight = kKnownRows;
  std::vector<uint64_t> tried;
  for (const NumberGuess& other : known) {
    if (other.dims.empty() || other.type != type || steps.count() < 2 * other.dims.front()) continue;
    if (std::find(tried.begin(), tried.end(), other.dims.front()) != tried.end()) continue;
    tried.push_back(other.dims.front());
    best = std::min(best, RowGain(steps, other.dims.front(), kPlacesToVerify));
  }
  return best;
}

/// How many rows a plane has, and what planes gain; if that is not enough, none.
template <class T>
std::pair<uint64_t, double> guess_planes(const Steps<T>& steps, uint64_t row) {
  // A few places tell; but of straight planes, which gain little, all.
  std::vector<std::pair<double, uint64_t>> planes = {{0, 2}};
  const uint64_t rows_max = std::min(steps.count() / 2 / row, kRowsMax);
  for (uint64_t rows = 3; rows <= rows_max; ++rows) {
    const double gain = steps.gain_of(row, rows * row, kPlaces / 4);
    if (gain < kSimplerRows) planes.emplace_back(gain, rows);
  }
  const size_t verified = std::min(planes.size(), kPlanesVerified);
  std::partial_sort(planes.begin(), planes.begin() + static_cast<ptrdiff_t>(verified), planes.end());
  planes.resize(rows_max < 2 ? 0 : verified);
  std::pair<uint64_t, double> best = {0, kSimplerRows};
  for (const auto& [few, rows] : planes) {
    const double gain = steps.gain_of(row, rows * row, kPlacesToVerify);
    if (gain < best.second) best = {rows, gain};
  }
  return best;
}

/// Finds rows, and planes of rows.
void guess_dims(ByteSpan raw, std::span<const NumberGuess> known, NumberGuess& guess) {
  const Numbers numbers = numbers_of(guess, raw);
  as_wide_as(numbers, [&]<class T>() {
    const Steps<T> steps(numbers);
    RowGain best = known_rows(steps, known, guess.type);
    if (best.row == 0) best = guess_rows(steps);
    if (best.row == 0) return;
    const uint64_t rows = numbers.count / best.row;
    guess.dims = {best.row, rows + 1};
    guess.cost = best.gain * cost_of(numbers, {1}, kPlacesToVerify);
    const auto [rows_of_plane, gain] = guess_planes(steps, best.row);
    if (rows_of_plane == 0) return;
    guess.dims = {best.row, rows_of_plane, rows / rows_of_plane + 1};
    guess.cost *= gain;
  });
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
