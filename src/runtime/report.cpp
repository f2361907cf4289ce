#include "runtime/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/quantity.h"

namespace varve {

uint64_t OverheadModel::asynchronous_checkpoints_max(double run_seconds) const {
  const double count = run_seconds / io_seconds();
  // A quotient of decimal numbers that should be whole may fall just short of it.
  return count >= 1e18 ? UINT64_MAX : static_cast<uint64_t>(std::max(0.0, count * (1 + 1e-12)));
}

double best_interval_seconds(double checkpoint_seconds, double mean_time_between_failures) {
  const double cost = checkpoint_seconds, mtbf = mean_time_between_failures;
  if (cost >= 2 * mtbf) return mtbf;
  const double ratio = cost / (2 * mtbf);
  return std::sqrt(2 * cost * mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost;
}

double expected_waste(double interval_seconds, double checkpoint_seconds, double mean_time_between_failures) {
  const double period = interval_seconds + checkpoint_seconds;
  if (period <= 0) return 0;
  return std::min(1.0, checkpoint_seconds / period + period / 2 / mean_time_between_failures);
}

namespace {
/// Copies of less say nothing of the memory's bandwidth: with lent grids, only small variables are copied.
constexpr uint64_t kMeasuredBytesMin = 1'000'000;

double mean(double sum, uint64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0; }

uint64_t mean_bytes(uint64_t sum, uint64_t count) { return count > 0 ? sum / count : 0; }

/// The paper's m for our way of writing: a copy reads and writes, stage 2 reads it once more, and what is stored is
/// written to a buffer and read from it by the disk.
double memory_passes(const RunCosts& costs) {
  const double bytes = static_cast<double>(costs.snapshots.bytes),
               copied = static_cast<double>(costs.snapshots.copied_bytes);
  const double stored = mean(static_cast<double>(costs.drains.stored_bytes), costs.drains.bytes);
  return 2 * copied / bytes + 1 + 2 * stored;
}

/// The paper's model with what was measured; none if something is missing for it.
std::optional<OverheadModel> measured_model(const RunCosts& costs, const ReportContext& context) {
  if (costs.snapshots.bytes == 0 || costs.drains.seconds_to_persistent <= 0 || costs.drains.bytes == 0)
    return std::nullopt;
  OverheadModel model;
  model.node_bytes = mean(static_cast<double>(costs.snapshots.bytes), costs.snapshot_count) * context.node_rank_count;
  model.node_count = std::max<uint64_t>(1, context.rank_count / context.node_rank_count);
  const double groups = std::max(1.0, std::round(double{1} * context.rank_count / context.group_rank_count));
  model.io_bytes_per_second = static_cast<double>(costs.drains.bytes) / costs.drains.seconds_to_persistent * groups;
  model.memory_passes = memory_passes(costs);
  if (context.memory_bytes_per_second) {
    model.memory_bytes_per_second = *context.memory_bytes_per_second;
  } else if (mean_bytes(costs.snapshots.copied_bytes, costs.snapshot_count) >= kMeasuredBytesMin &&
             costs.snapshots.copy_seconds > 0) {
    model.memory_bytes_per_second =
        2 * static_cast<double>(costs.snapshots.copied_bytes) / costs.snapshots.copy_seconds * context.node_rank_count;
  }
  return model;
}

using Json = nlohmann::ordered_json;

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }
}  // namespace

double disturbance_seconds(double group_processor_seconds, const ReportContext& context) {
  const double groups = std::max(1.0, double{1} * context.node_rank_count / context.group_rank_count);
  return group_processor_seconds * groups / std::max(1u, context.processor_count);
}

RunJudgement judge(const RunCosts& costs, const ReportContext& context) {
  RunJudgement judgement;
  judgement.overhead_seconds = costs.blocked_seconds() + disturbance_seconds(costs.drains.processor_seconds, context);
  judgement.base_seconds = std::max(0.0, costs.run_seconds - judgement.overhead_seconds);
  if (costs.snapshot_count == 0) return judgement;
  const auto count = static_cast<double>(costs.snapshot_count);
  const double persistent_seconds = mean(costs.drains.seconds_to_persistent, costs.persistent_count);
  judgement.interval_seconds = costs.run_seconds / count;
  if (context.mean_time_between_failures > 0) {
    const double best = best_interval_seconds(judgement.overhead_seconds / count, context.mean_time_between_failures);
    judgement.best_interval_seconds = std::max(best, persistent_seconds);
  }
  if (const std::optional<OverheadModel> model = measured_model(costs, context)) {
    judgement.synchronous_seconds = count * model->synchronous_seconds();
    if (model->memory_bytes_per_second > 0) judgement.predicted_seconds = count * model->asynchronous_seconds();
    judgement.checkpoints_max = model->asynchronous_checkpoints_max(costs.run_seconds);
  }
  return judgement;
}

namespace {
std::string effort_text(const RunCosts& costs, const ReportContext& context) {
  if (!context.adapts_effort) return fmt::format("effort              {}, as was asked for\n", context.effort);
  const EffortCounts& efforts = costs.efforts;
  std::string text = fmt::format("effort              {} for {} checkpoints, fast for {}, none for {}", context.effort,
                                 efforts.mostly[0], efforts.mostly[1], efforts.mostly[2]);
  if (efforts.late > 0) text += fmt::format("; {} lacked time", efforts.late);
  if (efforts.awaited > 0) text += fmt::format("; {} were waited for", efforts.awaited);
  return text + '\n';
}

std::string times_text(const RunCosts& costs) {
  const WorkTimes& times = costs.drains.times;
  return fmt::format(
      "where time went     waiting for room {}, copying {}; then reading {}, hashing {}, encoding {}, writing {}, "
      "syncing {}, without a processor {}\n",
      format_seconds(std::max(0.0, costs.snapshots.blocked_seconds - costs.snapshots.copy_seconds)),
      format_seconds(costs.snapshots.copy_seconds), format_seconds(times.read), format_seconds(times.score),
      format_seconds(times.encode), format_seconds(times.write), format_seconds(times.sync),
      format_seconds(times.starved));
}
}  // namespace

std::string report_text(const RunCosts& costs, const ReportContext& context) {
  std::string text =
      fmt::format("checkpoints         {} begun, {} persistent, {} skipped, {} failed, in {}\n", costs.snapshot_count,
                  costs.persistent_count, costs.skipped_count, costs.failed_count, format_duration(costs.run_seconds));
  if (costs.snapshot_count == 0) return text;
  const RunJudgement judgement = judge(costs, context);
  const auto with_share = [&](double seconds) {
    return fmt::format("{} ({})", format_duration(seconds), format_percent(judgement.share(seconds)));
  };
  text += fmt::format("program blocked     {}: {} for each checkpoint, {} at most", with_share(costs.blocked_seconds()),
                      format_seconds(mean(costs.snapshots.blocked_seconds, costs.snapshot_count)),
                      format_seconds(costs.blocked_seconds_max));
  text += costs.waited_seconds > 0
              ? fmt::format("; {} for the last to be stored\n", format_seconds(costs.waited_seconds))
              : "\n";
  text += fmt::format("overhead            at most {}, with {} of processor time of the checkpoint thread\n",
                      with_share(judgement.overhead_seconds), format_duration(costs.drains.processor_seconds));
  if (judgement.synchronous_seconds) {
    text += fmt::format("  by the model      {}\n", judgement.predicted_seconds
                                                        ? with_share(*judgement.predicted_seconds)
                                                        : "not known: too little was copied to measure the memory");
    text += fmt::format("  if it had waited  {}\n", with_share(*judgement.synchronous_seconds));
  }
  if (costs.persistent_count > 0) {
    text += fmt::format("time to persistent  {} for each, {} at most\n",
                        format_duration(mean(costs.drains.seconds_to_persistent, costs.persistent_count)),
                        format_duration(costs.persistent_seconds_max));
    text += fmt::format("bytes               {} in each checkpoint of this rank; its group: {} → {} stored ({})\n",
                        format_size(mean_bytes(costs.snapshots.bytes, costs.snapshot_count)),
                        format_size(costs.drains.bytes), format_size(costs.drains.stored_bytes),
                        format_ratio(costs.drains.bytes, costs.drains.stored_bytes));
  }
  if (costs.persistent_count > 0) text += effort_text(costs, context) + times_text(costs);
  if (judgement.best_interval_seconds) {
    text += fmt::format("interval            {}; best would be {}, with a failure every {}\n",
                        format_duration(*judgement.interval_seconds), format_duration(*judgement.best_interval_seconds),
                        format_duration(context.mean_time_between_failures));
  }
  return text;
}

std::string report_json(const RunCosts& costs, const ReportContext& context) {
  const RunJudgement judgement = judge(costs, context);
  const auto share = [&](const std::optional<double>& seconds) {
    return seconds && judgement.base_seconds > 0 ? Json(judgement.share(*seconds)) : Json(nullptr);
  };
  const Json json = {
      {"run_seconds", costs.run_seconds},
      {"rank_count", context.rank_count},
      {"checkpoint_count", costs.snapshot_count},
      {"persistent_count", costs.persistent_count},
      {"skipped_count", costs.skipped_count},
      {"failed_count", costs.failed_count},
      {"blocked_seconds", costs.blocked_seconds()},
      {"blocked_seconds_max", costs.blocked_seconds_max},
      {"waited_seconds", costs.waited_seconds},
      {"copy_seconds", costs.snapshots.copy_seconds},
      {"persistent_seconds", costs.drains.seconds_to_persistent},
      {"persistent_seconds_max", costs.persistent_seconds_max},
      {"drain_seconds", costs.drains.seconds},
      {"drain_processor_seconds", costs.drains.processor_seconds},
      {"snapshot_bytes", costs.snapshots.bytes},
      {"copied_bytes", costs.snapshots.copied_bytes},
      {"drained_bytes", costs.drains.bytes},
      {"stored_bytes", costs.drains.stored_bytes},
      {"overhead_seconds", judgement.overhead_seconds},
      {"overhead_share", share(judgement.overhead_seconds)},
      {"predicted_seconds", json_of(judgement.predicted_seconds)},
      {"predicted_share", share(judgement.predicted_seconds)},
      {"synchronous_seconds", json_of(judgement.synchronous_seconds)},
      {"synchronous_share", share(judgement.synchronous_seconds)},
      {"interval_seconds", json_of(judgement.interval_seconds)},
      {"best_interval_seconds", json_of(judgement.best_interval_seconds)},
      {"read_seconds", costs.drains.times.read},
      {"score_seconds", costs.drains.times.score},
      {"encode_seconds", costs.drains.times.encode},
      {"write_seconds", costs.drains.times.write},
      {"sync_seconds", costs.drains.times.sync},
      {"starved_seconds", costs.drains.times.starved},
      {"effort", context.effort},
      {"effort_adapts", context.adapts_effort},
      {"full_effort_count", costs.efforts.mostly[0]},
      {"fast_effort_count", costs.efforts.mostly[1]},
      {"no_effort_count", costs.efforts.mostly[2]},
      {"late_effort_count", costs.efforts.late},
      {"awaited_effort_count", costs.efforts.awaited},
      {"checkpoints_max", judgement.checkpoints_max ? Json(*judgement.checkpoints_max) : Json(nullptr)},
  };
  return json.dump() + '\n';
}

RunLedger::RunLedger(Clock& clock) : clock_(clock), begin_(clock.seconds()) {}

void RunLedger::note_snapshot(const SnapshotCost& cost) {
  const MutexLock lock(mutex_);
  SnapshotCost& sum = costs_.snapshots;
  ++costs_.snapshot_count;
  sum.bytes += cost.bytes;
  sum.copied_bytes += cost.copied_bytes;
  sum.blocked_seconds += cost.blocked_seconds;
  costs_.blocked_seconds_max = std::max(costs_.blocked_seconds_max, cost.blocked_seconds);
  sum.copy_seconds += cost.copy_seconds;
}

void RunLedger::note_persistent(const DrainCost& cost) {
  const MutexLock lock(mutex_);
  DrainCost& sum = costs_.drains;
  ++costs_.persistent_count;
  sum.bytes += cost.bytes;
  sum.stored_bytes += cost.stored_bytes;
  sum.seconds_to_persistent += cost.seconds_to_persistent;
  costs_.persistent_seconds_max = std::max(costs_.persistent_seconds_max, cost.seconds_to_persistent);
  sum.seconds += cost.seconds;
  sum.processor_seconds += cost.processor_seconds;
  sum.times += cost.times;
  EffortCounts& efforts = costs_.efforts;
  ++efforts.mostly[static_cast<size_t>(cost.effort.mostly())];
  efforts.late += cost.effort.was_late ? 1 : 0;
  efforts.awaited += cost.effort.was_awaited ? 1 : 0;
}

void RunLedger::note_skipped() {
  const MutexLock lock(mutex_);
  ++costs_.skipped_count;
}

void RunLedger::note_failed() {
  const MutexLock lock(mutex_);
  ++costs_.failed_count;
}

void RunLedger::note_blocked(double seconds) {
  const MutexLock lock(mutex_);
  costs_.waited_seconds += seconds;
}

void RunLedger::note_end() {
  const MutexLock lock(mutex_);
  if (!end_) end_ = clock_.seconds();
}

RunCosts RunLedger::costs() const {
  const MutexLock lock(mutex_);
  RunCosts costs = costs_;
  costs.run_seconds = end_.value_or(clock_.seconds()) - begin_;
  return costs;
}

}  // namespace varve
