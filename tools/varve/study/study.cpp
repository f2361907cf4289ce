#include "study/study.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "core/clock.h"
#include "engine/group_streams.h"

namespace varve {

namespace {
constexpr uint64_t kTrialFactor = 8;
constexpr uint64_t kDedupFactor = 128;

uint64_t times(uint64_t bytes, uint64_t factor) { return bytes > UINT64_MAX / factor ? UINT64_MAX : bytes * factor; }

class StudyRun {
 public:
  StudyRun(const StudySeries& series, const StudyOptions& options, ProgressSink& progress)
      : series_(series), options_(options), progress_(progress) {}

  Result<StudyResult> run() {
    for (const StudySet& set : series_.sets) result_.sets.push_back(set.label);
    result_.raw_bytes = series_.bytes();
    result_.contents = study_contents(series_);
    VARVE_TRY(stage("deduplicating", [this] { return deduplicate(); }));
    VARVE_TRY(stage("mapping changes", [this] { return map_changes(); }));
    VARVE_TRY(stage("compressing", [this] { return compress(); }));
    VARVE_TRY(stage("trying settings", [this] { return advise(); }));
    if (result_.compression && result_.advice) {
      result_.timing = study_timing(series_, *result_.compression, result_.advice->trials[result_.advice->chosen],
                                    options_.assumptions);
    }
    return std::move(result_);
  }

 private:
  Status stage(const char* name, const std::function<Status()>& work) {
    if (progress_.cancelled()) {
      result_.complete = false;
      return {};
    }
    progress_.phase(name);
    const double begin = steady_clock().seconds();
    const Status done = work();
    const bool stopped = progress_.cancelled();
    result_.stages.push_back({name, steady_clock().seconds() - begin, done.ok() && !stopped});
    result_.complete = result_.complete && !stopped;
    return done.code() == StatusCode::cancelled ? Status() : done;
  }

  /// Whether files are cut at other places than their variables.
  bool files_differ_from_streams() const {
    for (const StudySet& set : series_.sets) {
      for (const TreeFile& file : set.group.files) {
        if (file.type == FileType::regular && file.bytes > 0 && !is_opaque(file.layout)) return true;
      }
    }
    return false;
  }

  Status deduplicate() {
    const SamplePlan plan = SamplePlan::of(series_, times(options_.sample_bytes, kDedupFactor), options_.group_size);
    const uint64_t bytes = std::min(series_.bytes(), times(options_.sample_bytes, kDedupFactor));
    const bool both = files_differ_from_streams();
    progress_.total(both ? 2 * bytes : bytes);
    DedupOptions dedup;
    dedup.memory_bytes = options_.memory_bytes / 2;
    dedup.thread_count = options_.thread_count;
    VARVE_ASSIGN(result_.dedup, study_dedup(series_, plan, dedup, progress_));
    if (!both || progress_.cancelled()) return {};
    dedup.of_files = true;
    dedup.chunkers = {"fixed:512", "fixed:4096", "fixed:8192", "rabin:8192"};
    VARVE_ASSIGN(Dedup of_files, study_dedup(series_, plan, dedup, progress_));
    for (DedupMethod& method : of_files.methods) result_.dedup->methods.push_back(std::move(method));
    return {};
  }

  Status map_changes() {
    progress_.total(series_.bytes());
    VARVE_ASSIGN(result_.changes, study_changes(series_, change_map_bytes(), progress_));
    return {};
  }

  /// Fingerprints for what may be read of a set, so that reading stays bounded as well.
  uint64_t change_map_bytes() const {
    const uint64_t blocks = times(options_.sample_bytes, kDedupFactor) / 4_KiB / series_.sets.size();
    return std::min(options_.memory_bytes / 8, times(blocks, sizeof(uint64_t)));
  }

  Status compress() {
    CompressionOptions compression;
    // Packs are held three times while they are tried: raw, encoded and decoded.
    compression.sample_bytes = std::min(options_.sample_bytes, options_.memory_bytes / 4);
    compression.group_size = options_.group_size;
    compression.thread_count = options_.thread_count;
    VARVE_ASSIGN(result_.compression, study_compression(series_, compression, progress_));
    return {};
  }

  Status advise() {
    AdviceOptions advice;
    // A store in memory keeps what is written, and what is durable of it.
    advice.sample_bytes = std::min(times(options_.sample_bytes, kTrialFactor), options_.memory_bytes / 4);
    advice.group_size = options_.group_size;
    // A save with less would find less of what comes again from far away; few need all that they may take.
    advice.memory_bytes = options_.memory_bytes / 4 * 3;
    advice.thread_count = options_.thread_count;
    advice.mean_time_between_failures = options_.assumptions.mean_time_between_failures;
    VARVE_ASSIGN(result_.advice, study_advice(series_, advice, progress_));
    return {};
  }

  const StudySeries& series_;
  const StudyOptions& options_;
  ProgressSink& progress_;
  StudyResult result_;
};
}  // namespace

Result<StudyResult> run_study(const StudySeries& series, const StudyOptions& options, ProgressSink& progress) {
  return StudyRun(series, options, progress).run();
}

}  // namespace varve
