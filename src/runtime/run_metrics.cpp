#include "runtime/run_metrics.h"

#include <algorithm>
#include <array>

#include "core/step_text.h"

namespace varve {

namespace {
/// Of more steps it is not known any more when they were made. Levels are seldom further behind.
constexpr size_t kStepsKnownMax = 10'000;
}  // namespace

void RunProgress::begin(const std::vector<std::string>& levels, size_t nearest) {
  state.levels.clear();
  for (const std::string& level : levels) state.levels.push_back({.name = level});
  nearest_ = nearest;
}

LevelState* RunProgress::find(const std::string& level) {
  const auto found =
      std::find_if(state.levels.begin(), state.levels.end(), [&](const LevelState& one) { return one.name == level; });
  return found == state.levels.end() ? nullptr : &*found;
}

/// What a level has of steps behind which the run has gone back says nothing of this run.
void RunProgress::note_restart(std::optional<uint64_t> step, size_t level, double made_at) {
  saving_.clear();
  made_at_.clear();
  on_all_nodes_.reset();
  for (LevelState& one : state.levels) {
    if (!step || one.newest > step) one.newest.reset();
  }
  state.restarted = state.newest = step;
  state.newest_made_at = made_at;
  if (!step) return;
  made_at_[*step] = made_at;
  if (level < state.levels.size()) arrive(state.levels[level], *step);
}

void RunProgress::note_snapshot(uint64_t step, double made_at, bool saves) {
  state.newest = step;
  state.newest_made_at = made_at;
  made_at_[step] = made_at;
  if (made_at_.size() > kStepsKnownMax) made_at_.erase(made_at_.begin());
  if (saves) saving_.insert(step);
  // Before the nearest store there is memory alone.
  if (nearest_ > 0 && !state.levels.empty()) arrive(state.levels.front(), step);
}

void RunProgress::note_stored(uint64_t step) {
  saving_.erase(step);
  if (nearest_ < state.levels.size()) arrive(state.levels[nearest_], step);
}

void RunProgress::note_not_stored(uint64_t step) {
  saving_.erase(step);
  if (nearest_ < state.levels.size()) ++state.levels[nearest_].failures;
}

void RunProgress::arrive(LevelState& level, uint64_t step) {
  if (level.newest && *level.newest > step) return;
  level.newest = step;
  const auto made = made_at_.find(step);
  if (made != made_at_.end()) level.newest_made_at = made->second;
}

void RunProgress::note_arrived(const std::string& level, uint64_t step) {
  if (LevelState* const there = find(level)) arrive(*there, step);
}

void RunProgress::note_failure(const std::string& level) {
  if (LevelState* const there = find(level)) ++there->failures;
}

void RunProgress::note_given_up(const std::string& level) {
  if (LevelState* const there = find(level)) ++there->given_up;
}

void RunProgress::note_waiting(const std::string& level, uint64_t count) {
  if (LevelState* const there = find(level)) there->waiting = count;
}

RunState RunProgress::now() const {
  RunState now = state;
  if (nearest_ >= now.levels.size()) return now;
  LevelState& nearest = now.levels[nearest_];
  nearest.waiting = saving_.size();
  if (on_all_nodes_ && nearest.newest && *on_all_nodes_ < *nearest.newest) {
    const auto made = made_at_.find(*on_all_nodes_);
    nearest.newest = on_all_nodes_;
    if (made != made_at_.end()) nearest.newest_made_at = made->second;
  }
  return now;
}

double lag_seconds(const RunState& state, const LevelState& level, double begin) {
  if (!state.newest) return 0;
  if (!level.newest) return std::max(0.0, state.newest_made_at - begin);
  return *level.newest == *state.newest ? 0 : std::max(0.0, state.newest_made_at - level.newest_made_at);
}

namespace {
double step_value(uint64_t step) { return time_of_step(step).value_or(static_cast<double>(step)); }

double of_count(uint64_t count) { return static_cast<double>(count); }

void tell_costs(Metrics& metrics, const RunCosts& costs, const BlockedParts& blocked) {
  metrics.counter("varve_run_checkpoints", "Checkpoints, by what became of them; each was begun or skipped.")
      .sample(of_count(costs.snapshot_count), {{"outcome", "begun"}})
      .sample(of_count(costs.persistent_count), {{"outcome", "persistent"}})
      .sample(of_count(costs.skipped_count), {{"outcome", "skipped"}})
      .sample(of_count(costs.failed_count), {{"outcome", "failed"}});
  metrics.counter("varve_run_blocked_seconds", "The program waited in its session, by what for.");
  for (size_t i = 0; i < kBlockedCauses; ++i) {
    const auto cause = static_cast<BlockedCause>(i);
    metrics.sample(blocked.of(cause), {{"cause", std::string(blocked_cause_name(cause))}});
  }
  metrics.counter("varve_run_snapshot_bytes", "Bytes of this rank's snapshots.")
      .sample(of_count(costs.snapshots.bytes));
  metrics.counter("varve_run_raw_bytes", "Bytes of this rank's group that are in sets of the nearest store.")
      .sample(of_count(costs.drains.bytes));
  metrics.counter("varve_run_stored_bytes", "Bytes that were written for them.")
      .sample(of_count(costs.drains.stored_bytes));
  metrics.counter("varve_run_persistent_seconds", "From the begin of checkpoints until they were in the store, in all.")
      .sample(costs.drains.seconds_to_persistent);
  const WorkTimes& times = costs.drains.times;
  metrics.counter("varve_run_work_seconds", "What the checkpoint thread and its workers did, in sums over them.")
      .sample(times.read, {{"work", "read"}})
      .sample(times.score, {{"work", "hash"}})
      .sample(times.encode, {{"work", "encode"}})
      .sample(times.write, {{"work", "write"}})
      .sample(times.sync, {{"work", "sync"}})
      .sample(times.starved, {{"work", "none"}});
}

void tell_levels(Metrics& metrics, const RunState& state, double begin) {
  using Value = std::optional<double> (*)(const LevelState&);
  struct Told {
    std::string_view name, help;
    bool counts;
    Value value;
  };
  static constexpr std::array kTold = {
      Told{"varve_run_level_newest_step", "Step of the newest checkpoint that a level has of this run.", false,
           [](const LevelState& level) {
             return level.newest ? std::optional(step_value(*level.newest)) : std::nullopt;
           }},
      Told{"varve_run_level_newest_timestamp_seconds", "When the program made the newest checkpoint that a level has.",
           false,
           [](const LevelState& level) { return level.newest ? std::optional(level.newest_made_at) : std::nullopt; }},
      Told{"varve_run_level_waiting_sets", "Sets that are on their way to a level, or wait for it.", false,
           [](const LevelState& level) { return std::optional(of_count(level.waiting)); }},
      Told{"varve_run_level_failures", "How often a set did not come to a level when it was tried.", true,
           [](const LevelState& level) { return std::optional(of_count(level.failures)); }},
      Told{"varve_run_level_given_up_sets", "Sets that a level never gets (backlog=).", true,
           [](const LevelState& level) { return std::optional(of_count(level.given_up)); }},
  };
  for (const Told& told : kTold) {
    told.counts ? metrics.counter(told.name, told.help) : metrics.gauge(told.name, told.help);
    for (const LevelState& level : state.levels) {
      if (const std::optional<double> value = told.value(level)) metrics.sample(*value, {{"level", level.name}});
    }
  }
  metrics.gauge("varve_run_level_lag_seconds", "How much older a level's newest checkpoint is than the run's newest.");
  for (const LevelState& level : state.levels)
    metrics.sample(lag_seconds(state, level, begin), {{"level", level.name}});
}
}  // namespace

Metrics run_metrics(const RunFacts& facts, const RunCosts& costs, const BlockedParts& blocked, const RunState& state) {
  Metrics metrics = Metrics::with({{"job", facts.job}});
  metrics.gauge("varve_run_info", "The run: 1.")
      .sample(1, {{"run", facts.run},
                  {"store", facts.store},
                  {"host", facts.host},
                  {"process", std::to_string(facts.process)},
                  {"rank", std::to_string(facts.rank)}});
  metrics.gauge("varve_run_running", "Whether the run goes on, as far as it could tell.").sample(state.ended ? 0 : 1);
  metrics.gauge("varve_run_failed", "Whether the run ended with an error of its checkpoints, or gave them up.")
      .sample(state.failed ? 1 : 0);
  metrics.gauge("varve_run_ranks", "Ranks of the run.").sample(facts.rank_count);
  metrics.gauge("varve_run_start_timestamp_seconds", "When the session was opened.").sample(facts.begin);
  metrics.gauge("varve_run_updated_timestamp_seconds", "When all this was true.").sample(state.updated);
  metrics.gauge("varve_run_end_timestamp_seconds", "When the session ended.");
  if (state.ended) metrics.sample(*state.ended);
  metrics.gauge("varve_run_restart_step", "The step from which the run went on.");
  if (state.restarted) metrics.sample(step_value(*state.restarted));
  metrics.gauge("varve_run_newest_step", "Step of the newest checkpoint, wherever it is.");
  if (state.newest) metrics.sample(step_value(*state.newest));
  metrics.gauge("varve_run_queue_bytes", "Bytes of this rank's group that are still to be dealt with.")
      .sample(state.ended ? 0 : of_count(state.bytes_to_write - std::min(state.bytes_to_write, state.bytes_written)));
  tell_costs(metrics, costs, blocked);
  tell_levels(metrics, state, facts.begin);
  return metrics;
}

}  // namespace varve
