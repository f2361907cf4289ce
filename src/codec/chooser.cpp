#include "codec/chooser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "codec/numbers.h"
#include "core/sync.h"

namespace varve {

namespace {

/// A class that shrinks by less is stored: its restart then costs no decoding.
constexpr double kGainMin = 0.05;
/// A trial's result serves so many packs of typed numbers, whose class says what they are like. Other bytes are tried
/// pack by pack.
constexpr unsigned kPacksPerTrial = 16;
/// The default chain is kept if it comes this close to the smallest: a sample is too small to tell them apart.
constexpr double kDefaultSlack = 1.04;
/// The same for bytes of unknown meaning, where the default knows nothing either.
constexpr double kDefaultSlackBytes = 1.02;
constexpr size_t kFastSampleBytes = 16_KiB;
/// With effort fast, by how much a chain must make a sample smaller than bit planes do to be worth its coder: lz4,
/// which takes twice as long, and zstd, which takes four times as long.
constexpr double kLz4Advantage = 1.15;
constexpr double kZstdAdvantage = 1.5;
/// With effort best, chains whose trial came this close to the smallest are run on the whole pack, but no more than so
/// many.
constexpr double kFinalistSlack = 1.02;
constexpr size_t kFinalistsMax = 2;
/// Beyond these ratios the thorough coders have little left to search through and are fast.
constexpr double kThoroughZstdRatio = 4;
constexpr double kLzmaRatio = 8;

size_t size_of(const EncodedBytes& encoded) { return encoded.recipe.size() + encoded.body.size(); }

double ratio_of(const EncodedBytes& encoded, ByteSpan raw) {
  return static_cast<double>(raw.size()) / static_cast<double>(size_of(encoded));
}

class FixedEncoder final : public Encoder {
 public:
  explicit FixedEncoder(CodecChain chain) : chain_(std::move(chain)) {}
  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    return encode_chain(chain_, raw, shape);
  }

 private:
  CodecChain chain_;
};

/// mcrEngine's choice (SC'12): FPC for doubles, fpzip for floats, Lempel-Ziv for the rest, each followed by gzip, which
/// is all that small variables get.
class PaperEncoder final : public Encoder {
 public:
  explicit PaperEncoder(PackContents contents) : contents_(contents) {}
  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    const bool has_lz4 = find_codec(CodecNumber::lz4).ok();
    std::string_view name = has_lz4 ? "lz4+gzip" : "zstd+gzip";
    if (shape.type.kind == ElementKind::floating && shape.type.bytes == 8) name = "fpc+gzip";
    if (shape.type.kind == ElementKind::floating && shape.type.bytes == 4) name = "fpzip+gzip";
    if (contents_ == PackContents::skeletons) name = "gzip";
    VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(name));
    return encode_chain(chain, raw, shape);
  }

 private:
  const PackContents contents_;
};

/// The candidates by the size that they gave a sample, smallest first.
struct Trial {
  struct Outcome {
    CodecChain chain;
    size_t bytes;
  };
  std::vector<Outcome> outcomes;
  size_t default_index = 0;  ///< of the first candidate
  size_t sample_bytes = 0;
  size_t default_bytes() const { return outcomes[default_index].bytes; }
};

Result<Trial> try_candidates(ByteSpan raw, const PackShape& shape, Effort effort) {
  // As small as the choices allow. Over all real sets, twice as much gains 0.2 %, and takes a tenth of the time; half
  // as much costs bytes of unknown meaning 5 %, and numbers nothing.
  const size_t share = shape.type.numeric() ? 40 : 20;
  const PackSample sample = sample_of(raw, shape, std::clamp<size_t>(raw.size() / share, 16_KiB, 48_KiB));
  Trial trial;
  trial.sample_bytes = sample.bytes.size();
  for (CodecChain& chain : candidate_chains(raw, shape, effort)) {
    VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
    trial.outcomes.push_back({std::move(chain), size_of(encoded)});
  }
  const std::string default_name = trial.outcomes.front().chain.name();
  std::stable_sort(trial.outcomes.begin(), trial.outcomes.end(),
                   [](const Trial::Outcome& a, const Trial::Outcome& b) { return a.bytes < b.bytes; });
  while (trial.outcomes[trial.default_index].chain.name() != default_name) ++trial.default_index;
  return trial;
}

