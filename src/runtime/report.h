#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/sync.h"
#include "core/work_meter.h"
#include "engine/effort_pace.h"

namespace varve {

/// What checkpoints cost a run: equations (1) and (2) of Shahzad et al. (2013), section IV. Sizes in bytes, bandwidths
/// in bytes per second, all above 0.
struct OverheadModel {
  double node_bytes = 0;               ///< S_CP,node: of one checkpoint on one node
  double memory_bytes_per_second = 0;  ///< B_M: of one node
  double io_bytes_per_second = 0;      ///< B_IO: of the file system, for all nodes together
  /// m: how often each byte of a checkpoint passes through the memory until it is written; 5 to 7 for plain files with
  /// Open MPI, as the paper measured.
  double memory_passes = 7;
  uint64_t node_count = 1;

  /// S_CP: of one checkpoint, all nodes.
  double checkpoint_bytes() const { return node_bytes * static_cast<double>(node_count); }
  /// How long one checkpoint is on its way to the file system.
  double io_seconds() const { return checkpoint_bytes() / io_bytes_per_second; }
  /// Equation (1), for one checkpoint: the program waits until it is written.
  double synchronous_seconds() const { return io_seconds(); }
  /// Equation (2), for one checkpoint: writing takes memory bandwidth away from the program.
  double asynchronous_seconds() const { return memory_passes * node_bytes / memory_bytes_per_second; }
  /// How many asynchronous checkpoints a run of so many seconds (without them) can have that do not wait for one
  /// another.
  uint64_t asynchronous_checkpoints_max(double run_seconds) const;
};

/// The interval between checkpoints, from the end of one to the begin of the next, that wastes the least time on
/// checkpoints and on work done again after failures: the higher-order estimate of Daly (2006), equation 37.
/// `checkpoint_seconds` is what one checkpoint costs the program; all in seconds, not below 0.
double best_interval_seconds(double checkpoint_seconds, double mean_time_between_failures);

/// The share of time that is lost when a checkpoint of so many seconds is made at such intervals: to the checkpoints,
/// and to the work since the last one, half an interval on average, at each failure. 1 at most.
double expected_waste(double interval_seconds, double checkpoint_seconds, double mean_time_between_failures);

/// What stage 1 of a checkpoint cost, or of several together, as one rank saw it.
struct SnapshotCost {
  uint64_t bytes = 0;          ///< of this rank; lent grids included
  uint64_t copied_bytes = 0;   ///< of them, copied
  double blocked_seconds = 0;  ///< the program waited in checkpoint()
  double copy_seconds = 0;     ///< of them, copying
};

/// What stage 2 cost that came to a complete set, or several together.
struct DrainCost {
  uint64_t bytes = 0;                ///< of this rank's group
  uint64_t stored_bytes = 0;         ///< that were written for them
  double seconds_to_persistent = 0;  ///< from the begin of checkpoint() until complete in the store
  double seconds = 0;                ///< at work
  double processor_seconds = 0;      ///< and used so much of the processors
  WorkTimes times{};                 ///< what its threads did
  EffortOutcome effort{};            ///< how hard was compressed, where that is left to us
};

/// How hard the persistent checkpoints were compressed, where that is left to us.
struct EffortCounts {
  std::array<uint64_t, kPackEfforts> mostly{};  ///< checkpoints, by PackEffort
  uint64_t late = 0;                            ///< of them, less hard for want of time
  uint64_t awaited = 0;                         ///< the same, as the program waited
};

/// What the checkpoints of a run cost so far, as one rank saw it. Seconds; sums unless said.
struct RunCosts {
  double run_seconds = 0;             ///< since the session was opened
  uint64_t snapshot_count = 0;        ///< checkpoints that were begun
  uint64_t persistent_count = 0;      ///< of them, complete in the store
  uint64_t skipped_count = 0;         ///< left out because the one before was busy
  uint64_t failed_count = 0;          ///< begun, but never complete
  SnapshotCost snapshots;             ///< of all that were begun
  double blocked_seconds_max = 0;     ///< of one
  double waited_seconds = 0;          ///< the program waited for stage 2 elsewhere: in wait(), and at the end
  DrainCost drains;                   ///< of all that are persistent
  double persistent_seconds_max = 0;  ///< of one
  EffortCounts efforts{};

  /// The program waited for checkpoints, wherever.
  double blocked_seconds() const { return snapshots.blocked_seconds + waited_seconds; }
};

/// Collects RunCosts. Thread-safe: the program's thread and the checkpoint thread both tell it.
class RunLedger {
 public:
  explicit RunLedger(Clock& clock = steady_clock());

  void note_snapshot(const SnapshotCost& cost);
  void note_persistent(const DrainCost& cost);
  void note_skipped();
  void note_failed();
  /// The program waited elsewhere for stage 2, as in wait().
  void note_blocked(double seconds);
  /// The run has ended: its time stands still from now on.
  void note_end();

  RunCosts costs() const;

 private:
  Clock& clock_;
  const double begin_;
  mutable Mutex mutex_;
  RunCosts costs_ VARVE_GUARDED_BY(mutex_);
  std::optional<double> end_ VARVE_GUARDED_BY(mutex_);
};

/// What RunCosts is judged by.
struct ReportContext {
  uint32_t rank_count = 1;
  uint32_t node_rank_count = 1;   ///< ranks on this node
  uint32_t group_rank_count = 1;  ///< ranks of this rank's group
  uint32_t processor_count = 1;   ///< of this node
  double mean_time_between_failures = 0;
  std::string effort = "balanced";  ///< or what codec was asked for
  bool adapts_effort = false;       ///< it is for when there is time
  /// How many bytes per second the node's memory moves (copying n bytes moves 2 n); none: as the snapshots' copies say.
  std::optional<double> memory_bytes_per_second{};
};

/// How long the program would have to wait to lose as much as stage 2 takes away from it at most: the processor time of
/// all checkpoint threads of this node, spread over its processors. Nothing is taken where processors were idle.
double disturbance_seconds(double group_processor_seconds, const ReportContext& context);

/// The run's costs, judged. None: not known, as nothing was measured.
struct RunJudgement {
  double overhead_seconds = 0;                ///< blocked, and what stage 2 took away at most
  std::optional<double> predicted_seconds;    ///< by equation (2), for as many checkpoints
  std::optional<double> synchronous_seconds;  ///< by equation (1): if the program had waited for each
  std::optional<double> interval_seconds;     ///< between checkpoints, on average
  std::optional<double> best_interval_seconds;
  std::optional<uint64_t> checkpoints_max;  ///< that the run could have had without waiting for one another
  /// The ratio of a time to that of the run without checkpoints.
  double share(double seconds) const { return base_seconds > 0 ? seconds / base_seconds : 0; }
  double base_seconds = 0;
};
RunJudgement judge(const RunCosts& costs, const ReportContext& context);

/// All of it as a few lines for people, each ended by a newline.
std::string report_text(const RunCosts& costs, const ReportContext& context);
/// The same facts as one JSON object on one line; the keys are in docs/GUIDE.md, "The report of a run".
std::string report_json(const RunCosts& costs, const ReportContext& context);

}  // namespace varve
