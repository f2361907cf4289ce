#include "codec/candidates.h"

#include <algorithm>
#include <array>
#include <bitset>

#include "codec/magnitude_kernels.h"
#include "codec/numbers.h"
#include "core/bytes.h"

namespace varve {

namespace {

/// Planes are taken for straight across their rows where so little more is left of the numbers otherwise.
constexpr double kStraighter = 0.98;
/// With effort balanced, numbers that take so much more when shuffled alone than their differences do are tried by no
/// other chain: of 283 MB of numbers in all real series, that spares half the trials, and costs 2 KB.
constexpr double kDifferencesAdvantage = 1.05;
/// Nor are bytes as such by more than the first chains, if they take so much more than as numbers: of 423 MB, nine
/// tenths, which costs 30 KB.
constexpr double kNumbersAdvantage = 1.1;
/// So many chains there are of bytes that take them for nothing: those that only look for what repeats.
constexpr size_t kPlainChains = 2;
/// The level of zstd that looks far away (zstd_codec.cpp). Of Meep's fields, the third leaves 4 % less than the second,
/// and takes half as long again.
constexpr int kFarZstdLevel = 2, kFarZstdLevelBest = 3;
/// Where bytes have few values.
constexpr int kThoroughZstdLevel = 19;
/// That of text, as small as gzip -6 makes it.
constexpr int kGzipLevel = 7;
/// Its coder takes several times as long as zstd's: it is not tried where another chain takes so much less than zstd.
constexpr double kSparesMatches = 1.1;

CodecChain chain(std::vector<CodecChain::Stage> stages) {
  std::erase_if(stages, [](const CodecChain::Stage& each) { return each.codec == nullptr; });
  return CodecChain(std::move(stages));
}

CodecChain filtered(std::vector<CodecChain::Stage> filters, int zstd_level = 1) {
  filters.push_back(stage(CodecNumber::zstd, zstd_level));
  return chain(std::move(filters));
}

/// Differences by their magnitudes.
CodecChain measured(CodecChain::Stage differences) { return chain({differences, stage(CodecNumber::magnitudes)}); }
/// The same by their bit planes.
CodecChain in_planes(CodecChain::Stage differences) { return chain({differences, stage(CodecNumber::planes)}); }

/// Whether some of the numbers are negative, and others are not: a few of them tell.
bool has_both_signs(ByteSpan raw, const ElementType& type) {
  constexpr size_t kLookedAt = 256;
  if (type.kind != ElementKind::floating || !is_machine_number(type)) return false;
  const size_t count = raw.size() / type.bytes;
  const size_t step = std::max<size_t>(count / kLookedAt, 1) | 1;  // so that it is not always the same place of a row
  const size_t top = type.order == ByteOrder::big ? 0 : type.bytes - 1;
  std::array<bool, 2> seen{};
  for (size_t i = 0; i < count; i += step) seen[static_cast<size_t>(raw[i * type.bytes + top] >> 7)] = true;
  return seen[0] && seen[1];
}

/// Whether the bytes have few values, as flags, spins and the numbers of materials do: some of them tell. What a coder
/// saves by matches is then less than what these take.
bool has_few_values(ByteSpan raw) {
  // Numbers in text have more.
  constexpr size_t kPieces = 8, kPieceBytes = 512, kValuesMax = 9;
  std::bitset<256> values;
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t begin = (2 * i + 1) * raw.size() / (2 * kPieces);  // not where a header may be
    for (const std::byte byte : raw.subspan(begin, std::min(kPieceBytes, raw.size() - begin)))
      values.set(static_cast<size_t>(byte));
  }
  return values.count() <= kValuesMax;
}
/// For them.
CodecChain chain_of_bits() { return filtered({stage(CodecNumber::bitshuffle)}); }
bool is_of_bits(const CodecChain& chain) {
  return !chain.stages().empty() && chain.stages().front().codec->number() == CodecNumber::bitshuffle;
}
/// The coder with the cheapest matches; with effort best, the one that looks for the best of them.
CodecChain chain_of_matches(Effort effort) {
  return effort == Effort::best ? filtered({}, kThoroughZstdLevel) : chain({stage(CodecNumber::gzip, kGzipLevel)});
}

/// Fields and particles of 2 to 8 bytes. Which wins depends on smoothness: measured in docs/codecs-results.md.
std::vector<CodecChain> number_chains(ByteSpan raw, const ElementType& type, Effort effort) {
  const auto lorenzo = [](int level) { return stage(CodecNumber::lorenzo, level); };
  const CodecChain::Stage shuffle = stage(CodecNumber::shuffle);
  const CodecChain::Stage bitshuffle = stage(CodecNumber::bitshuffle);
  const std::span<const CodecChain> usual = usual_chains(type);
  std::vector<CodecChain> chains(usual.begin(), usual.end());
  chains.insert(chains.end(), {filtered({shuffle}), filtered({})});
  if (effort == Effort::balanced && has_few_values(raw)) chains.push_back(chain_of_bits());
  if (has_both_signs(raw, type)) chains.push_back(measured(stage(CodecNumber::signlast)));
  const bool floating = type.kind == ElementKind::floating;
  if (effort == Effort::best) {
    chains.push_back(measured(lorenzo(1)));
    chains.push_back(measured(lorenzo(4)));
    chains.push_back(filtered({lorenzo(0), bitshuffle}));
    chains.push_back(filtered({lorenzo(1), shuffle}));
    chains.push_back(filtered({lorenzo(4), shuffle}));
    chains.push_back(filtered({bitshuffle}));
    if (floating && type.bytes >= 4) chains.push_back(chain({stage(CodecNumber::fpzip)}));
    if (floating && type.bytes == 8) chains.push_back(filtered({stage(CodecNumber::fpc)}));
  }
  if (floating) chains.push_back(filtered({stage(CodecNumber::delta), shuffle}));
  return chains;
}

std::vector<CodecChain> straight_chains(const ElementType& type, Effort effort) {
  const std::span<const CodecChain> usual = usual_chains(type);
  std::vector<CodecChain> chains(usual.begin(), usual.end());
  if (effort == Effort::best) {
    chains.push_back(measured(stage(CodecNumber::lorenzo, 4)));
    chains.push_back(filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::bitshuffle)}));
    chains.push_back(filtered({stage(CodecNumber::lorenzo, 4), stage(CodecNumber::shuffle)}));
    if (type.kind == ElementKind::floating && type.bytes >= 4) chains.push_back(chain({stage(CodecNumber::fpzip)}));
  }
  return chains;
}

