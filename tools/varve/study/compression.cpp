#include "study/compression.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/clock.h"
#include "core/sync.h"
#include "core/thread_pool.h"
#include "engine/bundle.h"
#include "engine/group_streams.h"
#include "engine/pack_builder.h"
#include "engine/wide_packs.h"

namespace varve {

namespace {
/// What a pack takes beside its body and recipe: its header, and one entry of its table.
constexpr uint64_t kPackOverheadBytes = 64;

/// Runs a chain of codecs that depends on the type of the elements.
class ByTypeEncoder final : public Encoder {
 public:
  explicit ByTypeEncoder(std::string second) : second_(std::move(second)) {}
  Result<EncodedBytes> encode(ByteSpan raw, const PackShape& shape) override {
    std::string name = find_codec(CodecNumber::lz4).ok() ? "lz4" : "zstd:1";
    const bool floating = shape.type.kind == ElementKind::floating;
    if (floating && shape.type.bytes == 8) name = "fpc";
    if (floating && shape.type.bytes == 4) name = "fpzip";
    VARVE_ASSIGN(const CodecChain chain, CodecChain::parse(name + second_));
    return encode_chain(chain, raw, shape);
  }

 private:
  const std::string second_;
};

Status lay_out_packs(Source& source, const SaveOptions& options, ProgressSink& progress, LaidOutGroup& laid_out) {
  VARVE_ASSIGN(GroupStreams group, describe_streams(source, options, progress));
  VARVE_TRY(find_bundles(source, options, group));
  VARVE_TRY(find_wide_packs(source, options, wide_pack_bytes_max(options.memory_bytes), group));
  laid_out.raw_bytes = group.raw_bytes;
  VARVE_ASSIGN(const std::unique_ptr<Chunker> chunker, make_chunker(options.chunker));
  // Holes are read, as a run of zeros is no different.
  BatchReader reader(group.streams, source,
                     WorkOrder(group.streams, options.scheme, whole_block_bytes(options), options.pack_bytes,
                               options.chunker.bytes_average),
                     *chunker, UINT64_MAX, cuts_cells(options.chunker));
  PackBuilder builder(options.pack_bytes, options.scheme);
  ChunkBatch batch(std::max<size_t>(512_KiB, 8 * BatchReader::bytes_ahead(*chunker, cuts_cells(options.chunker))));
  const ScoreFunction score = ScoreFunction::preferred();
  const auto key_of = [&group](const Stream& of) -> const std::string& {
    return of.bundle.number > 0 ? group.bundle_keys[of.bundle.number - 1] : group.class_keys[of.laid_class()];
  };
  const Stream* last = nullptr;
  while (true) {
    if (progress.cancelled()) return Status::cancelled();
    const double begin = steady_clock().seconds();
    VARVE_TRY(reader.fill(batch));
    laid_out.read_seconds += steady_clock().seconds() - begin;
    if (batch.chunks.empty()) break;
    for (const BatchChunk& chunk : batch.chunks) {
      const Stream& stream = group.streams[chunk.stream];
      if (!builder.accepts(stream, chunk.bytes)) laid_out.packs.push_back(builder.take(key_of(*last), score));
      if (builder.empty()) builder.expect(stream, options.pack_bytes);
      builder.add(group.streams, batch, chunk);
      last = &stream;
    }
  }
  if (!builder.empty()) laid_out.packs.push_back(builder.take(key_of(*last), score));
  return {};
}
}  // namespace

Result<LaidOutGroup> lay_out(Source& source, const SaveOptions& options, ProgressSink& progress) {
  LaidOutGroup laid_out;
  double processor_seconds = 0;
  const Status done = metered(processor_seconds, [&] { return lay_out_packs(source, options, progress, laid_out); });
  VARVE_TRY(done);
  laid_out.order_seconds = std::max(0.0, processor_seconds - laid_out.read_seconds);
  return laid_out;
}

Result<Method> find_method(const std::string& name) {
  constexpr std::string_view by_type = "by-type";
  if (name.starts_with(by_type)) {
    return Method{name, [second = name.substr(by_type.size())] { return std::make_unique<ByTypeEncoder>(second); }};
  }
  VARVE_ASSIGN(const CodecPolicy policy, CodecPolicy::parse(name));
  return Method{name, [policy] { return make_encoder(policy); }};
}

Result<std::vector<PackOutcome>> try_method(const std::vector<PendingPack>& packs, const Method& method,
                                            size_t thread_count) {
  std::map<std::string, std::unique_ptr<Encoder>> encoders;
  for (const PendingPack& pack : packs) {
    std::unique_ptr<Encoder>& encoder = encoders[pack.meta.class_key];
    if (encoder == nullptr) encoder = method.make_encoder();
  }
  std::vector<PackOutcome> outcomes(packs.size());
  Status tried = parallel_for(packs.size(), std::max<size_t>(thread_count, 1), [&](size_t i) -> Status {
    const PendingPack& pack = packs[i];
    PackOutcome& outcome = outcomes[i];
    Encoder& encoder = *encoders.at(pack.meta.class_key);
    const Result<EncodedBytes> encoded =
        metered(outcome.encode_seconds, [&] { return encoder.encode(pack.raw, pack.shape); });
    VARVE_TRY(encoded.status());
    ByteVector decoded(pack.raw.size());
    const Status done =
        metered(outcome.decode_seconds, [&] { return decode_chain(encoded->recipe, encoded->body, decoded); });
    VARVE_TRY(done);
    if (decoded != pack.raw) return Status::internal("a codec does not give back what it was given", method.name);
    outcome.class_key = pack.meta.class_key;
    outcome.raw_bytes = pack.raw.size();
    outcome.stored_bytes = encoded->body.size() + encoded->recipe.size() + kPackOverheadBytes;
    return {};
  });
  VARVE_TRY(tried);
  return outcomes;
}

namespace {
constexpr size_t kSetsMax = 12;
constexpr Scheme kSchemes[] = {Scheme::agnostic, Scheme::agnostic_block, Scheme::aware, Scheme::aware_block};
constexpr uint64_t kBlockBytes[] = {4_KiB, 16_KiB, 64_KiB, 256_KiB, 1_MiB};

bool is_aware(Scheme scheme) { return scheme == Scheme::aware || scheme == Scheme::aware_block; }

struct NamedMethod {
  const char* name;
  int passes;
};
/// Single, then double compression. What knows types serves the aware schemes only.
constexpr NamedMethod kGeneral[] = {
    {"gzip:6", 1}, {"gzip:6+gzip:6", 2}, {"zstd:3", 1}, {"zstd:3+gzip:6", 2}, {"balanced", 0}};
constexpr NamedMethod kTyped[] = {{"by-type", 1},
                                  {"by-type+gzip:6", 2},
                                  {"shuffle+zstd:1", 1},
                                  {"shuffle+zstd:1+gzip:6", 2},
                                  {"lorenzo+shuffle+zstd:1", 1},
                                  {"lorenzo+shuffle+zstd:1+gzip:6", 2},
                                  {"lorenzo+magnitudes", 1},
                                  {"fast", 0},
                                  {"best", 0}};
/// What the figures follow: gzip for the agnostic schemes; for the others the paper's codecs, and Varve's choice.
constexpr const char* kPaperMethod = "by-type+gzip:6";
constexpr const char* kOwnMethod = "balanced";

class CompressionStudy {
 public:
  CompressionStudy(const StudySeries& series, const CompressionOptions& options, ProgressSink& progress)
      : series_(series), options_(options), progress_(progress) {
    thread_count_ = options.thread_count == 0 ? processor_count() : options.thread_count;
  }