/// For packs with parts.
std::vector<CodecChain> across_chains(const ElementType& type, Effort effort);

class AutomaticEncoder final : public Encoder {
 public:
  explicit AutomaticEncoder(Effort effort) : effort_(effort) {}

  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    if (find_period(raw, shape.type) != 0) {
      VARVE_ASSIGN(const Codec* constant, find_codec(CodecNumber::constant));
      return encode_chain(CodecChain({{constant, 0}}), raw, shape);
    }
    if (!shape.parts.empty() && effort_ != Effort::fast) return encode_across(raw, shape);
    switch (effort_) {
      case Effort::fast: return encode_fast(raw, shape);
      case Effort::balanced: return encode_balanced(raw, shape);
      case Effort::best: return encode_best(raw, shape);
    }
    return Status::internal("unknown effort");
  }

 private:
  struct Choice {
    ElementType type;
    CodecChain chain;
    unsigned packs_left;
  };

  static Result<EncodedBytes> store(ByteSpan raw, const PackShape& shape) { return encode_chain({}, raw, shape); }

  /// Encodes, and stores instead what gains too little.
  static Result<EncodedBytes> encode_if_worth(const CodecChain& chain, ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
    if (static_cast<double>(size_of(encoded)) > (1 - kGainMin) * static_cast<double>(raw.size()))
      return store(raw, shape);
    return encoded;
  }

  Result<EncodedBytes> encode_fast(ByteSpan raw, const PackShape& shape) {
    if (!is_machine_number(shape.type)) return encode_bytes_fast(raw, shape);
    if (const std::optional<CodecChain> chain = remembered(shape.type)) return encode_if_worth(*chain, raw, shape);
    VARVE_ASSIGN(const CodecChain chain, fast_chain(raw, shape));
    remember(shape.type, chain);
    return encode_if_worth(chain, raw, shape);
  }

  static Result<EncodedBytes> encode_bytes_fast(ByteSpan raw, const PackShape& shape) {
    constexpr size_t sample_bytes = 24_KiB;
    const CodecChain& chain = default_chain(shape.type);
    if (raw.size() > 8 * sample_bytes) {
      const PackSample sample = sample_of(raw, shape, sample_bytes);
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
      if (recipe_is_store(encoded.recipe)) return store(raw, shape);
    }
    return encode_if_worth(chain, raw, shape);
  }

  /// The fastest, unless a slower one makes a sample so much smaller as its time is worth. One that finds nothing more
  /// than those before it is the last to be tried: what is slower would take longer to find nothing, too.
  static Result<CodecChain> fast_chain(ByteSpan raw, const PackShape& shape) {
    const PackSample sample = sample_of(raw, shape, kFastSampleBytes);
    CodecChain cheapest;
    double least = static_cast<double>(sample.bytes.size());
    size_t smallest = sample.bytes.size(), tried = 0;
    for (CodecChain& chain : candidate_chains(raw, shape, Effort::fast)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
      const size_t bytes = size_of(encoded);
      const double cost = static_cast<double>(bytes) * advantage_wanted(chain.stages().back().codec->number());
      if (cost < least) {
        least = cost;
        cheapest = chain;
      }
      if (tried++ > 0 && bytes >= smallest) break;
      smallest = std::min(smallest, bytes);
    }
    return cheapest;
  }

  /// By how much a chain must make a sample smaller than bit planes do.
  static double advantage_wanted(CodecNumber coder) {
    switch (coder) {
      case CodecNumber::zstd: return kZstdAdvantage;
      case CodecNumber::lz4: return kLz4Advantage;
      default: return 1;
    }
  }

  Result<EncodedBytes> encode_balanced(ByteSpan raw, const PackShape& shape) {
    if (const std::optional<CodecChain> chain = remembered(shape.type)) return encode_if_worth(*chain, raw, shape);
    VARVE_ASSIGN(CodecChain chain, balanced_chain(raw, shape));
    VARVE_ASSIGN(EncodedBytes encoded, encode_if_worth(chain, raw, shape));
    // Fields differ from place to place, and a sample may mislead: what it prefers to the default has to be better on
    // the whole pack, too.
    const CodecChain& usual = default_chain(shape.type);
    if (shape.type.numeric() && chain.name() != usual.name()) {
      VARVE_ASSIGN(EncodedBytes usually, encode_if_worth(usual, raw, shape));
      if (size_of(usually) < size_of(encoded)) {
        encoded = std::move(usually);
        chain = usual;
      }
    }
    remember(shape.type, chain);
    return encoded;
  }

  static Result<CodecChain> balanced_chain(ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::balanced));
    const size_t smallest_bytes = trial.outcomes.front().bytes;
    const double slack = shape.type.numeric() ? kDefaultSlack : kDefaultSlackBytes;
    const double limit = static_cast<double>(smallest_bytes) * slack;
    const size_t chosen = static_cast<double>(trial.default_bytes()) <= limit ? trial.default_index : 0;
    CodecChain chain = trial.outcomes[chosen].chain;
    if (smallest_bytes >= trial.sample_bytes) chain = {};
    return chain;
  }

  /// Variables that were laid together. What the trial that brought them together was wrong about, they are encoded
  /// without; that is looked at now and then, with effort best always.
  Result<EncodedBytes> encode_across(ByteSpan raw, const PackShape& shape) {
    std::vector<CodecChain> chains = across_chains(shape.type, effort_);
    if (effort_ == Effort::balanced) {
      if (const std::optional<CodecChain> chain = remembered(shape.type)) chains = {*chain};
    }
    std::optional<EncodedBytes> smallest;
    const CodecChain* winner = nullptr;
    for (const CodecChain& chain : chains) {
      VARVE_ASSIGN(EncodedBytes encoded, encode_if_worth(chain, raw, shape));
      if (smallest && size_of(*smallest) <= size_of(encoded)) continue;
      smallest = std::move(encoded);
      winner = &chain;
    }
    if (effort_ == Effort::best) return encode_thoroughly(*winner, *std::move(smallest), raw, shape);
    if (chains.size() > 1) remember(shape.type, *winner);
    return *std::move(smallest);
  }

  std::optional<CodecChain> remembered(const ElementType& type) {
    const MutexLock lock(mutex_);
    if (!choice_ || choice_->packs_left == 0 || choice_->type != type) return std::nullopt;
    --choice_->packs_left;
    return choice_->chain;
  }
  void remember(const ElementType& type, const CodecChain& chain) {
    const MutexLock lock(mutex_);
    choice_ = Choice{type, chain, type.numeric() ? kPacksPerTrial - 1 : 0};
  }

  Result<EncodedBytes> encode_best(ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::best));
    const double limit = static_cast<double>(trial.outcomes.front().bytes) * kFinalistSlack;
    std::optional<EncodedBytes> smallest;
    const CodecChain* winner = nullptr;
    for (size_t i = 0; i < trial.outcomes.size(); ++i) {
      const Trial::Outcome& outcome = trial.outcomes[i];
      // The default is always tried in full: a sample is only a sample, and nothing should come out larger than without
      // a trial.
      const bool finalist = i < kFinalistsMax && static_cast<double>(outcome.bytes) <= limit;
      if (!finalist && i != trial.default_index) continue;
      VARVE_ASSIGN(EncodedBytes encoded, encode_chain(outcome.chain, raw, shape));
      if (smallest && size_of(*smallest) <= size_of(encoded)) continue;
      smallest = std::move(encoded);
      winner = &outcome.chain;
    }
    return encode_thoroughly(*winner, *std::move(smallest), raw, shape);
  }

  /// Tries a slower coder after the filters of `chain` where it may gain, and returns the smaller result.
  static Result<EncodedBytes> encode_thoroughly(const CodecChain& chain, EncodedBytes smallest, ByteSpan raw,
                                                const PackShape& shape) {
    const double ratio = ratio_of(smallest, raw);
    const bool ends_in_zstd = chain.stages().back().codec->number() == CodecNumber::zstd;
    if (!ends_in_zstd) return smallest;
    std::optional<CodecChain> harder;
    if (ratio >= kLzmaRatio) {
      harder = with_coder(chain, CodecNumber::lzma, 2);
    } else if (ratio >= kThoroughZstdRatio || !shape.type.numeric()) {
      harder = with_coder(chain, CodecNumber::zstd, 9);
    }
    if (!harder) return smallest;
    VARVE_ASSIGN(EncodedBytes encoded, encode_chain(*harder, raw, shape));
    return size_of(encoded) < size_of(smallest) ? std::move(encoded) : std::move(smallest);
  }

  const Effort effort_;
  Mutex mutex_;
  std::optional<Choice> choice_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace

Result<CodecPolicy> CodecPolicy::of_effort(std::string_view text) {
  for (const Effort effort : {Effort::fast, Effort::balanced, Effort::best}) {
    CodecPolicy policy{.kind = Kind::automatic, .effort = effort, .chain = {}};
    if (policy.name() == text) return policy;
  }
  return Status::invalid_argument("an effort is fast, balanced or best", std::string(text));
}

Result<CodecPolicy> CodecPolicy::parse(std::string_view text) {
  if (Result<CodecPolicy> effort = of_effort(text); effort.ok()) return effort;
  if (text == "paper") return CodecPolicy{.kind = Kind::paper, .chain = {}};
  VARVE_ASSIGN(CodecChain chain, CodecChain::parse(text));
  return CodecPolicy{.kind = Kind::chain, .chain = std::move(chain)};
}

bool CodecPolicy::predicts_across() const {
  if (kind == Kind::automatic) return effort != Effort::fast;
  return std::any_of(chain.stages().begin(), chain.stages().end(),
                     [](const CodecChain::Stage& each) { return each.codec->number() == CodecNumber::across; });
}

std::string CodecPolicy::name() const {
  switch (kind) {
    case Kind::chain: return chain.name();
    case Kind::paper: return "paper";
    case Kind::automatic: break;
  }
  switch (effort) {
    case Effort::fast: return "fast";
    case Effort::balanced: return "balanced";
    case Effort::best: return "best";
  }
  return "balanced";
}