/// For records of so many bytes.
CodecChain record_chain(size_t bytes) {
  const auto level = static_cast<int>(bytes);
  return filtered({stage(CodecNumber::delta, level), stage(CodecNumber::shuffle, level)});
}

std::vector<CodecChain> guess_chains(ByteSpan numbers, const NumberGuess& guess, Effort effort) {
  if (guess.sign_last) return {measured(stage(CodecNumber::signlast))};
  if (guess.record == 1) return number_chains(numbers, guess.type, effort);
  const size_t record_bytes = guess.record * guess.type.bytes;
  std::vector<CodecChain> chains = {record_chain(record_bytes)};
  if (has_few_values(numbers)) chains.push_back(chain_of_bits());
  if (effort == Effort::best) {
    const auto level = static_cast<int>(record_bytes);
    chains.push_back(filtered({stage(CodecNumber::delta, level), stage(CodecNumber::bitshuffle, level)}));
  }
  return chains;
}

/// Whether it may be a table of numbers that were written as text.
bool looks_like_numbers_in_text(ByteSpan raw) {
  constexpr size_t kLookedAt = 4096;
  const ByteSpan sample =
      raw.subspan((raw.size() - std::min(raw.size(), kLookedAt)) / 2, std::min(raw.size(), kLookedAt));
  size_t digits = 0, newlines = 0;
  for (const std::byte byte : sample) {
    const auto character = static_cast<unsigned char>(byte);
    if (character > 0x7e || (character < 0x20 && character != '\n' && character != '\t' && character != '\r'))
      return false;
    digits += character >= '0' && character <= '9' ? 1 : 0;
    newlines += character == '\n' ? 1 : 0;
  }
  return newlines > 0 && 3 * digits > sample.size();
}

