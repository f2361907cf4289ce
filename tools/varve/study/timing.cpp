#include "study/timing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/clock.h"
#include "core/memory_file_system.h"
#include "engine/save.h"
#include "runtime/report.h"
#include "study/compression.h"

namespace varve {

namespace {
constexpr const char* kStorePath = "/store";
constexpr const char* kJob = "study";

/// Passes on what matters of a save that is part of something longer.
class InnerProgress final : public ProgressSink {
 public:
  explicit InnerProgress(ProgressSink& outer) : outer_(outer) {}
  void total(uint64_t) override {}
  void advance(uint64_t bytes) override { outer_.advance(bytes); }
  void phase(std::string_view) override {}
  void warning(const Status& what) override { outer_.warning(what); }
  bool cancelled() const override { return outer_.cancelled(); }

 private:
  ProgressSink& outer_;
};

/// The packs that a set added to a store, and what the rest of its arenas takes.
struct Added {
  std::vector<RatioUnit> packs;     ///< strata are classes of the series
  std::vector<double> class_bytes;  ///< raw bytes that are new
  double rest_bytes = 0;
};

class TrialSaver {
 public:
  TrialSaver(const StudySeries& series, const SamplePlan& plan, const SaveOptions& options, ProgressSink& progress)
      : series_(series), plan_(plan), options_(options), progress_(progress) {
    options_.direct_io = false;
    for (size_t i = 0; i < series.class_keys.size(); ++i) classes_[series.class_keys[i]] = static_cast<uint32_t>(i);
  }

  Result<TrialSeries> run() {
    VARVE_TRY(Store::create(fs_, kStorePath));
    VARVE_ASSIGN(store_, Store::open(fs_, kStorePath));
    TrialSeries trial;
    trial.scheme = scheme_name(options_.scheme);
    trial.policy = options_.codec.name();
    trial.chunker = chunker_name(options_.chunker);
    for (size_t i = 0; i < series_.sets.size(); ++i) {
      VARVE_ASSIGN(TrialSet set, save(series_.sets[i], i, trial));
      trial.sets.push_back(std::move(set));
    }
    trial.sampled_share = static_cast<double>(trial.saved_bytes) / static_cast<double>(series_.bytes());
    return trial;
  }

 private:
  Result<TrialSet> save(const StudySet& set, size_t step, TrialSeries& trial) {
    std::vector<std::unique_ptr<PartSource>> parts;
    std::vector<Source*> sources;
    uint64_t saved_bytes = 0;
    for (const std::vector<uint32_t>& files : groups_of(set, options_.ranks.group_size)) {
      parts.push_back(std::make_unique<PartSource>(set, plan_, files));
      sources.push_back(parts.back().get());
      saved_bytes += parts.back()->bytes();
    }
    const double begin = steady_clock().seconds();
    const Result<SaveReport> report = metered(trial.processor_seconds, [&] {
      return save_groups(*store_, sources, {kJob, step}, options_, progress_,
                         [](WriterLease& lease, const SetRecord& record) { return lease.commit(record); });
    });
    VARVE_TRY(report.status());
    trial.seconds += steady_clock().seconds() - begin;
    trial.saved_bytes += saved_bytes;
    TrialSet result{set.label, set.bytes(), Estimate::exact(static_cast<double>(report->record.stored_bytes()))};
    if (plan_.takes_all()) return result;
    VARVE_ASSIGN(const Added added, take_added());
    result.stored_bytes = extrapolate(set, added, static_cast<double>(saved_bytes));
    return result;
  }

  Result<Added> take_added() {
    Added added;
    added.class_bytes.resize(series_.class_keys.size());
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_->list_arenas());
    for (const ArenaId& id : arenas) {
      if (!seen_.insert(id).second) continue;
      VARVE_ASSIGN(const std::shared_ptr<ArenaReader> arena, store_->arena(id));
      added.rest_bytes += static_cast<double>(arena->bytes());
      for (size_t i = 0; i < arena->index().packs.size(); ++i) {
        VARVE_ASSIGN(const PackMeta meta, arena->read_pack_meta(i));
        const auto raw = static_cast<double>(meta.held_bytes());
        const auto body = static_cast<double>(arena->index().packs[i].body_bytes);
        const auto found = classes_.find(meta.class_key);
        const uint32_t id_of_class = found == classes_.end() ? 0 : found->second;
        added.packs.push_back({id_of_class, raw, body});
        added.class_bytes[id_of_class] += raw;
        added.rest_bytes -= body;
      }
    }
    return added;
  }