std::unique_ptr<Encoder> make_encoder(const CodecPolicy& policy, PackContents contents) {
  switch (policy.kind) {
    case CodecPolicy::Kind::chain: return std::make_unique<FixedEncoder>(policy.chain);
    case CodecPolicy::Kind::paper: return std::make_unique<PaperEncoder>(contents);
    case CodecPolicy::Kind::automatic: break;
  }
  return std::make_unique<AutomaticEncoder>(policy.effort);
}

namespace {

CodecChain::Stage stage(CodecNumber number, int level = 0) {
  const Result<const Codec*> codec = find_codec(number);
  return {codec.ok() ? *codec : nullptr, level};
}

CodecChain chain(std::vector<CodecChain::Stage> stages) {
  std::erase_if(stages, [](const CodecChain::Stage& each) { return each.codec == nullptr; });
  return CodecChain(std::move(stages));
}

CodecChain filtered(std::vector<CodecChain::Stage> filters, int zstd_level = 1) {
  filters.push_back(stage(CodecNumber::zstd, zstd_level));
  return chain(std::move(filters));
}

/// Fields and particles of 2 to 8 bytes. Which wins depends on smoothness: measured in docs/codecs-results.md.
std::vector<CodecChain> number_chains(const ElementType& type, Effort effort) {
  const auto lorenzo = [](int level) { return stage(CodecNumber::lorenzo, level); };
  const CodecChain::Stage shuffle = stage(CodecNumber::shuffle);
  const CodecChain::Stage bitshuffle = stage(CodecNumber::bitshuffle);
  std::vector<CodecChain> chains = {filtered({lorenzo(0), shuffle}), filtered({shuffle}),
                                    filtered({lorenzo(0), bitshuffle}), filtered({})};
  const bool floating = type.kind == ElementKind::floating;
  if (effort == Effort::best) {
    chains.push_back(filtered({lorenzo(1), shuffle}));
    chains.push_back(filtered({lorenzo(4), shuffle}));
    chains.push_back(filtered({bitshuffle}));
    if (floating && type.bytes >= 4) chains.push_back(chain({stage(CodecNumber::fpzip)}));
    if (floating && type.bytes == 8) chains.push_back(filtered({stage(CodecNumber::fpc)}));
  }
  if (floating) chains.push_back(filtered({stage(CodecNumber::delta), shuffle}));
  return chains;
}

std::vector<CodecChain> across_chains(const ElementType& type, Effort effort) {
  std::vector<CodecChain> chains = {across_chain(), default_chain(type)};
  if (effort == Effort::best) {
    chains.push_back(filtered({stage(CodecNumber::across), stage(CodecNumber::bitshuffle)}));
    chains.push_back(filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::bitshuffle)}));
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
std::vector<CodecChain> fast_chains(const ElementType& type) {
  if (!is_machine_number(type)) return {filtered({})};
  std::vector<CodecChain::Stage> filters = {stage(CodecNumber::lorenzo)};
  std::vector<CodecChain> chains = {chain({filters.front(), stage(CodecNumber::planes)})};
  if (type.bytes > 1) filters.push_back(stage(CodecNumber::shuffle));
  if (find_codec(CodecNumber::lz4).ok()) {
    std::vector<CodecChain::Stage> stages = filters;
    stages.push_back(stage(CodecNumber::lz4));
    chains.push_back(chain(std::move(stages)));
  }
  chains.push_back(filtered(filters));
  return chains;
}