/// From the fastest to the slowest: what does not search through the data first.
std::vector<CodecChain> fast_chains(ByteSpan raw, const ElementType& type) {
  if (!is_machine_number(type)) return {filtered({})};
  std::vector<CodecChain::Stage> filters = {stage(CodecNumber::lorenzo)};
  std::vector<CodecChain> chains = {in_planes(filters.front())};
  if (has_both_signs(raw, type)) chains.push_back(in_planes(stage(CodecNumber::signlast)));
  if (type.bytes > 1) filters.push_back(stage(CodecNumber::shuffle));
  if (find_codec(CodecNumber::lz4).ok()) {
    std::vector<CodecChain::Stage> stages = filters;
    stages.push_back(stage(CodecNumber::lz4));
    chains.push_back(chain(std::move(stages)));
  }
  chains.push_back(filtered(filters));
  return chains;
}

/// For bytes of which some come again at a distance: lines, columns of them, records.
std::vector<CodecChain> chains_of_distances(ByteSpan raw, const ElementType& type, Effort effort, bool text) {
  const auto filter = [](CodecNumber number, size_t bytes) { return stage(number, static_cast<int>(bytes)); };
  std::vector<CodecChain> chains;
  if (type.bytes == 1 && looks_like_numbers_in_text(raw)) {
    chains.push_back(filtered({stage(CodecNumber::columns)}));
    // Lines of one length.
    if (const size_t line_bytes = find_record_bytes(raw); line_bytes > 1)
      chains.push_back(filtered({filter(CodecNumber::shuffle, line_bytes)}));
    return chains;
  }
  if (type.kind == ElementKind::text) return chains;
  if (!text) {
    for (size_t bytes : {size_t{4}, size_t{8}}) chains.push_back(filtered({filter(CodecNumber::shuffle, bytes)}));
    chains.push_back(filtered({filter(CodecNumber::delta, 8)}, 3));
  }
  const size_t record_bytes = type.bytes > 1 && type.bytes <= 512 ? type.bytes : find_record_bytes(raw);
  if (record_bytes > 1 && record_bytes != 4 && record_bytes != 8) {
    chains.push_back(filtered({filter(CodecNumber::shuffle, record_bytes)}));
    chains.push_back(record_chain(record_bytes));
  }
  if (effort == Effort::best) {
    chains.push_back(record_chain(8));
    chains.push_back(record_chain(4));
  }
  return chains;
}

std::vector<CodecChain> opaque_chains(ByteSpan raw, const ElementType& type, Effort effort) {
  const bool text = type.kind == ElementKind::text || seems_text(raw), few = has_few_values(raw);
  std::vector<CodecChain> chains = {filtered({}), filtered({}, 3)};
  if (few && !text) chains.push_back(chain_of_bits());
  for (CodecChain& chain : chains_of_distances(raw, type, effort, text)) chains.push_back(std::move(chain));
  if (few || (text && effort == Effort::balanced)) chains.push_back(chain_of_matches(effort));
  return chains;
}

/// Whether a pack has planes of some rows, of which straight lines across the rows predict more than the row before
/// does: its longest run tells.
bool seems_straight(ByteSpan raw, const PackShape& shape) {
  if (!is_machine_number(shape.type) || shape.type.bytes == 1) return false;
  uint64_t begin = 0, longest_begin = 0;
  const Run* longest = nullptr;
  for (const Run& run : shape.runs) {
    if (longest == nullptr || run.elements > longest->elements) {
      longest = &run;
      longest_begin = begin;
    }
    begin += run.elements;
  }
  if (longest == nullptr || longest->dims.size() != 2 || longest->elements < 8 * longest->dims.front()) return false;
  raw = raw.subspan(longest_begin * shape.type.bytes, longest->elements * shape.type.bytes);
  const NumberGuess plane{.type = shape.type, .dims = longest->dims};
  NumberGuess straight = plane;
  straight.dims.insert(straight.dims.begin() + 1, 2);
  return cost_as(raw, straight) < kStraighter * cost_as(raw, plane);
}