  /// Of each class: its new bytes by their share in the sample, these by the ratio of their packs.
  Estimate extrapolate(const StudySet& set, const Added& added, double saved_bytes) const {
    std::vector<double> all(series_.class_keys.size()), sampled(series_.class_keys.size());
    for (size_t i = 0; i < set.group.streams.size(); ++i) {
      const uint32_t id = set.keys[i].class_id;
      all[id] += static_cast<double>(set.group.streams[i].bytes);
      for (const StreamPiece& piece : plan_.pieces(set, i)) sampled[id] += static_cast<double>(piece.end - piece.begin);
    }
    std::vector<double> new_bytes(all.size());
    for (size_t id = 0; id < all.size(); ++id) {
      if (sampled[id] > 0) new_bytes[id] = all[id] * added.class_bytes[id] / sampled[id];
    }
    Estimate stored = estimate_total(added.packs, new_bytes);
    const double rest = added.rest_bytes * static_cast<double>(set.bytes()) / saved_bytes;
    for (double* value : {&stored.value, &stored.low, &stored.high}) *value += rest;
    return stored;
  }

  const StudySeries& series_;
  const SamplePlan& plan_;
  SaveOptions options_;
  InnerProgress progress_;
  MemoryFileSystem fs_;
  std::unique_ptr<Store> store_;
  std::map<std::string, uint32_t> classes_;
  std::set<ArenaId> seen_;
};
}  // namespace

uint64_t TrialSeries::raw_bytes() const {
  uint64_t sum = 0;
  for (const TrialSet& set : sets) sum += set.raw_bytes;
  return sum;
}

Estimate TrialSeries::stored_bytes() const {
  Estimate sum;
  for (const TrialSet& set : sets) {
    sum.value += set.stored_bytes.value;
    sum.low += set.stored_bytes.low;
    sum.high += set.stored_bytes.high;
  }
  return sum;
}

Result<TrialSeries> try_save(const StudySeries& series, const SamplePlan& plan, const SaveOptions& options,
                             ProgressSink& progress) {
  return TrialSaver(series, plan, options, progress).run();
}

namespace {
double sum_of(const std::vector<TimedStep>& steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0,
                         [](double sum, const TimedStep& step) { return sum + step.seconds; });
}

const CompressionPoint* find_point(const std::vector<CompressionPoint>& points, Scheme scheme, std::string_view method,
                                   uint32_t group_size) {
  for (const CompressionPoint& point : points) {
    if (point.scheme == scheme && point.method == method && point.group_size == group_size) return &point;
  }
  return nullptr;
}

double over(double bytes, double bytes_per_second) { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }

class Timer {
 public:
  Timer(const StudySeries& series, const Compression& compression, const TrialSeries& trial,
        const RunAssumptions& assumptions)
      : compression_(compression), trial_(trial) {
    timing_.assumptions = assumptions;
    const uint64_t ranks = series.rank_count();
    if (timing_.assumptions.node_count == 0) timing_.assumptions.node_count = ranks;
    timing_.node_bytes = static_cast<double>(series.set_bytes_max()) / static_cast<double>(ranks);
  }

  Timing run() {
    uint32_t group_size = 0;  // the largest that was tried
    for (const CompressionPoint& point : compression_.groups) group_size = std::max(group_size, point.group_size);
    const CompressionPoint* alone = find_point(compression_.groups, Scheme::agnostic, kBaselineMethod, 1);
    const CompressionPoint* agnostic = find_point(compression_.groups, Scheme::agnostic, kBaselineMethod, group_size);
    const CompressionPoint* aware = find_point(compression_.groups, Scheme::aware, "by-type+gzip:6", group_size);
    if (alone == nullptr || agnostic == nullptr || aware == nullptr) return std::move(timing_);
    timing_.group_size = static_cast<uint32_t>(std::min<uint64_t>(group_size, timing_.assumptions.node_count));

    add_plain();
    add_alone(*alone);
    add_gathered();
    add_merged("Agnostic+Agg", "files of a group one after another, gzip", *agnostic, false);
    add_merged("Aware+Agg", "variables side by side, mcrEngine's codecs and gzip", *aware, true);
    add_own();
    add_intervals();
    return std::move(timing_);
  }

 private:
  double node_bytes() const { return timing_.node_bytes; }
  double group_bytes() const { return timing_.node_bytes * timing_.group_size; }
  double all_bytes() const { return timing_.node_bytes * static_cast<double>(timing_.assumptions.node_count); }
  double transfer(double bytes) const { return over(bytes, timing_.assumptions.io_bytes_per_second); }
  double fetch() const { return over(group_bytes(), timing_.assumptions.network_bytes_per_second); }

  TimedConfiguration& add(std::string name, std::string description, double written_bytes) {
    TimedConfiguration configuration;
    configuration.name = std::move(name);
    configuration.description = std::move(description);
    configuration.written_bytes = written_bytes;
    return timing_.configurations.emplace_back(std::move(configuration));
  }