  Result<Compression> run() {
    const StudySet& set = series_.sets[series_.sets.size() / 2];
    plan_for(set);
    result_.set = set.label;
    tell_total(set);
    Status done = try_methods(set);
    if (done.ok()) done = try_group_sizes(set);
    if (done.ok()) done = try_block_sizes(set);
    if (done.ok()) done = try_sets();
    if (!done.ok() && done.code() != StatusCode::cancelled) return done;
    find_improvements();
    return std::move(result_);
  }

 private:
  struct Trial {
    const StudySet& set;
    Scheme scheme = Scheme::aware;
    uint32_t group_size = 1;
    uint64_t block_bytes = 64_KiB;
  };
  /// The sample of a set in groups, laid down by a scheme.
  struct LaidOut {
    std::vector<LaidOutGroup> groups;
    double order_seconds = 0;
    uint64_t raw_bytes = 0;
  };

  void plan_for(const StudySet& set) {
    std::set<int64_t> ranks;
    for (const SourceFile& file : set.files) ranks.insert(file.rank);
    ranks.erase(-1);
    result_.rank_count = static_cast<uint32_t>(std::max<size_t>(ranks.size(), 1));
    if (set.bytes() <= options_.sample_bytes) return;
    const double share = static_cast<double>(options_.sample_bytes) / static_cast<double>(set.bytes());
    plan_ = SamplePlan::of(series_, static_cast<uint64_t>(share * static_cast<double>(series_.bytes())),
                           options_.group_size);
    result_.sampled_share =
        static_cast<double>(PartSource(set, plan_, all_files(set)).bytes()) / static_cast<double>(set.bytes());
  }