/// Its planes as if every two rows were one of three dimensions: so the difference from the row before the last is
/// taken, too.
PackShape straight_shape(PackShape shape) {
  for (Run& run : shape.runs) {
    if (run.dims.size() != 2) continue;
    run.dims.insert(run.dims.begin() + 1, 2);
    run.whole = false;
  }
  return shape;
}

/// Appends the part of `raw` that begins at `begin` to `sample`, with the runs that it cuts.
void add_piece(PackSample& sample, ByteSpan raw, const PackShape& shape, uint64_t begin, uint64_t elements) {
  const uint64_t bytes = shape.type.bytes;
  uint64_t run_begin = 0;
  const uint64_t end = begin + elements;
  for (const Run& run : shape.runs) {
    const uint64_t run_end = run_begin + run.elements;
    const uint64_t from = std::max(begin, run_begin);
    const uint64_t to = std::min(end, run_end);
    if (from < to) sample.shape.runs.push_back({to - from, run.dims, run.whole && to - from == run.elements});
    if (run_end >= end) break;
    run_begin = run_end;
  }
  const ByteSpan piece = raw.subspan(begin * bytes, elements * bytes);
  sample.bytes.insert(sample.bytes.end(), piece.begin(), piece.end());
}

}  // namespace

size_t size_of(const EncodedBytes& encoded) { return encoded.recipe.size() + encoded.body.size(); }

size_t size_of_sample(const EncodedBytes& encoded, size_t sample_bytes, size_t pack_bytes) {
  const Result<std::string> name = recipe_name(encoded.recipe);
  if (!name.ok() || !name->ends_with("magnitudes") || pack_bytes == 0) return size_of(encoded);
  const size_t whole = size_of(encoded), once = std::min(kernels::kMagnitudesOnceBytes, whole - 1);
  return whole - once + once * sample_bytes / pack_bytes;
}

CodecChain::Stage stage(CodecNumber number, int level) {
  const Result<const Codec*> codec = find_codec(number);
  return {codec.ok() ? *codec : nullptr, level};
}

std::vector<CodecChain> across_chains(const ElementType& type, Effort effort) {
  if (effort == Effort::fast) return {across_chain(effort), in_planes(stage(CodecNumber::lorenzo))};
  std::vector<CodecChain> chains = {across_chain(effort), default_chain(type)};
  if (effort == Effort::best) {
    chains.push_back(filtered({stage(CodecNumber::across), stage(CodecNumber::shuffle)}));
    chains.push_back(filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::shuffle)}));
    chains.push_back(filtered({stage(CodecNumber::across), stage(CodecNumber::bitshuffle)}));
    chains.push_back(filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::bitshuffle)}));
  }
  return chains;
}

std::vector<CodecChain> far_chains(const ElementType& type, Effort effort) {
  const int level = effort == Effort::best ? kFarZstdLevelBest : kFarZstdLevel;
  std::vector<CodecChain> chains = {filtered({}, level)};
  if (is_machine_number(type) && type.bytes > 1) chains.push_back(filtered({stage(CodecNumber::shuffle)}, level));
  return chains;
}

Result<EncodedBytes> encode_candidate(const Candidate& candidate, ByteSpan raw, const PackShape& shape) {
  if (candidate.straight) return encode_chain(candidate.chain, raw, straight_shape(shape));
  if (!candidate.as) return encode_chain(candidate.chain, raw, shape);
  const PackShape as = candidate.as->shape_of(raw.size());
  if (candidate.as->phase == 0) return encode_chain(candidate.chain, raw, as);
  std::vector<CodecChain::Stage> stages = candidate.chain.stages();
  stages.insert(stages.begin(), stage(CodecNumber::rotate, static_cast<int>(candidate.as->phase)));
  return encode_chain(CodecChain(std::move(stages)), raw, as);
}

