#include "codec/chooser.h"

#include <algorithm>
#include <array>
#include <optional>

#include "codec/guess.h"
#include "codec/numbers.h"
#include "codec/repeats.h"
#include "core/sync.h"

namespace varve {

namespace {

/// A class that shrinks by less is stored: its restart then costs no decoding.
constexpr double kGainMin = 0.05;
/// A trial's result serves so many packs of typed numbers, whose class says what they are like. Other bytes are tried
/// pack by pack.
constexpr unsigned kPacksPerTrial = 16;
/// Where bytes are taken for numbers, the next ones are like them, but a file has several variables.
constexpr unsigned kPacksPerGuess = 2;
/// The default chain is kept if it comes this close to the smallest: a sample is too small to tell them apart.
constexpr double kDefaultSlack = 1.04;
/// Of a class whose bytes are no numbers, ever more packs are taken as they are before one is looked at again: one less
/// than 2 to the power of this.
constexpr unsigned kFutileGuessesMax = 4;
/// The same for bytes of unknown meaning, where the default knows nothing either.
constexpr double kDefaultSlackBytes = 1.02;
/// Planes are taken for straight across their rows where so little more is left of the numbers otherwise.
constexpr double kStraighter = 0.98;
constexpr size_t kFastSampleBytes = 16_KiB;
/// With effort fast, by how much a chain must make a sample smaller than bit planes do to be worth its coder: lz4,
/// which takes twice as long, and zstd, which takes four times as long.
constexpr double kLz4Advantage = 1.15;
constexpr double kZstdAdvantage = 1.5;
/// With effort best, chains whose trial came this close to the smallest are run on the whole pack, but no more than so
/// many.
constexpr double kFinalistSlack = 1.02;
constexpr size_t kFinalistsMax = 2;
/// A larger pack was made for what its bytes repeat from far away (or the user made it).
constexpr size_t kWidePackBytesMin = 2_MiB;
/// The coder of zstd that looks for it.
constexpr int kFarZstdLevel = 3;
/// With effort best, what comes again has to be so much of the bytes for the slowest coder to look for it.
constexpr double kSearchedShare = 0.05;
/// Or it gains so much on a sample of what nothing predicts.
constexpr double kSearchedGain = 0.97;
constexpr size_t kSearchedSampleBytes = 64_KiB;
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

CodecChain::Stage stage(CodecNumber number, int level = 0);
CodecChain filtered(std::vector<CodecChain::Stage> filters, int zstd_level = 1);
/// For planes that are straight across their rows.
std::vector<CodecChain> straight_chains(const ElementType& type, Effort effort);
/// For bytes that are taken for numbers.
std::vector<CodecChain> guess_chains(const NumberGuess& guess, Effort effort);

/// A way to encode a pack.
struct Candidate {
  CodecChain chain;
  /// Bytes that are taken for these numbers.
  std::optional<NumberGuess> as{};
  /// Planes are predicted along straight lines across their rows.
  bool straight = false;
};

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

Result<EncodedBytes> encode_candidate(const Candidate& candidate, ByteSpan raw, const PackShape& shape) {
  if (candidate.straight) return encode_chain(candidate.chain, raw, straight_shape(shape));
  if (!candidate.as) return encode_chain(candidate.chain, raw, shape);
  const PackShape as = candidate.as->shape_of(raw.size());
  if (candidate.as->phase == 0) return encode_chain(candidate.chain, raw, as);
  std::vector<CodecChain::Stage> stages = candidate.chain.stages();
  stages.insert(stages.begin(), stage(CodecNumber::rotate, static_cast<int>(candidate.as->phase)));
  return encode_chain(CodecChain(std::move(stages)), raw, as);
}

/// The candidates by the size that they gave a sample, smallest first.
struct Trial {
  struct Outcome {
    Candidate candidate;
    size_t bytes;
  };
  std::vector<Outcome> outcomes;
  size_t default_index = 0;  ///< of the first candidate
  size_t sample_bytes = 0;
  size_t default_bytes() const { return outcomes[default_index].bytes; }
};

Result<Trial> try_candidates(ByteSpan raw, const PackShape& shape, Effort effort,
                             const std::optional<NumberGuess>& guess = {}) {
  // As small as the choices allow. Over all real sets, twice as much gains 0.2 %, and takes a tenth of the time; half
  // as much costs bytes of unknown meaning 5 %, and numbers nothing.
  const size_t share = shape.type.numeric() ? 40 : 20;
  const PackSample sample = sample_of(raw, shape, std::clamp<size_t>(raw.size() / share, 16_KiB, 48_KiB));
  Trial trial;
  trial.sample_bytes = sample.bytes.size();
  for (CodecChain& chain : candidate_chains(raw, shape, effort)) {
    VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
    trial.outcomes.push_back({{std::move(chain)}, size_of(encoded)});
  }
  const std::string default_name = trial.outcomes.front().candidate.chain.name();
  if (guess) {
    const ByteSpan numbers = raw.subspan(guess->phase);
    // Some rows of each of its pieces.
    const uint64_t rows_bytes = guess->dims.empty() ? 0 : 9 * guess->dims.front() * guess->type.bytes;
    const size_t bytes = std::clamp<uint64_t>(rows_bytes, trial.sample_bytes, 192_KiB);
    const PackSample as = sample_of(numbers, guess->shape_of(numbers.size()), bytes);
    for (CodecChain& chain : guess_chains(*guess, effort)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, as.bytes, as.shape));
      // By the other samples' length.
      trial.outcomes.push_back({{std::move(chain), guess}, size_of(encoded) * trial.sample_bytes / as.bytes.size()});
    }
  }
  if (seems_straight(raw, shape)) {
    // Pieces of so few rows would say little: the default tells how a larger sample compares.
    const PackSample larger = sample_of(raw, shape, std::clamp<size_t>(raw.size() / 4, trial.sample_bytes, 192_KiB));
    VARVE_ASSIGN(const EncodedBytes usual, encode_chain(default_chain(shape.type), larger.bytes, larger.shape));
    for (CodecChain& chain : straight_chains(shape.type, effort)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, larger.bytes, straight_shape(larger.shape)));
      const size_t bytes = size_of(encoded) * trial.outcomes.front().bytes / size_of(usual);
      trial.outcomes.push_back({{std::move(chain), {}, true}, bytes});
    }
  }
  std::stable_sort(trial.outcomes.begin(), trial.outcomes.end(),
                   [](const Trial::Outcome& a, const Trial::Outcome& b) { return a.bytes < b.bytes; });
  const auto is_default = [&](const Trial::Outcome& outcome) {
    return !outcome.candidate.as && !outcome.candidate.straight && outcome.candidate.chain.name() == default_name;
  };
  while (!is_default(trial.outcomes[trial.default_index])) ++trial.default_index;
  return trial;
}