  void tell_total(const StudySet& set) const {
    const size_t schemes = std::size(kSchemes), aware_schemes = schemes / 2;
    const size_t lines = aware_schemes + 2 * aware_schemes;  // of a figure: gzip, and two for each aware scheme
    size_t sizes = 1;
    for (uint32_t size = 1; size < options_.group_size && size < result_.rank_count; size *= 2) ++sizes;
    const size_t sets = std::min(series_.sets.size(), kSetsMax);
    const size_t trials = schemes * std::size(kGeneral) + aware_schemes * std::size(kTyped) + (sizes + sets) * lines +
                          std::size(kBlockBytes) * lines / 2;
    progress_.total(trials * std::min(set.bytes(), options_.sample_bytes));
  }

  SaveOptions save_options(const Trial& trial) const {
    SaveOptions options = series_.options;
    options.scheme = trial.scheme;
    options.block_bytes = trial.block_bytes;
    // Blocks may be smaller than the usual chunk.
    options.chunker.bytes_average = static_cast<uint32_t>(std::min<uint64_t>(8_KiB, trial.block_bytes));
    return options;
  }

  Result<LaidOut> lay_down(const Trial& trial) {
    LaidOut laid_out;
    for (const std::vector<uint32_t>& files : groups_of(trial.set, trial.group_size)) {
      PartSource source(trial.set, plan_, files);
      VARVE_ASSIGN(LaidOutGroup group, lay_out(source, save_options(trial), progress_));
      laid_out.order_seconds += group.order_seconds;
      laid_out.raw_bytes += group.raw_bytes;
      laid_out.groups.push_back(std::move(group));
    }
    return laid_out;
  }

  Result<CompressionPoint> measure(const Trial& trial, const LaidOut& laid_out, const std::string& name, int passes) {
    if (progress_.cancelled()) return Status::cancelled();
    VARVE_ASSIGN(const Method method, find_method(name));
    std::vector<PackOutcome> outcomes;
    for (const LaidOutGroup& group : laid_out.groups) {
      VARVE_ASSIGN(std::vector<PackOutcome> some, try_method(group.packs, method, thread_count_));
      outcomes.insert(outcomes.end(), some.begin(), some.end());
    }
    CompressionPoint point;
    point.scheme = trial.scheme;
    point.method = name;
    point.passes = passes;
    point.group_size = trial.group_size;
    point.block_bytes = trial.block_bytes;
    point.set = trial.set.label;
    summarise(trial, laid_out, outcomes, point);
    progress_.advance(laid_out.raw_bytes);
    return point;
  }

  void summarise(const Trial& trial, const LaidOut& laid_out, const std::vector<PackOutcome>& outcomes,
                 CompressionPoint& point) const {
    double encode_seconds = 0, decode_seconds = 0, raw_bytes = 0, stored_bytes = 0;
    std::map<std::string, uint32_t> strata;
    std::vector<RatioUnit> units;
    for (const PackOutcome& outcome : outcomes) {
      const auto [stratum, added] = strata.emplace(outcome.class_key, static_cast<uint32_t>(strata.size()));
      units.push_back(
          {stratum->second, static_cast<double>(outcome.raw_bytes), static_cast<double>(outcome.stored_bytes)});
      encode_seconds += outcome.encode_seconds;
      decode_seconds += outcome.decode_seconds;
      raw_bytes += static_cast<double>(outcome.raw_bytes);
      stored_bytes += static_cast<double>(outcome.stored_bytes);
    }
    const auto speed = [&](double seconds) { return seconds > 0 ? raw_bytes / seconds : 0; };
    point.encode_bytes_per_second = speed(encode_seconds);
    point.decode_bytes_per_second = speed(decode_seconds);
    point.order_bytes_per_second = speed(laid_out.order_seconds);
    if (plan_.takes_all()) {
      point.raw_bytes = laid_out.raw_bytes;
      point.stored_bytes = Estimate::exact(stored_bytes);
      return;
    }
    const std::vector<double> bases = class_bytes(trial, strata);
    for (const double base : bases) point.raw_bytes += static_cast<uint64_t>(base);
    point.stored_bytes = estimate_total(units, bases);
  }