std::optional<size_t> Trial::bytes_of(const Candidate& candidate) const {
  const auto outcome = std::find_if(outcomes.begin(), outcomes.end(),
                                    [&](const Outcome& each) { return each.candidate.is_like(candidate); });
  return outcome == outcomes.end() ? std::nullopt : std::optional(outcome->bytes);
}

namespace {
bool smaller_outcome(const Trial::Outcome& a, const Trial::Outcome& b) { return a.bytes < b.bytes; }

/// Adds to a trial what chains make of a sample; `as`: of bytes that are taken for these numbers.
class SampleTrial {
 public:
  SampleTrial(Trial& trial, Effort effort, PackSample sample, size_t pack_bytes, std::optional<NumberGuess> as)
      : trial_(trial), effort_(effort), sample_(std::move(sample)), pack_bytes_(pack_bytes), as_(std::move(as)) {}

  /// Of numbers, what the first ones do not tell to be needless.
  Status add_all(std::vector<CodecChain> chains) {
    const size_t begin = trial_.outcomes.size();
    // What number_chains() begins with.
    const size_t looked_at = 1 + usual_chains(sample_.shape.type).size();
    bool tells = false;
    for (CodecChain& chain : chains) {
      const size_t tried = trial_.outcomes.size() - begin;
      if (effort_ == Effort::balanced && is_machine_number(sample_.shape.type) && tried == looked_at)
        tells = exceeds(trial_.outcomes.back(), kDifferencesAdvantage, trial_.outcomes[begin]);
      if (tells && !is_of_bits(chain)) continue;
      if (ends_in(chain, CodecNumber::gzip) && is_spared(begin)) continue;
      VARVE_TRY(add(std::move(chain)));
    }
    return {};
  }
  /// Whether some chain takes so much less than the first one.
  bool is_spared(size_t begin) const {
    const auto first = trial_.outcomes.begin() + static_cast<ptrdiff_t>(begin);
    return first != trial_.outcomes.end() &&
           exceeds(*first, kSparesMatches, *std::min_element(first, trial_.outcomes.end(), smaller_outcome));
  }
  static bool exceeds(const Trial::Outcome& larger, double times, const Trial::Outcome& smaller) {
    return static_cast<double>(larger.bytes) > times * static_cast<double>(smaller.bytes);
  }

 private:
  /// As if the sample were as long as the trial's.
  Status add(CodecChain chain) {
    VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample_.bytes, sample_.shape));
    const size_t length = sample_.bytes.size();
    size_t bytes = size_of_sample(encoded, length, pack_bytes_);
    if (length != trial_.sample_bytes) bytes = bytes * trial_.sample_bytes / length;
    trial_.outcomes.push_back({{std::move(chain), as_}, bytes});
    return {};
  }

  Trial& trial_;
  const Effort effort_;
  const PackSample sample_;
  const size_t pack_bytes_;
  const std::optional<NumberGuess> as_;
};

}  // namespace