/// For packs with parts.
std::vector<CodecChain> across_chains(const ElementType& type, Effort effort);
/// For what repeats from far away: filters change the bytes, and may hide it.
std::vector<CodecChain> far_chains(const ElementType& type);

class AutomaticEncoder final : public Encoder {
 public:
  explicit AutomaticEncoder(Effort effort) : effort_(effort) {}

  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    if (find_period(raw, shape.type) != 0) {
      VARVE_ASSIGN(const Codec* constant, find_codec(CodecNumber::constant));
      return encode_chain(CodecChain({{constant, 0}}), raw, shape);
    }
    if (!shape.parts.empty() && effort_ != Effort::fast) return encode_across(raw, shape);
    if (raw.size() > kWidePackBytesMin && effort_ != Effort::fast) return encode_wide(raw, shape);
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
    Candidate candidate;
    unsigned packs_left;
  };

  static Result<EncodedBytes> store(ByteSpan raw, const PackShape& shape) { return encode_chain({}, raw, shape); }

  /// Encodes, and stores instead what gains too little.
  static Result<EncodedBytes> encode_if_worth(const Candidate& candidate, ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(EncodedBytes encoded, encode_candidate(candidate, raw, shape));
    if (static_cast<double>(size_of(encoded)) > (1 - kGainMin) * static_cast<double>(raw.size()))
      return store(raw, shape);
    return encoded;
  }

  Result<EncodedBytes> encode_fast(ByteSpan raw, const PackShape& shape) {
    if (!is_machine_number(shape.type)) return encode_bytes_fast(raw, shape);
    if (const std::optional<Candidate> choice = remembered(shape.type)) return encode_if_worth(*choice, raw, shape);
    VARVE_ASSIGN(const CodecChain chain, fast_chain(raw, shape));
    remember(shape.type, {chain});
    return encode_if_worth({chain}, raw, shape);
  }

  static Result<EncodedBytes> encode_bytes_fast(ByteSpan raw, const PackShape& shape) {
    constexpr size_t sample_bytes = 24_KiB;
    const CodecChain& chain = default_chain(shape.type);
    if (raw.size() > 8 * sample_bytes) {
      const PackSample sample = sample_of(raw, shape, sample_bytes);
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
      if (recipe_is_store(encoded.recipe)) return store(raw, shape);
    }
    return encode_if_worth({chain}, raw, shape);
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
    const std::optional<NumberGuess> guess = guess_of(raw, shape);
    if (const std::optional<Candidate> choice = remembered(shape.type, guess))
      return encode_if_worth(*choice, raw, shape);
    VARVE_ASSIGN(Candidate candidate, balanced_candidate(raw, shape, guess));
    VARVE_ASSIGN(EncodedBytes encoded, encode_if_worth(candidate, raw, shape));
    // Fields differ from place to place, and a sample may mislead: what it prefers to the default has to be better on
    // the whole pack, too.
    const CodecChain& usual = default_chain(shape.type);
    if (shape.type.numeric() && (candidate.straight || candidate.chain.name() != usual.name())) {
      VARVE_ASSIGN(EncodedBytes usually, encode_if_worth({usual}, raw, shape));
      if (size_of(usually) < size_of(encoded)) {
        encoded = std::move(usually);
        candidate = {usual};
      }
    }
    remember(shape.type, candidate);
    return encoded;
  }

  static Result<Candidate> balanced_candidate(ByteSpan raw, const PackShape& shape,
                                              const std::optional<NumberGuess>& guess) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::balanced, guess));
    const size_t smallest_bytes = trial.outcomes.front().bytes;
    const double slack = shape.type.numeric() ? kDefaultSlack : kDefaultSlackBytes;
    const double limit = static_cast<double>(smallest_bytes) * slack;
    const size_t chosen = static_cast<double>(trial.default_bytes()) <= limit ? trial.default_index : 0;
    if (smallest_bytes >= trial.sample_bytes) return Candidate{};
    return trial.outcomes[chosen].candidate;
  }

  /// Variables that were laid together. What the trial that brought them together was wrong about, they are encoded
  /// without; that is looked at now and then, with effort best always.
  Result<EncodedBytes> encode_across(ByteSpan raw, const PackShape& shape) {
    std::vector<CodecChain> chains = across_chains(shape.type, effort_);
    if (effort_ == Effort::balanced) {
      if (const std::optional<Candidate> choice = remembered(shape.type)) chains = {choice->chain};
    }
    std::vector<Candidate> candidates;
    for (CodecChain& chain : chains) candidates.push_back({std::move(chain)});
    VARVE_ASSIGN(Smallest smallest, encode_with_each(candidates, raw, shape));
    if (effort_ == Effort::best) return encode_thoroughly(smallest, raw, shape);
    if (candidates.size() > 1) remember(shape.type, smallest.candidate);
    return std::move(smallest.encoded);
  }

  struct Smallest {
    Candidate candidate;
    EncodedBytes encoded;
  };
  /// The smallest of several, of which there is at least one.
  static Result<Smallest> encode_with_each(const std::vector<Candidate>& candidates, ByteSpan raw,
                                           const PackShape& shape) {
    std::optional<Smallest> smallest;
    for (const Candidate& candidate : candidates) {
      VARVE_ASSIGN(EncodedBytes encoded, encode_if_worth(candidate, raw, shape));
      if (smallest && size_of(smallest->encoded) <= size_of(encoded)) continue;
      smallest = Smallest{candidate, std::move(encoded)};
    }
    return *std::move(smallest);
  }

  /// A sample does not show what repeats from far away: chains are tried on the whole pack.
  Result<EncodedBytes> encode_wide(ByteSpan raw, const PackShape& shape) {
    std::vector<Candidate> candidates;
    const std::optional<NumberGuess> guess = guess_of(raw, shape);
    if (const std::optional<Candidate> choice = remembered(shape.type, guess)) {
      candidates = {*choice};
    } else {
      VARVE_ASSIGN(candidates.emplace_back(), balanced_candidate(raw, shape, guess));
      for (CodecChain& chain : far_chains(shape.type)) candidates.push_back({std::move(chain)});
    }
    VARVE_ASSIGN(Smallest smallest, encode_with_each(candidates, raw, shape));
    if (candidates.size() > 1) remember(shape.type, smallest.candidate);
    if (effort_ == Effort::balanced) return std::move(smallest.encoded);
    return encode_thoroughly(smallest, raw, shape);
  }

  /// What bytes of unknown meaning seem to be.
  std::optional<NumberGuess> guess_of(ByteSpan raw, const PackShape& shape) {
    if (shape.type.numeric() || shape.type.kind == ElementKind::text) return std::nullopt;
    std::optional<NumberGuess> last;
    {
      const MutexLock lock(mutex_);
      if (packs_without_guess_ > 0) {
        --packs_without_guess_;
        return std::nullopt;
      }
      last = guess_;
    }
    std::optional<NumberGuess> guess = guess_numbers(raw, last);
    const MutexLock lock(mutex_);
    guess_ = guess;
    futile_guesses_ = guess ? 0 : std::min(futile_guesses_ + 1, kFutileGuessesMax);
    packs_without_guess_ = (1U << futile_guesses_) - 1;
    return guess;
  }

  /// Of bytes that are taken for numbers, if `guess` is what they were taken for before.
  std::optional<Candidate> remembered(const ElementType& type, const std::optional<NumberGuess>& guess = {}) {
    const MutexLock lock(mutex_);
    if (!choice_ || choice_->packs_left == 0 || choice_->type != type || choice_->candidate.as != guess)
      return std::nullopt;
    --choice_->packs_left;
    return choice_->candidate;
  }
  void remember(const ElementType& type, const Candidate& candidate) {
    const MutexLock lock(mutex_);
    const unsigned packs = type.numeric() ? kPacksPerTrial : candidate.as ? kPacksPerGuess : 1;
    choice_ = Choice{type, candidate, packs - 1};
  }

  Result<EncodedBytes> encode_best(ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::best, guess_of(raw, shape)));
    const double limit = static_cast<double>(trial.outcomes.front().bytes) * kFinalistSlack;
    std::optional<Smallest> smallest;
    bool was_plain = false;
    for (size_t i = 0; i < trial.outcomes.size(); ++i) {
      const Trial::Outcome& outcome = trial.outcomes[i];
      const bool plain = !outcome.candidate.as && !outcome.candidate.straight;
      // The default is always tried in full: a sample is only a sample, and nothing should come out larger than without
      // a trial. So is the best that takes the pack as what it is.
      const bool finalist = i < kFinalistsMax && static_cast<double>(outcome.bytes) <= limit;
      const bool best_plain = plain && !was_plain;
      was_plain = was_plain || plain;
      if (!finalist && !best_plain && i != trial.default_index) continue;
      VARVE_ASSIGN(EncodedBytes encoded, encode_candidate(outcome.candidate, raw, shape));
      if (smallest && size_of(smallest->encoded) <= size_of(encoded)) continue;
      smallest = Smallest{outcome.candidate, std::move(encoded)};
    }
    return encode_thoroughly(*smallest, raw, shape);
  }

  /// Whether the coder that finds the shortest matches, and learns what is where in a number, may find more than
  /// filters leave of it: where much comes again, or where nothing was predicted and a sample gains by it.
  static Result<bool> worth_searching(const Candidate& candidate, ByteSpan raw, const PackShape& shape) {
    const std::vector<CodecChain::Stage>& stages = candidate.chain.stages();
    const auto is_text = [](const CodecChain::Stage& each) { return each.codec->number() == CodecNumber::columns; };
    if (raw.size() > kWidePackBytesMin) return true;
    if (stages.empty() || std::any_of(stages.begin(), stages.end(), is_text)) return false;
    Repeats repeats(shape.type.bytes, kShortWindowBytes, raw.size());
    repeats.add(raw);
    if (repeats.share() >= kSearchedShare) return true;
    if (stages.size() > 2 || stages.back().codec->number() != CodecNumber::zstd) return false;
    const PackSample sample = sample_of(raw, shape, kSearchedSampleBytes);
    VARVE_ASSIGN(const EncodedBytes usual, encode_candidate(candidate, sample.bytes, sample.shape));
    VARVE_ASSIGN(const EncodedBytes searched,
                 encode_chain(CodecChain({stage(CodecNumber::lzma)}), sample.bytes, sample.shape));
    return static_cast<double>(size_of(searched)) < kSearchedGain * static_cast<double>(size_of(usual));
  }

  /// Tries a slower coder after the filters of the smallest where it may gain, and returns what is smaller then.
  static Result<EncodedBytes> encode_thoroughly(Smallest& smallest, ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(const bool searched_for, worth_searching(smallest.candidate, raw, shape));
    if (searched_for) {
      VARVE_ASSIGN(EncodedBytes searched, encode_chain(CodecChain({stage(CodecNumber::lzma)}), raw, shape));
      if (size_of(searched) < size_of(smallest.encoded)) return searched;
    }
    const auto& [chain, as, straight] = smallest.candidate;
    const bool ends_in_zstd = !chain.stages().empty() && chain.stages().back().codec->number() == CodecNumber::zstd;
    if (!ends_in_zstd) return std::move(smallest.encoded);
    const double ratio = ratio_of(smallest.encoded, raw);
    std::optional<CodecChain> harder;
    if (ratio >= kLzmaRatio) {
      harder = with_coder(chain, CodecNumber::lzma, 2);
    } else if (ratio >= kThoroughZstdRatio || !(shape.type.numeric() || as)) {
      harder = with_coder(chain, CodecNumber::zstd, 9);
    }
    if (!harder) return std::move(smallest.encoded);
    VARVE_ASSIGN(EncodedBytes encoded, encode_candidate({*std::move(harder), as, straight}, raw, shape));
    return std::move(size_of(encoded) < size_of(smallest.encoded) ? encoded : smallest.encoded);
  }

  const Effort effort_;
  Mutex mutex_;
  std::optional<Choice> choice_ VARVE_GUARDED_BY(mutex_);
  std::optional<NumberGuess> guess_ VARVE_GUARDED_BY(mutex_);
  unsigned futile_guesses_ VARVE_GUARDED_BY(mutex_) = 0;       ///< one after the other
  unsigned packs_without_guess_ VARVE_GUARDED_BY(mutex_) = 0;  ///< that come next
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

