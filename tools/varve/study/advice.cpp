#include "study/advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/quantity.h"

namespace varve {

namespace {
/// By how much a setting must make the store smaller to be worth what it costs: content-defined chunks are cut slower,
/// effort best takes several times the processor time; blocks cost nothing but are not the default.
constexpr double kChunkerGain = 0.03;
constexpr double kSchemeGain = 0.01;
constexpr double kBestGain = 0.05;
/// What effort fast may lose.
constexpr double kFastLoss = 0.01;
/// The defaults, and one setting after another.
constexpr uint64_t kTrials = 5;

class Adviser {
 public:
  Adviser(const StudySeries& series, const AdviceOptions& options, ProgressSink& progress)
      : series_(series), options_(options), progress_(progress) {
    plan_ = SamplePlan::of(series, options.sample_bytes, options.group_size);
    base_ = series.options;
    base_.ranks.group_size = options.group_size;
    base_.memory_bytes = options.memory_bytes;
    base_.thread_count = options.thread_count;
  }

  Result<Advice> run() {
    progress_.total(kTrials * std::min(series_.bytes(), options_.sample_bytes));
    VARVE_TRY(attempt(base_));
    // A stop keeps what was tried so far.
    const Status tried = try_others();
    if (!tried.ok() && tried.code() != StatusCode::cancelled) return tried;
    write_files();
    return std::move(advice_);
  }

 private:
  Status attempt(const SaveOptions& save) {
    VARVE_ASSIGN(TrialSeries trial, try_save(series_, plan_, save, progress_));
    advice_.trials.push_back(std::move(trial));
    settings_.push_back(save);
    return {};
  }

  /// Bytes of the last trial, in terms of those of the first one.
  double last_over_first() const {
    return advice_.trials.back().stored_bytes().value / advice_.trials.front().stored_bytes().value;
  }

  Status try_others() {
    SaveOptions wanted = base_;
    SaveOptions other = base_;
    VARVE_ASSIGN(other.chunker, parse_chunker("gear:8192"));
    VARVE_TRY(attempt(other));
    if (const double gain = 1 - last_over_first(); gain > kChunkerGain) {
      wanted.chunker = other.chunker;
      say("chunks cut by their contents store {} less: data move about in files", gain);
    }
    other = base_;
    other.scheme = Scheme::aware_block;
    VARVE_TRY(attempt(other));
    if (const double gain = 1 - last_over_first(); gain > kSchemeGain) {
      wanted.scheme = other.scheme;
      say("blocks of all ranks in turns store {} less than whole variables one after another", gain);
    }
    VARVE_TRY(try_efforts(wanted));
    return try_wanted(wanted);
  }

  Status try_efforts(SaveOptions& wanted) {
    SaveOptions other = base_;
    VARVE_ASSIGN(other.codec, CodecPolicy::parse("fast"));
    VARVE_TRY(attempt(other));
    if (const double loss = last_over_first() - 1; loss < kFastLoss) {
      wanted.codec = other.codec;
      if (loss > 0) {
        say("effort fast stores {} more than balanced, and takes less time", loss);
      } else {
        advice_.reasons.emplace_back("effort fast stores no more than balanced, and takes less time");
      }
    }
    VARVE_ASSIGN(other.codec, CodecPolicy::parse("best"));
    VARVE_TRY(attempt(other));
    if (const double gain = 1 - last_over_first(); gain > kBestGain) {
      wanted.codec = other.codec;
      say("effort best stores {} less", gain);
    }
    return {};
  }

  /// What was found better one by one is tried together, unless it was.
  Status try_wanted(const SaveOptions& wanted) {
    const auto same = [&](const SaveOptions& tried) {
      return tried.scheme == wanted.scheme && tried.codec.name() == wanted.codec.name() &&
             chunker_name(tried.chunker) == chunker_name(wanted.chunker);
    };
    auto found = std::find_if(settings_.begin(), settings_.end(), same);
    if (found == settings_.end()) {
      VARVE_TRY(attempt(wanted));
      found = settings_.end() - 1;
    }
    advice_.chosen = static_cast<size_t>(found - settings_.begin());
    if (advice_.reasons.empty()) advice_.reasons.emplace_back("nothing that was tried is worth leaving the defaults");
    return {};
  }

  void say(fmt::format_string<std::string> sentence, double fraction) {
    advice_.reasons.push_back(fmt::format(sentence, format_percent(fraction)));
  }

  void write_files() {
    const SaveOptions& chosen = settings_[advice_.chosen];
    const TrialSeries& trial = advice_.trials[advice_.chosen];
    std::string& command = advice_.save_command;
    command = "varve save DIR";
    if (chosen.scheme != Scheme::aware) command += fmt::format(" --scheme {}", trial.scheme);
    if (trial.policy != "balanced") command += fmt::format(" --effort {}", trial.policy);
    if (chosen.chunker.kind != ChunkerKind::fixed) command += fmt::format(" --chunker {}", trial.chunker);
    const auto stored = static_cast<uint64_t>(trial.stored_bytes().value);
    advice_.options_file = fmt::format(
        "# By varve study: {} sets of {} take {} ({}).\n"
        "store = \"varve-store\"  # a folder that all ranks reach; see \"Levels\" in the guide for more\n"
        "scheme = \"{}\"\n"
        "effort = \"{}\"\n"
        "mean_time_between_failures = {}  # seconds, of the job: decides how often a checkpoint is due\n",
        trial.sets.size(), format_size(trial.raw_bytes()), format_size(stored), format_ratio(trial.raw_bytes(), stored),
        trial.scheme, trial.policy, static_cast<uint64_t>(options_.mean_time_between_failures));
  }

  const StudySeries& series_;
  const AdviceOptions& options_;
  ProgressSink& progress_;
  SamplePlan plan_;
  SaveOptions base_;
  std::vector<SaveOptions> settings_;  ///< of advice_.trials
  Advice advice_;
};
}  // namespace

Result<Advice> study_advice(const StudySeries& series, const AdviceOptions& options, ProgressSink& progress) {
  return Adviser(series, options, progress).run();
}

}  // namespace varve