Result<Trial> try_candidates(ByteSpan raw, const PackShape& shape, Effort effort,
                             const std::optional<NumberGuess>& guess) {
  // As small as the choices allow. Over all real sets, twice as much gains 0.2 %, and takes a tenth of the time; half
  // as much costs large packs of bytes of unknown meaning 5 %, and neither numbers nor small packs anything.
  const size_t share = shape.type.numeric() ? 40 : 20;
  size_t least = 16_KiB;
  if (effort == Effort::balanced)
    least = shape.type.numeric() ? 8_KiB : std::clamp<size_t>(raw.size() / 8, 4_KiB, 16_KiB);
  PackSample sample = sample_of(raw, shape, std::clamp<size_t>(raw.size() / share, least, 48_KiB));
  Trial trial;
  trial.sample_bytes = sample.bytes.size();
  SampleTrial as_it_is(trial, effort, std::move(sample), raw.size(), std::nullopt);
  std::vector<CodecChain> chains = candidate_chains(raw, shape, effort);
  const std::string default_name = chains.front().name();
  // Bytes that may be numbers: first what does not depend on that.
  std::vector<CodecChain> later;
  const bool has_bits = chains.size() > kPlainChains && is_of_bits(chains[kPlainChains]);
  const size_t plain_count = kPlainChains + (has_bits ? 1 : 0);
  if (guess && effort == Effort::balanced && !is_machine_number(shape.type) && chains.size() > plain_count) {
    later.assign(std::move_iterator(chains.begin() + static_cast<ptrdiff_t>(plain_count)),
                 std::move_iterator(chains.end()));
    chains.resize(plain_count);
  }
  VARVE_TRY(as_it_is.add_all(std::move(chains)));
  if (guess) {
    const auto plain = *std::min_element(trial.outcomes.begin(), trial.outcomes.end(), smaller_outcome);
    const auto first = static_cast<ptrdiff_t>(trial.outcomes.size());
    const ByteSpan numbers = raw.subspan(guess->phase);
    // Some rows of each of its pieces.
    const uint64_t rows_bytes = guess->dims.empty() ? 0 : 9 * guess->dims.front() * guess->type.bytes;
    const size_t bytes = std::clamp<uint64_t>(rows_bytes, trial.sample_bytes, 192_KiB);
    SampleTrial as_numbers(trial, effort, sample_of(numbers, guess->shape_of(numbers.size()), bytes), numbers.size(),
                           guess);
    VARVE_TRY(as_numbers.add_all(guess_chains(numbers, *guess, effort)));
    const auto best = std::min_element(trial.outcomes.begin() + first, trial.outcomes.end(), smaller_outcome);
    if (!SampleTrial::exceeds(plain, kNumbersAdvantage, *best)) VARVE_TRY(as_it_is.add_all(std::move(later)));
  }
  if (seems_straight(raw, shape)) {
    // Pieces of so few rows would say little: the default tells how a larger sample compares.
    const PackSample larger = sample_of(raw, shape, std::clamp<size_t>(raw.size() / 4, trial.sample_bytes, 192_KiB));
    VARVE_ASSIGN(const EncodedBytes usual, encode_chain(default_chain(shape.type), larger.bytes, larger.shape));
    for (CodecChain& chain : straight_chains(shape.type, effort)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, larger.bytes, straight_shape(larger.shape)));
      const size_t bytes = size_of_sample(encoded, larger.bytes.size(), raw.size()) * trial.outcomes.front().bytes /
                           size_of_sample(usual, larger.bytes.size(), raw.size());
      trial.outcomes.push_back({{std::move(chain), {}, true}, bytes});
    }
  }
  std::stable_sort(trial.outcomes.begin(), trial.outcomes.end(), smaller_outcome);
  const auto is_default = [&](const Trial::Outcome& outcome) {
    return !outcome.candidate.as && !outcome.candidate.straight && outcome.candidate.chain.name() == default_name;
  };
  while (!is_default(trial.outcomes[trial.default_index])) ++trial.default_index;
  return trial;
}

std::vector<CodecChain> candidate_chains(ByteSpan raw, const PackShape& shape, Effort effort) {
  if (effort == Effort::fast) return fast_chains(raw, shape.type);
  if (is_machine_number(shape.type) && shape.type.bytes > 1) {
    std::vector<CodecChain> chains = number_chains(raw, shape.type, effort);
    if (may_be_records(shape)) {
      const size_t record_bytes = find_record_bytes(raw);
      if (record_bytes > shape.type.bytes && record_bytes % shape.type.bytes == 0)
        chains.push_back(record_chain(record_bytes));
    }
    return chains;
  }
  if (shape.type.numeric() && shape.type.bytes == 1) {
    std::vector<CodecChain> chains = {filtered({}), filtered({stage(CodecNumber::lorenzo)})};
    if (has_few_values(raw)) chains.insert(chains.end(), {chain_of_bits(), chain_of_matches(effort)});
    return chains;
  }
  return opaque_chains(raw, shape.type, effort);
}