CodecChain::Stage stage(CodecNumber number, int level) {
  const Result<const Codec*> codec = find_codec(number);
  return {codec.ok() ? *codec : nullptr, level};
}

CodecChain chain(std::vector<CodecChain::Stage> stages) {
  std::erase_if(stages, [](const CodecChain::Stage& each) { return each.codec == nullptr; });
  return CodecChain(std::move(stages));
}

CodecChain filtered(std::vector<CodecChain::Stage> filters, int zstd_level) {
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

std::vector<CodecChain> straight_chains(const ElementType& type, Effort effort) {
  std::vector<CodecChain> chains = {filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::shuffle)}),
                                    filtered({stage(CodecNumber::lorenzo), stage(CodecNumber::bitshuffle)})};
  if (effort == Effort::best) {
    chains.push_back(filtered({stage(CodecNumber::lorenzo, 4), stage(CodecNumber::shuffle)}));
    if (type.kind == ElementKind::floating && type.bytes >= 4) chains.push_back(chain({stage(CodecNumber::fpzip)}));
  }
  return chains;
}

std::vector<CodecChain> guess_chains(const NumberGuess& guess, Effort effort) {
  if (guess.record == 1) return number_chains(guess.type, effort);
  const auto record_bytes = static_cast<int>(guess.record * guess.type.bytes);
  const CodecChain::Stage delta = stage(CodecNumber::delta, record_bytes);
  std::vector<CodecChain> chains = {filtered({delta, stage(CodecNumber::shuffle, record_bytes)})};
  if (effort == Effort::best) chains.push_back(filtered({delta, stage(CodecNumber::bitshuffle, record_bytes)}));
  return chains;
}

std::vector<CodecChain> far_chains(const ElementType& type) {
  std::vector<CodecChain> chains = {filtered({}, kFarZstdLevel)};
  if (is_machine_number(type) && type.bytes > 1)
    chains.push_back(filtered({stage(CodecNumber::shuffle)}, kFarZstdLevel));
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