  /// What the classes of the sample have in all of the set.
  std::vector<double> class_bytes(const Trial& trial, const std::map<std::string, uint32_t>& strata) const {
    std::vector<double> bases(strata.size());
    for (const Stream& stream : trial.set.group.streams) {
      const auto found = strata.find(trial.set.group.class_keys[stream.class_id]);
      // An agnostic scheme has one class for all.
      const size_t stratum = found != strata.end() ? found->second : 0;
      bases[stratum] += static_cast<double>(stream.bytes);
    }
    return bases;
  }

  Status try_methods(const StudySet& set) {
    for (const Scheme scheme : kSchemes) {
      const Trial trial{set, scheme, options_.group_size};
      VARVE_ASSIGN(const LaidOut laid_out, lay_down(trial));
      for (const NamedMethod& method : kGeneral) {
        VARVE_ASSIGN(CompressionPoint point, measure(trial, laid_out, method.name, method.passes));
        result_.methods.push_back(std::move(point));
      }
      if (!is_aware(scheme)) continue;
      for (const NamedMethod& method : kTyped) {
        VARVE_ASSIGN(CompressionPoint point, measure(trial, laid_out, method.name, method.passes));
        result_.methods.push_back(std::move(point));
      }
    }
    return {};
  }

  /// The lines of a figure at one place of it.
  Status try_figure(const Trial& trial, std::vector<CompressionPoint>& points) {
    VARVE_ASSIGN(const LaidOut laid_out, lay_down(trial));
    if (!is_aware(trial.scheme)) {
      VARVE_ASSIGN(CompressionPoint point, measure(trial, laid_out, kBaselineMethod, 1));
      points.push_back(std::move(point));
      return {};
    }
    VARVE_ASSIGN(CompressionPoint paper, measure(trial, laid_out, kPaperMethod, 2));
    points.push_back(std::move(paper));
    VARVE_ASSIGN(CompressionPoint own, measure(trial, laid_out, kOwnMethod, 0));
    points.push_back(std::move(own));
    return {};
  }

  Status try_group_sizes(const StudySet& set) {
    for (uint32_t size = 1; size <= options_.group_size; size *= 2) {
      for (const Scheme scheme : kSchemes) VARVE_TRY(try_figure({set, scheme, size}, result_.groups));
      if (size >= result_.rank_count) break;
    }
    return {};
  }

  Status try_block_sizes(const StudySet& set) {
    for (const uint64_t bytes : kBlockBytes) {
      for (const Scheme scheme : {Scheme::agnostic_block, Scheme::aware_block})
        VARVE_TRY(try_figure({set, scheme, options_.group_size, bytes}, result_.blocks));
    }
    return {};
  }

  Status try_sets() {
    const size_t count = std::min(series_.sets.size(), kSetsMax);
    for (size_t i = 0; i < count; ++i) {
      const StudySet& set = series_.sets[count == 1 ? 0 : i * (series_.sets.size() - 1) / (count - 1)];
      for (const Scheme scheme : kSchemes) VARVE_TRY(try_figure({set, scheme, options_.group_size}, result_.series));
    }
    return {};
  }

  void find_improvements() {
    std::map<uint32_t, double> baseline;
    for (const CompressionPoint& point : result_.groups) {
      if (point.scheme == Scheme::agnostic) baseline[point.group_size] = point.ratio().value;
    }
    for (const Scheme scheme : {Scheme::aware, Scheme::aware_block}) {
      for (const char* method : {kPaperMethod, kOwnMethod}) {
        Improvement found{scheme, method, -1e300, 1e300, 0, 0};
        for (const CompressionPoint& point : result_.groups) {
          if (point.scheme != scheme || point.method != method || !baseline.contains(point.group_size)) continue;
          const double gain = point.ratio().value / baseline[point.group_size] - 1;
          if (gain > found.best) found.best = gain, found.best_group_size = point.group_size;
          if (gain < found.worst) found.worst = gain, found.worst_group_size = point.group_size;
        }
        if (found.best_group_size > 0) result_.improvements.push_back(found);
      }
    }
  }

  const StudySeries& series_;
  const CompressionOptions& options_;
  ProgressSink& progress_;
  size_t thread_count_ = 1;
  SamplePlan plan_;
  Compression result_;
};
}  // namespace

Estimate CompressionPoint::ratio() const {
  const auto raw = static_cast<double>(raw_bytes);
  const auto over = [raw](double stored) { return stored > 0 ? raw / stored : 0; };
  return {over(stored_bytes.value), over(stored_bytes.high), over(stored_bytes.low)};
}

Result<Compression> study_compression(const StudySeries& series, const CompressionOptions& options,
                                      ProgressSink& progress) {
  return CompressionStudy(series, options, progress).run();
}

}  // namespace varve