std::vector<CodecChain> opaque_chains(ByteSpan raw, const ElementType& type, Effort effort) {
  const auto filter = [](CodecNumber number, size_t bytes) { return stage(number, static_cast<int>(bytes)); };
  std::vector<CodecChain> chains = {filtered({}), filtered({}, 3)};
  if (type.bytes == 1 && looks_like_numbers_in_text(raw)) {
    chains.push_back(filtered({stage(CodecNumber::columns)}));
    return chains;
  }
  if (type.kind == ElementKind::text) return chains;
  for (size_t bytes : {size_t{4}, size_t{8}}) chains.push_back(filtered({filter(CodecNumber::shuffle, bytes)}));
  chains.push_back(filtered({filter(CodecNumber::delta, 8)}, 3));
  const size_t record_bytes = type.bytes > 1 && type.bytes <= 512 ? type.bytes : find_record_bytes(raw);
  if (record_bytes > 1 && record_bytes != 4 && record_bytes != 8) {
    const CodecChain::Stage shuffle = filter(CodecNumber::shuffle, record_bytes);
    chains.push_back(filtered({shuffle}));
    chains.push_back(filtered({filter(CodecNumber::delta, record_bytes), shuffle}));
  }
  if (effort == Effort::best) {
    chains.push_back(filtered({filter(CodecNumber::delta, 8), filter(CodecNumber::shuffle, 8)}));
    chains.push_back(filtered({filter(CodecNumber::delta, 4), filter(CodecNumber::shuffle, 4)}));
  }
  return chains;
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

std::vector<CodecChain> candidate_chains(ByteSpan raw, const PackShape& shape, Effort effort) {
  if (effort == Effort::fast) return fast_chains(shape.type);
  if (is_machine_number(shape.type) && shape.type.bytes > 1) return number_chains(shape.type, effort);
  if (shape.type.numeric() && shape.type.bytes == 1) return {filtered({}), filtered({stage(CodecNumber::lorenzo)})};
  return opaque_chains(raw, shape.type, effort);
}

const CodecChain& across_chain() {
  static const CodecChain chain = filtered({stage(CodecNumber::across), stage(CodecNumber::shuffle)});
  return chain;
}

const CodecChain& default_chain(const ElementType& type) {
  static const CodecChain numbers = filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::shuffle)});
  static const CodecChain bytes = filtered({});
  return is_machine_number(type) && type.bytes > 1 ? numbers : bytes;
}

CodecChain with_coder(const CodecChain& chain_before, CodecNumber coder, int level) {
  std::vector<CodecChain::Stage> stages = chain_before.stages();
  if (!stages.empty()) stages.pop_back();
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
  // matches[i] is of the period record_bytes_max - 4 * i. All periods of one position are looked at together: their
  // bytes are neighbours, and the first of every four.
  std::array<uint32_t, record_bytes_max / 4> matches{};
  for (size_t at : positions) {
    const auto value = static_cast<uint32_t>(raw[at]);
    const std::byte* before = raw.data() + at - record_bytes_max;
    for (size_t i = 0; i < matches.size(); ++i) matches[i] += (load_le<uint32_t>(before + 4 * i) & 0xff) == value;
  }
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