const CodecChain& across_chain(Effort effort) {
  // As posix_file_system(): never destroyed.
  static const auto& by_planes = *new CodecChain(in_planes(stage(CodecNumber::across)));
  static const auto& by_magnitudes = *new CodecChain(measured(stage(CodecNumber::across)));
  return effort == Effort::fast ? by_planes : by_magnitudes;
}

std::span<const CodecChain> usual_chains(const ElementType& type) {
  static const auto& numbers = *new std::vector<CodecChain>{
      measured(stage(CodecNumber::lorenzo)), filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::shuffle)})};
  static const auto& bytes = *new std::vector<CodecChain>{filtered({})};
  return is_machine_number(type) && type.bytes > 1 ? numbers : bytes;
}

bool may_be_records(const PackShape& shape) {
  return is_machine_number(shape.type) && shape.type.bytes > 1 &&
         std::all_of(shape.runs.begin(), shape.runs.end(), [](const Run& run) { return run.dims.size() <= 1; });
}

bool ends_in(const CodecChain& chain, CodecNumber coder) {
  return !chain.stages().empty() && chain.stages().back().codec->number() == coder;
}

CodecChain with_coder(const CodecChain& chain_before, CodecNumber coder, int level) {
  std::vector<CodecChain::Stage> stages = chain_before.stages();
  if (!stages.empty()) stages.pop_back();
  if (ends_in(chain_before, CodecNumber::magnitudes)) stages.push_back(stage(CodecNumber::shuffle));
  stages.push_back(stage(coder, level));
  return chain(std::move(stages));
}

size_t find_record_bytes(ByteSpan raw) {
  constexpr size_t record_bytes_max = 512;
  constexpr size_t positions_max = 4096;
  constexpr double better_by = 1.02;  // a multiple of the period agrees as often, and is no better
  if (raw.size() < 8 * record_bytes_max) return 0;
  const size_t step = std::max<size_t>((raw.size() - record_bytes_max) / positions_max, 1) | 1;
  std::vector<size_t> positions;  // of bytes that are not zero: zeros agree with anything
  for (size_t at = record_bytes_max; at < raw.size(); at += step) {
    if (raw[at] != std::byte{0}) positions.push_back(at);
  }
  if (positions.size() < positions_max / 16) return 0;
  std::array<uint32_t, record_bytes_max / 4> matches{};  // [i] is of the period record_bytes_max - 4 * i
  kernels::count_matches(raw, positions, matches);
  size_t best_bytes = 0;
  double best_matches = static_cast<double>(positions.size()) / 64;
  for (size_t bytes = 4; bytes <= record_bytes_max; bytes += 4) {
    const double found = matches[(record_bytes_max - bytes) / 4];
    if (found > best_matches * better_by) {
      best_matches = found;
      best_bytes = bytes;
    }
  }
  return best_bytes;
}

PackSample sample_of(ByteSpan raw, const PackShape& shape, size_t sample_bytes) {
  constexpr uint64_t piece_count = 3;
  PackSample sample{.bytes = {}, .shape = {.type = shape.type, .runs = {}}};
  const uint64_t elements = raw.size() / shape.type.bytes;
  const uint64_t piece_elements = sample_bytes / piece_count / shape.type.bytes;
  if (piece_elements == 0 || piece_elements * piece_count >= elements) {
    return {.bytes = ByteVector(raw.begin(), raw.end()), .shape = shape};
  }
  sample.bytes.reserve(sample_bytes);
  const uint64_t gap = (elements - piece_count * piece_elements) / (piece_count + 1);
  for (uint64_t piece = 0; piece < piece_count; ++piece) {
    add_piece(sample, raw, shape, gap + piece * (piece_elements + gap), piece_elements);
  }
  return sample;
}

}  // namespace varve