  void add_plain() {
    TimedConfiguration& plain = add("NoC+NoAgg", "every rank writes its file as it is", all_bytes());
    plain.checkpoint = {{"write", transfer(all_bytes())}};
    plain.restart = {{"read", transfer(all_bytes())}};
  }

  void add_alone(const CompressionPoint& point) {
    const double bytes = all_bytes() / point.ratio().value;
    TimedConfiguration& alone = add("C+NoAgg", "every rank compresses its file with gzip", bytes);
    alone.checkpoint = {{"compress", over(node_bytes(), point.encode_bytes_per_second)}, {"write", transfer(bytes)}};
    alone.restart = {{"read", transfer(bytes)}, {"decompress", over(node_bytes(), point.decode_bytes_per_second)}};
  }

  void add_gathered() {
    TimedConfiguration& gathered = add("NoC+Agg", "the files of a group in one, as they are", all_bytes());
    gathered.checkpoint = {{"fetch", fetch()}, {"write", transfer(all_bytes())}};
    gathered.restart = {{"read", transfer(all_bytes())}, {"send", fetch()}};
  }

  void add_merged(const char* name, const char* description, const CompressionPoint& point, bool aware) {
    const double bytes = all_bytes() / point.ratio().value;
    const char* merge = aware ? "classify and merge" : "merge";
    const char* split = aware ? "split" : "separate";
    TimedConfiguration& merged = add(name, description, bytes);
    merged.checkpoint = {{"fetch", fetch()},
                         {merge, over(group_bytes(), point.order_bytes_per_second)},
                         {"compress", over(group_bytes(), point.encode_bytes_per_second)},
                         {"write", transfer(bytes)}};
    merged.restart = {{"read", transfer(bytes)},
                      {"decompress", over(group_bytes(), point.decode_bytes_per_second)},
                      {split, over(group_bytes(), point.order_bytes_per_second)},
                      {"send", fetch()}};
  }

  /// Each node takes its own data apart and writes what is new; a restart reads all of it.
  void add_own() {
    if (trial_.sets.empty() || trial_.saved_bytes == 0 || trial_.processor_seconds <= 0) return;
    const CompressionPoint* point = nullptr;
    for (const CompressionPoint& each : compression_.methods) {
      if (each.scheme == Scheme::aware && each.method == trial_.policy) point = &each;
    }
    if (point == nullptr) return;
    const double speed = static_cast<double>(trial_.saved_bytes) / trial_.processor_seconds;
    // The newest set: the first one has nothing to share with.
    const TrialSet& newest = trial_.sets.back();
    const double bytes = all_bytes() * newest.stored_bytes.value / static_cast<double>(newest.raw_bytes);
    const double whole = all_bytes() / point->ratio().value;
    TimedConfiguration& own = add("Varve", "every node stores what is new of its own data", bytes);
    own.checkpoint = {{"cut, look up, compress", over(node_bytes(), speed)}, {"write", transfer(bytes)}};
    own.restart = {{"read", transfer(whole)},
                   {"decompress", over(node_bytes(), point->decode_bytes_per_second)},
                   {"lay in place", over(node_bytes(), point->order_bytes_per_second)}};
  }

  void add_intervals() {
    const RunAssumptions& said = timing_.assumptions;
    OverheadModel model;
    model.node_bytes = timing_.node_bytes;
    model.memory_bytes_per_second = said.memory_bytes_per_second;
    model.io_bytes_per_second = said.io_bytes_per_second;
    model.node_count = said.node_count;
    timing_.asynchronous_seconds = model.asynchronous_seconds();
    for (TimedConfiguration& each : timing_.configurations) {
      const double mtbf = said.mean_time_between_failures, cost = each.checkpoint_seconds();
      each.interval_seconds = best_interval_seconds(cost, mtbf);
      each.waste = expected_waste(each.interval_seconds, cost, mtbf);
      // One cannot begin before the one before is written.
      each.asynchronous_interval_seconds = std::max(best_interval_seconds(timing_.asynchronous_seconds, mtbf), cost);
      each.asynchronous_waste = expected_waste(each.asynchronous_interval_seconds, timing_.asynchronous_seconds, mtbf);
    }
  }

  const Compression& compression_;
  const TrialSeries& trial_;
  Timing timing_;
};
}  // namespace

double TimedConfiguration::checkpoint_seconds() const { return sum_of(checkpoint); }
double TimedConfiguration::restart_seconds() const { return sum_of(restart); }

Timing study_timing(const StudySeries& series, const Compression& compression, const TrialSeries& trial,
                    const RunAssumptions& assumptions) {
  return Timer(series, compression, trial, assumptions).run();
}

}  // namespace varve
