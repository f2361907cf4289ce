#include "study/trial_save.h"

#include <map>
#include <set>

#include "aggregate/save_groups.h"
#include "core/clock.h"
#include "core/memory_file_system.h"
#include "study/metered.h"

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
    for (const std::vector<uint32_t>& files : groups_of(set, options_.group_size)) {
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

}  // namespace varve
