#include "codec/chooser.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>

#include "codec/found_numbers.h"
#include "codec/learned.h"
#include "codec/numbers.h"
#include "codec/opened.h"
#include "codec/repeats.h"
#include "core/sync.h"

namespace varve {

namespace {

/// A class that shrinks by less is stored: its restart then costs no decoding.
constexpr double kGainMin = 0.05;
/// A trial's result serves so many packs of typed numbers, whose class says what they are like. Other bytes are tried
/// pack by pack, unless they are like others (FoundNumbers).
constexpr unsigned kPacksPerTrial = 16;
/// And for so many sets, if the class has less in each.
constexpr unsigned kSetsPerTrial = 4;
/// The default chain is kept if it comes this close to the smallest: a sample is too small to tell them apart.
constexpr double kDefaultSlack = 1.025;
/// The same for bytes of unknown meaning, where the default knows nothing either.
constexpr double kDefaultSlackBytes = 1.02;
/// With effort balanced, what a sample says of two is not tried on the pack: of what takes so much more, where the pack
/// shrinks no less than to this, and no more than to so much of what the sample did. Over all real series, 14 % of the
/// bytes are encoded twice then, not all, and the packs are 0.001 % larger.
constexpr double kClearlyMore = 1.02, kSmoothShare = 0.3, kAsSampled = 0.8;
/// With effort balanced, by how much any coder must make a pack smaller than magnitudes do, which take a third of the
/// time.
constexpr double kMagnitudesAdvantage = 1.01;
/// How seldom packs of a class are looked at, in the end, for numbers, for what can be opened, and for what is worth a
/// search (Lookout); and for regions, of which a file may have some at any place.
constexpr unsigned kFutileLooksMax = 4, kFutileRegionsMax = 2;
constexpr size_t kFastSampleBytes = 16_KiB;
/// With effort fast, by how much a chain must make a sample smaller than bit planes do to be worth its coder: lz4,
/// which takes twice as long, and zstd, which takes four times as long.
constexpr double kLz4Advantage = 1.15;
constexpr double kZstdAdvantage = 1.5;
/// With effort best, chains whose trial came this close to the smallest are run on the whole pack, but no more than so
/// many.
constexpr double kFinalistSlack = 1.02;
constexpr size_t kFinalistsMax = 2;
/// fpzip learns as it codes, and predicts from whole planes: a sample ends before either has helped, and shows it as
/// larger than it comes out. Within this it is run on the whole pack, until it was for nothing.
constexpr double kLearnerSlack = 1.25;
/// A larger pack was made for what its bytes repeat from far away (or the user made it).
constexpr size_t kWidePackBytesMin = 2_MiB;
/// With effort balanced, what looks far away is taken at once if it leaves so much of what a sample seems to take.
constexpr double kFarAdvantage = 0.8;
/// With effort best, what comes again has to be so much of the bytes for the slowest coder to look for it.
constexpr double kSearchedShare = 0.05;
/// Or it gains so much on a sample of what nothing predicts.
constexpr double kSearchedGain = 0.97;
constexpr size_t kSearchedSampleBytes = 64_KiB;
/// Less of a pack than a fourth is not worth the time that it takes to make again what was opened.
constexpr uint64_t kOpenedShareMin = 4;
/// Bytes that repeat each other this often, as those around the variables of many ranks' files do, take less than the
/// list of their chunks: no trial gains what it costs. Pieces that shrink so much less show that they may.
constexpr size_t kRepeatedRatio = 256, kRepeatedPieceRatio = 4;
constexpr size_t kRepeatedPieces = 3, kRepeatedPieceBytes = 16_KiB;
/// Beyond these ratios the thorough coders have little left to search through and are fast.
constexpr double kThoroughZstdRatio = 4;
constexpr double kLzmaRatio = 8;
/// Of what several variables' prediction has left, of which there is much in few packs.
constexpr int kAcrossZstdLevel = 6;

double ratio_of(const EncodedBytes& encoded, ByteSpan raw) {
  return static_cast<double>(raw.size()) / static_cast<double>(size_of(encoded));
}

bool has_stage(const CodecChain& chain, CodecNumber number) {
  return std::any_of(chain.stages().begin(), chain.stages().end(),
                     [&](const CodecChain::Stage& each) { return each.codec->number() == number; });
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

/// Something that packs of a class may have, and that takes time to look for: where it was in vain, ever more packs are
/// taken as they are before one is looked at again: one less than 2 to the power of `futile_max`. Thread-safe.
class Lookout {
 public:
  explicit Lookout(unsigned futile_max) : futile_max_(futile_max) {}
  bool is_due() {
    const MutexLock lock(mutex_);
    if (left_out_ == 0) return true;
    --left_out_;
    return false;
  }
  void note(bool found) {
    const MutexLock lock(mutex_);
    futile_ = found ? 0 : std::min(futile_ + 1, futile_max_);
    left_out_ = (1U << futile_) - 1;
  }
  void begin_set() {
    const MutexLock lock(mutex_);
    left_out_ = 0;
  }

 private:
  const unsigned futile_max_;
  Mutex mutex_;
  unsigned futile_ VARVE_GUARDED_BY(mutex_) = 0;    ///< looks one after the other
  unsigned left_out_ VARVE_GUARDED_BY(mutex_) = 0;  ///< packs that come next
};

class AutomaticEncoder final : public Encoder {
 public:
  AutomaticEncoder(Effort effort, bool opens_compressed, std::shared_ptr<FoundNumbers> found_by_all)
      : effort_(effort), found_by_all_(std::move(found_by_all)) {
    if (opens_compressed && effort != Effort::fast)
      of_opened_ = std::make_unique<AutomaticEncoder>(effort, /*opens_compressed=*/false, found_by_all_);
  }

  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    if (find_period(raw, shape.type) != 0) {
      VARVE_ASSIGN(const Codec* constant, find_codec(CodecNumber::constant));
      return encode_chain(CodecChain({{constant, 0}}), raw, shape);
    }
    if (!shape.parts.empty()) return encode_across(raw, shape);
    const bool may_open = of_opened_ != nullptr && shape.type == ElementType{} &&
                          (may_be_compressed(raw) || begins_with_blosc(raw)) && openings_.is_due();
    return may_open ? encode_opened(raw, shape) : encode_as_it_is(raw, shape);
  }

  /// What was found to help is likely to help, for a while. What nothing helped may be different now.
  void begin_set() override {
    if (of_opened_ != nullptr) of_opened_->begin_set();
    found_.begin_set();
    const MutexLock lock(mutex_);
    for (Lookout* const lookout : {&guesses_, &openings_, &searches_, &regions_}) lookout->begin_set();
    learned_in_vain_ = false;
    if (choice_ && (choice_->candidate.chain.stages().empty() || --choice_->sets_left == 0)) choice_.reset();
  }

  void write_learned(ByteWriter& w) const override {
    {
      const MutexLock lock(mutex_);
      w.u8(choice_ ? 1 : 0);
      if (choice_) {
        write_type(w, choice_->type);
        write_candidate(w, choice_->candidate);
        w.varint(choice_->packs_left);
        w.varint(choice_->sets_left);
      }
    }
    w.u8(has_regions_ ? 1 : 0);
    found_.write_learned(w);
    w.u8(of_opened_ != nullptr ? 1 : 0);
    if (of_opened_ != nullptr) of_opened_->write_learned(w);
  }
  Status read_learned(ByteReader& reader) override {
    VARVE_ASSIGN(const unsigned has_choice, read_at_most(reader, 1));
    if (has_choice == 1) {
      Choice choice;
      VARVE_ASSIGN(choice.type, read_type(reader));
      VARVE_ASSIGN(choice.candidate, read_candidate(reader));
      VARVE_ASSIGN(choice.packs_left, read_at_most(reader, kPacksPerTrial));
      VARVE_ASSIGN(choice.sets_left, read_at_most(reader, kSetsPerTrial));
      if (choice.sets_left == 0) return Status::corrupt("a choice that has ended");
      const MutexLock lock(mutex_);
      choice_ = std::move(choice);
    }
    VARVE_ASSIGN(const unsigned has_regions, read_at_most(reader, 1));
    has_regions_ = has_regions == 1;
    VARVE_TRY(found_.read_learned(reader));
    VARVE_ASSIGN(const unsigned opens, read_at_most(reader, 1));
    return opens == 1 && of_opened_ != nullptr ? of_opened_->read_learned(reader) : Status();
  }

 private:
  Result<EncodedBytes> encode_as_it_is(ByteSpan raw, const PackShape& shape) {
    if (raw.size() > kWidePackBytesMin && effort_ != Effort::fast) return encode_wide(raw, shape);
    switch (effort_) {
      case Effort::fast: return encode_fast(raw, shape);
      case Effort::balanced: return encode_balanced(raw, shape);
      case Effort::best: return encode_best(raw, shape);
    }
    return Status::internal("unknown effort");
  }

  /// By what programs have compressed in it, unless it takes less as it is.
  Result<EncodedBytes> encode_opened(ByteSpan raw, const PackShape& shape) {
    const uint64_t worth_bytes = raw.size() / kOpenedShareMin;
    Opened opened = open_blosc(raw);
    if (opened.made_bytes < worth_bytes) opened = open_deflated(raw);
    const bool worth = opened.made_bytes >= worth_bytes;
    if (!worth) {
      openings_.note(false);
      return encode_as_it_is(raw, shape);
    }
    VARVE_ASSIGN(EncodedBytes by_content, encode_contents(opened, raw.size()));
    // All that can be found in noise is that it comes again.
    const bool all_noise = raw.size() - opened.made_bytes < worth_bytes;
    VARVE_ASSIGN(EncodedBytes closed, all_noise ? encode_chain(far_chains(shape.type, effort_).front(), raw, shape)
                                                : encode_as_it_is(raw, shape));
    const bool smaller = size_of(by_content) < size_of(closed) && comes_back(by_content, raw);
    openings_.note(smaller);
    return smaller ? std::move(by_content) : std::move(closed);
  }
  /// What is made again from its content is made again here first: no other stage rests on so much.
  static bool comes_back(const EncodedBytes& encoded, ByteSpan raw) {
    ByteVector again(raw.size());
    return decode_chain(encoded.recipe, encoded.body, again).ok() && std::equal(raw.begin(), raw.end(), again.begin());
  }
  Result<EncodedBytes> encode_contents(const Opened& opened, uint64_t raw_bytes) {
    std::vector<EncodedSection> sections;
    ByteSpan left = opened.bytes;
    for (const uint64_t bytes : opened.sections) {
      const PackShape shape{.type = {}, .runs = {{bytes, {}, false}}};
      VARVE_ASSIGN(EncodedBytes encoded, of_opened_->encode(left.first(bytes), shape));
      left = left.subspan(bytes);
      sections.push_back({bytes, std::move(encoded)});
    }
    return behind_stage(opened.stage, raw_bytes, opened.params,
                        sections.size() == 1 ? std::move(sections.front().encoded) : joined(sections));
  }

  struct Choice {
    ElementType type;
    Candidate candidate;
    unsigned packs_left = kPacksPerTrial - 1;
    unsigned sets_left = kSetsPerTrial;
  };

  /// What encoded something, and how small.
  struct Smallest {
    Candidate candidate;
    EncodedBytes encoded;
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
    size_t smallest = sample.bytes.size();
    for (CodecChain& chain : candidate_chains(raw, shape, Effort::fast)) {
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, sample.bytes, sample.shape));
      const size_t bytes = size_of(encoded);
      const CodecNumber coder = chain.stages().back().codec->number();
      const double cost = static_cast<double>(bytes) * advantage_wanted(coder);
      if (cost < least) {
        least = cost;
        cheapest = chain;
      }
      if (coder != CodecNumber::planes && bytes >= smallest) break;
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
    VARVE_ASSIGN(std::optional<EncodedBytes> repeated, encode_if_repeated(raw, shape));
    if (repeated) return *std::move(repeated);
    const FirstTrial first_trial = await_first_trial(shape.type);
    const Learned learned = learned_of(raw, shape);
    // What suits one region may seem to suit a pack of several.
    if (learned.choice && (shape.type.numeric() || !has_regions_)) return encode_if_worth(*learned.choice, raw, shape);
    VARVE_ASSIGN(Smallest whole, encode_by_trial(raw, shape, learned.guess));
    VARVE_ASSIGN(std::optional<EncodedBytes> parts, in_smaller_regions(whole.encoded, raw, shape));
    if (parts) return *std::move(parts);
    remember(shape.type, whole.candidate);
    return std::move(whole.encoded);
  }

  static Result<Smallest> encode_by_trial(ByteSpan raw, const PackShape& shape,
                                          const std::optional<NumberGuess>& guess) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::balanced, guess));
    Candidate candidate = balanced_candidate(trial, shape);
    VARVE_ASSIGN(EncodedBytes encoded, encode_if_worth(candidate, raw, shape));
    // Fields differ from place to place, and a sample may mislead: what it prefers to the default has to be better on
    // the whole pack, too.
    for (const Candidate& usual : usual_candidates(trial, candidate, shape)) {
      const bool doubts = is_of_sizes(candidate) || ends_in(candidate.chain, CodecNumber::gzip);
      if (!doubts && is_told_by_sample(trial, candidate, encoded, raw, usual)) continue;
      VARVE_ASSIGN(EncodedBytes usually, encode_if_worth(usual, raw, shape));
      if (cost(usual, usually) >= cost(candidate, encoded)) continue;
      encoded = std::move(usually);
      candidate = usual;
    }
    return Smallest{std::move(candidate), std::move(encoded)};
  }

  /// Bytes of unknown meaning of which some are numbers of another kind than others: each part by itself, if that is
  /// smaller.
  Result<std::optional<EncodedBytes>> in_smaller_regions(const EncodedBytes& whole, ByteSpan raw,
                                                         const PackShape& shape) {
    using Maybe = std::optional<EncodedBytes>;
    // What was compressed is a section itself, and has none.
    const bool may_be = of_opened_ != nullptr && shape.type == ElementType{} && !recipe_is_store(whole.recipe);
    if (!may_be || seems_text(raw) || !regions_.is_due()) return Maybe();
    const std::vector<Region> regions = find_regions(raw);
    has_regions_ = regions.size() > 1;
    regions_.note(has_regions_);
    if (!has_regions_) return Maybe();
    std::vector<EncodedSection> sections;
    ByteSpan left = raw;
    for (const Region& region : regions) {
      VARVE_ASSIGN(EncodedBytes encoded, encode_region(left.first(region.bytes), region));
      sections.push_back({region.bytes, std::move(encoded)});
      left = left.subspan(region.bytes);
    }
    EncodedBytes parts = joined(sections);
    return size_of(parts) < size_of(whole) ? Maybe(std::move(parts)) : Maybe();
  }
  Result<EncodedBytes> encode_region(ByteSpan raw, const Region& region) {
    const PackShape shape{.type = {}, .runs = {{raw.size(), {}, false}}};
    std::optional<NumberGuess> guess;
    if (region.type) guess = guess_again(raw, *region.type);
    if (effort_ == Effort::best) return encode_by_finalists(raw, shape, guess);
    if (const std::optional<Candidate> choice = remembered(shape.type, guess))
      return encode_if_worth(*choice, raw, shape);
    VARVE_ASSIGN(Smallest smallest, encode_by_trial(raw, shape, guess));
    remember(shape.type, smallest.candidate);
    return std::move(smallest.encoded);
  }

  static bool is_of_sizes(const Candidate& candidate) { return candidate.as && candidate.as->sign_last; }
  /// How else numbers are encoded, or what was taken for numbers, if it is not by the default.
  static std::vector<Candidate> usual_candidates(const Trial& trial, const Candidate& candidate,
                                                 const PackShape& shape) {
    std::vector<Candidate> usual;
    const auto is_it = [&](const Candidate& other) { return candidate.is_like(other); };
    if (shape.type.numeric() && !is_it({default_chain(shape.type)})) {
      for (const CodecChain& chain : usual_chains(shape.type)) usual.push_back({chain});
    }
    if (is_of_sizes(candidate) || ends_in(candidate.chain, CodecNumber::gzip)) {
      // Next to nothing was predicted: what takes them for bytes may find more on the whole, and what has a longer
      // window than a sample.
      const auto as_bytes = std::find_if(trial.outcomes.begin(), trial.outcomes.end(), [](const Trial::Outcome& each) {
        return !each.candidate.as && !ends_in(each.candidate.chain, CodecNumber::gzip);
      });
      usual.push_back(as_bytes->candidate);
    } else if (candidate.as && candidate.as->record == 1 && !is_it({default_chain(candidate.as->type), candidate.as})) {
      for (const CodecChain& chain : usual_chains(candidate.as->type)) usual.push_back({chain, candidate.as});
    }
    std::erase_if(usual, is_it);
    return usual;
  }
  /// The size, with what a slow coder must gain.
  static double cost(const Candidate& candidate, const EncodedBytes& encoded) {
    const bool fast = recipe_is_store(encoded.recipe) || ends_in(candidate.chain, CodecNumber::magnitudes);
    return static_cast<double>(size_of(encoded)) * (fast ? 1 : kMagnitudesAdvantage);
  }

  /// By the fastest chain, bytes of unknown meaning of which that leaves next to nothing.
  static Result<std::optional<EncodedBytes>> encode_if_repeated(ByteSpan raw, const PackShape& shape) {
    using Maybe = std::optional<EncodedBytes>;
    if (shape.type.numeric() || raw.size() < 2 * kRepeatedPieces * kRepeatedPieceBytes) return Maybe();
    const CodecChain& chain = default_chain(shape.type);
    for (size_t i = 0; i < kRepeatedPieces; ++i) {
      const ByteSpan piece = raw.subspan((2 * i + 1) * raw.size() / (2 * kRepeatedPieces), kRepeatedPieceBytes);
      VARVE_ASSIGN(const EncodedBytes encoded, encode_chain(chain, piece, {{}, {{piece.size(), {}, false}}}));
      if (kRepeatedPieceRatio * size_of(encoded) > piece.size()) return Maybe();
    }
    VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, raw, shape));
    if (kRepeatedRatio * size_of(encoded) > raw.size()) return Maybe();
    return Maybe(std::move(encoded));
  }

  /// Whether a sample says enough: that the other takes clearly more, of a pack that came out about as it had said, and
  /// of which so much is left that it is not smooth in some places only.
  static bool is_told_by_sample(const Trial& trial, const Candidate& chosen, const EncodedBytes& encoded, ByteSpan raw,
                                const Candidate& other) {
    const std::optional<size_t> chosen_bytes = trial.bytes_of(chosen), other_bytes = trial.bytes_of(other);
    if (!chosen_bytes || !other_bytes) return false;
    const double share = static_cast<double>(*chosen_bytes) / static_cast<double>(trial.sample_bytes);
    return static_cast<double>(*other_bytes) > kClearlyMore * static_cast<double>(*chosen_bytes) &&
           share > kSmoothShare && 1 / ratio_of(encoded, raw) > kAsSampled * share;
  }

  static Candidate balanced_candidate(const Trial& trial, const PackShape& shape) {
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
    if (effort_ != Effort::best) {
      if (const std::optional<Candidate> choice = remembered(shape.type)) chains = {choice->chain};
    }
    std::vector<Candidate> candidates;
    for (CodecChain& chain : chains) candidates.push_back({std::move(chain)});
    VARVE_ASSIGN(Smallest smallest, encode_with_each(candidates, raw, shape));
    if (effort_ == Effort::best) return encode_thoroughly(smallest, raw, shape);
    if (candidates.size() > 1) remember(shape.type, smallest.candidate);
    return std::move(smallest.encoded);
  }

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
    const Learned learned = learned_of(raw, shape);
    std::optional<Smallest> smallest;
    if (learned.choice) {
      VARVE_ASSIGN(smallest, encode_with_each({*learned.choice}, raw, shape));
    } else {
      VARVE_ASSIGN(smallest, encode_wide_by_trial(raw, shape, learned.guess));
      remember(shape.type, smallest->candidate);
    }
    if (effort_ == Effort::balanced) return std::move(smallest->encoded);
    return encode_thoroughly(*smallest, raw, shape);
  }
  /// With effort balanced, no chain is run on the whole pack that can hardly win: filters where none helps a sample,
  /// for they hide what repeats, and what finds nothing from far away where that is much.
  Result<Smallest> encode_wide_by_trial(ByteSpan raw, const PackShape& shape, const std::optional<NumberGuess>& guess) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::balanced, guess));
    std::vector<Candidate> candidates;
    for (CodecChain& chain : far_chains(shape.type, effort_)) candidates.push_back({std::move(chain)});
    const Candidate& near = trial.outcomes.front().candidate;
    const bool is_plain = !near.as && near.chain.stages().size() == 1 && ends_in(near.chain, CodecNumber::zstd);
    std::optional<Smallest> far;
    if (effort_ == Effort::balanced && is_plain) {
      VARVE_ASSIGN(far, encode_with_each({candidates.front()}, raw, shape));
      const double seems = static_cast<double>(trial.outcomes.front().bytes) / static_cast<double>(trial.sample_bytes);
      if (1 / ratio_of(far->encoded, raw) < kFarAdvantage * seems) return *std::move(far);
      candidates.erase(candidates.begin());
    }
    candidates.insert(candidates.begin(), balanced_candidate(trial, shape));
    VARVE_ASSIGN(Smallest smallest, encode_with_each(candidates, raw, shape));
    return far && size_of(far->encoded) < size_of(smallest.encoded) ? *std::move(far) : std::move(smallest);
  }

  /// What is known of a class when its next pack comes: a choice, or else what the pack seems to be.
  struct Learned {
    std::optional<Candidate> choice;
    std::optional<NumberGuess> guess;
  };
  Learned learned_of(ByteSpan raw, const PackShape& shape) {
    Learned learned;
    if (!shape.type.numeric()) {
      learned.guess = guess_of(raw, shape);
      learned.choice = remembered(shape.type, learned.guess);
      return learned;
    }
    // Numbers stay the same over a class, but for what is not told of them.
    learned.choice = remembered(shape.type);
    if (learned.choice && learned.choice->as && !fits(raw, *learned.choice->as)) learned.choice.reset();
    if (!learned.choice) learned.guess = guess_of(raw, shape);
    return learned;
  }

  /// What bytes of unknown meaning seem to be; or numbers without dimensions, which may be records or rows.
  std::optional<NumberGuess> guess_of(ByteSpan raw, const PackShape& shape) {
    if (shape.type.numeric() ? !may_be_records(shape) : shape.type.kind == ElementKind::text || seems_text(raw))
      return std::nullopt;
    if (!guesses_.is_due()) return std::nullopt;
    std::optional<NumberGuess> guess = guess_again(raw, shape.type);
    // What is known of them.
    if (guess && shape.type.numeric() && guess->record == 1 && guess->phase == 0 && guess->dims.empty()) guess.reset();
    guesses_.note(guess.has_value());
    return guess;
  }
  /// One of the last guesses, if it fits. Of numbers, if that is known, of this type.
  std::optional<NumberGuess> guess_again(ByteSpan raw, const ElementType& type) {
    std::vector<NumberGuess> known = found_.guesses();
    const std::vector<NumberGuess> of_all = found_by_all_->guesses();
    known.insert(known.end(), of_all.begin(), of_all.end());
    std::optional<NumberGuess> guess = guess_numbers(raw, known, type);
    if (guess) found_as(*guess).add(*guess);
    return guess;
  }

  /// Rows and records are a class's own. Of what is but floats of some size, other classes are likely to have as much.
  FoundNumbers& found_as(const NumberGuess& guess) { return guess.sign_last ? *found_by_all_ : found_; }

  /// What suited numbers of this type, or bytes that were taken for these numbers.
  std::optional<Candidate> remembered(const ElementType& type, const std::optional<NumberGuess>& guess = {}) {
    if (!type.numeric()) return guess ? found_as(*guess).choice_for(*guess) : std::nullopt;
    const MutexLock lock(mutex_);
    if (!choice_ || choice_->type != type || choice_->packs_left == 0) return std::nullopt;
    --choice_->packs_left;
    return choice_->candidate;
  }
  void remember(const ElementType& type, const Candidate& candidate) {
    if (type.numeric()) {
      const MutexLock lock(mutex_);
      choice_ = {type, candidate};
    } else if (candidate.as) {
      found_as(*candidate.as).choose(*candidate.as, candidate);
    }
  }

  /// The first trial of a class: others of its packs wait for what comes of it, rather than take the same time for the
  /// same. Holds while it lives.
  class FirstTrial {
   public:
    FirstTrial() = default;
    explicit FirstTrial(AutomaticEncoder& of) : of_(&of) {}
    FirstTrial(FirstTrial&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    ~FirstTrial() {
      if (of_ == nullptr) return;
      const MutexLock lock(of_->mutex_);
      of_->first_trial_runs_ = false;
      of_->first_trial_ended_.notify_all();
    }

   private:
    AutomaticEncoder* of_ = nullptr;
  };
  /// Waits for one that is under way, or begins it; nothing, if the class has had one.
  FirstTrial await_first_trial(const ElementType& type) {
    if (!type.numeric()) return {};
    MutexLock lock(mutex_);
    while (first_trial_runs_) first_trial_ended_.wait(mutex_);
    if (choice_ && choice_->type == type) return {};
    first_trial_runs_ = true;
    return FirstTrial(*this);
  }

  static bool learns_as_it_codes(const Candidate& candidate) { return ends_in(candidate.chain, CodecNumber::fpzip); }

  /// What of a trial is run on the whole pack. The default always is: a sample is only a sample, and nothing should
  /// come out larger than without a trial. So is the best that takes the pack as what it is.
  static std::vector<Candidate> finalists(const Trial& trial, double learner_slack) {
    const auto smallest_bytes = static_cast<double>(trial.outcomes.front().bytes);
    std::vector<Candidate> finalists;
    bool was_plain = false;
    for (size_t i = 0; i < trial.outcomes.size(); ++i) {
      const auto& [candidate, bytes] = trial.outcomes[i];
      const bool plain = !candidate.as && !candidate.straight;
      const bool best_plain = plain && !was_plain;
      was_plain = was_plain || plain;
      const double times = static_cast<double>(bytes) / smallest_bytes;
      const bool among_best = i < kFinalistsMax && times <= kFinalistSlack;
      const bool may_learn = times <= learner_slack && learns_as_it_codes(candidate);
      if (among_best || best_plain || may_learn || i == trial.default_index) finalists.push_back(candidate);
    }
    return finalists;
  }

  Result<EncodedBytes> encode_best(ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(EncodedBytes whole, encode_by_finalists(raw, shape, guess_of(raw, shape)));
    VARVE_ASSIGN(std::optional<EncodedBytes> parts, in_smaller_regions(whole, raw, shape));
    return parts ? *std::move(parts) : std::move(whole);
  }

  Result<EncodedBytes> encode_by_finalists(ByteSpan raw, const PackShape& shape,
                                           const std::optional<NumberGuess>& guess) {
    VARVE_ASSIGN(const Trial trial, try_candidates(raw, shape, Effort::best, guess));
    double learner_slack = kLearnerSlack;
    {
      const MutexLock lock(mutex_);
      if (learned_in_vain_) learner_slack = kFinalistSlack;
    }
    std::optional<Smallest> learned, usual;
    for (const Candidate& candidate : finalists(trial, learner_slack)) {
      VARVE_ASSIGN(EncodedBytes encoded, encode_candidate(candidate, raw, shape));
      std::optional<Smallest>& smallest = learns_as_it_codes(candidate) ? learned : usual;
      if (smallest && size_of(smallest->encoded) <= size_of(encoded)) continue;
      smallest = Smallest{candidate, std::move(encoded)};
    }
    // The default is among them, and does not learn.
    VARVE_ASSIGN(EncodedBytes thorough, encode_thoroughly(*usual, raw, shape));
    if (!learned) return thorough;
    const bool in_vain = size_of(thorough) <= size_of(learned->encoded);
    const MutexLock lock(mutex_);
    learned_in_vain_ = in_vain;
    return in_vain ? std::move(thorough) : std::move(learned->encoded);
  }

  /// Whether the coder that finds the shortest matches, and learns what is where in a number, may find more than
  /// filters leave of it: where much comes again, or where nothing was predicted and a sample gains by it.
  Result<bool> worth_searching(const Candidate& candidate, ByteSpan raw, const PackShape& shape) {
    const CodecChain& chain = candidate.chain;
    // What was laid together for what it predicts is no wider for what it repeats.
    if (raw.size() > kWidePackBytesMin && shape.parts.empty()) return true;
    if (chain.stages().empty() || has_stage(chain, CodecNumber::columns)) return false;
    Repeats repeats(shape.type.bytes, kShortWindowBytes, raw.size());
    repeats.add(raw);
    if (repeats.share() >= kSearchedShare) return true;
    const bool predicts = has_stage(chain, CodecNumber::lorenzo) || has_stage(chain, CodecNumber::across);
    if (predicts || !ends_in(chain, CodecNumber::zstd)) return false;
    if (!searches_.is_due()) return false;
    const PackSample sample = sample_of(raw, shape, kSearchedSampleBytes);
    VARVE_ASSIGN(const EncodedBytes usual, encode_candidate(candidate, sample.bytes, sample.shape));
    VARVE_ASSIGN(const EncodedBytes searched,
                 encode_chain(CodecChain({stage(CodecNumber::lzma)}), sample.bytes, sample.shape));
    const bool gains = static_cast<double>(size_of(searched)) < kSearchedGain * static_cast<double>(size_of(usual));
    searches_.note(gains);
    return gains;
  }

  /// Tries a slower coder after the filters of the smallest where it may gain, and returns what is smaller then.
  Result<EncodedBytes> encode_thoroughly(Smallest& smallest, ByteSpan raw, const PackShape& shape) {
    VARVE_ASSIGN(const bool searched_for, worth_searching(smallest.candidate, raw, shape));
    if (searched_for) {
      VARVE_ASSIGN(EncodedBytes searched, encode_chain(CodecChain({stage(CodecNumber::lzma)}), raw, shape));
      if (size_of(searched) < size_of(smallest.encoded)) return searched;
    }
    const auto& [chain, as, straight] = smallest.candidate;
    const bool by_magnitudes = ends_in(chain, CodecNumber::magnitudes);
    if (!ends_in(chain, CodecNumber::zstd) && !by_magnitudes) return std::move(smallest.encoded);
    const double ratio = ratio_of(smallest.encoded, raw);
    std::optional<CodecChain> harder;
    if (!shape.parts.empty()) {
      harder = with_coder(chain, CodecNumber::zstd, kAcrossZstdLevel);
    } else if (ratio >= kLzmaRatio) {
      harder = with_coder(chain, CodecNumber::lzma, 2);
    } else if (ratio >= kThoroughZstdRatio || !(shape.type.numeric() || as)) {
      harder = with_coder(chain, CodecNumber::zstd, 9);
    } else if (by_magnitudes) {
      harder = with_coder(chain, CodecNumber::zstd, 1);
    }
    if (!harder) return std::move(smallest.encoded);
    VARVE_ASSIGN(EncodedBytes encoded, encode_candidate({*std::move(harder), as, straight}, raw, shape));
    return std::move(size_of(encoded) < size_of(smallest.encoded) ? encoded : smallest.encoded);
  }

  const Effort effort_;
  FoundNumbers found_;
  const std::shared_ptr<FoundNumbers> found_by_all_;
  std::unique_ptr<AutomaticEncoder> of_opened_;  ///< for what was compressed; null: it stays as it is
  mutable Mutex mutex_;
  std::optional<Choice> choice_ VARVE_GUARDED_BY(mutex_);  ///< for numbers, which are of one type in a class
  bool first_trial_runs_ VARVE_GUARDED_BY(mutex_) = false;
  ConditionVariable first_trial_ended_;
  std::atomic<bool> has_regions_{false};                   ///< the last pack that was looked at for them
  bool learned_in_vain_ VARVE_GUARDED_BY(mutex_) = false;  ///< a chain that learns as it codes, the last time
  Lookout guesses_{kFutileLooksMax}, openings_{kFutileLooksMax}, searches_{kFutileLooksMax};
  Lookout regions_{kFutileRegionsMax};
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
  if (kind == Kind::automatic) return true;
  return has_stage(chain, CodecNumber::across);
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

std::unique_ptr<Encoder> make_encoder(const CodecPolicy& policy, PackContents contents,
                                      std::shared_ptr<FoundNumbers> found) {
  switch (policy.kind) {
    case CodecPolicy::Kind::chain: return std::make_unique<FixedEncoder>(policy.chain);
    case CodecPolicy::Kind::paper: return std::make_unique<PaperEncoder>(contents);
    case CodecPolicy::Kind::automatic: break;
  }
  if (found == nullptr) found = std::make_shared<FoundNumbers>();
  return std::make_unique<AutomaticEncoder>(policy.effort, policy.opens_compressed, std::move(found));
}

}  // namespace varve
