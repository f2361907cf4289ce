#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/progress.h"
#include "level/level.h"
#include "runtime/blocked_time.h"
#include "runtime/checkpoint_duty.h"
#include "runtime/report.h"
#include "runtime/run_metrics.h"
#include "runtime/timeline_log.h"
#include "varve/session.h"

namespace varve {

/// Where a rank tells of its run; empty: not there.
struct MonitorPlaces {
  std::string live_file;     ///< in the memory of the node, for this user; gone at the end
  std::string metrics_file;  ///< for a collector; stays at the end, and says so
  std::string timeline;      ///< the log
  double look_seconds = 2;   ///< between writes while nothing happens
  bool any() const { return !live_file.empty() || !metrics_file.empty() || !timeline.empty(); }
};

/// What is asked of a run now and then.
struct RunSample {
  std::vector<LevelProgress> levels{};
  uint64_t bytes_to_write = 0, bytes_written = 0;
  std::optional<uint64_t> on_all_nodes{};  ///< as RunProgress::note_on_all_nodes()
};

/// Tells of a run while it goes on: by metrics, and by the log of its timeline. What happens is noted, which takes no
/// time; a thread of its own writes it down soon, and how far the run is every few seconds. What cannot be written is
/// tried again, and is a warning once; nothing of a run fails by it, and nothing waits for it, but the end for a
/// moment.
class RunMonitor {
 public:
  /// All of these outlive it, but for the thread, which may be left behind in a write that does not come back: it looks
  /// at none of them after end().
  RunMonitor(BlockedTime& blocked, RunLedger& ledger, WarningList& warnings, Clock& clock);
  RunMonitor(const RunMonitor&) = delete;
  RunMonitor& operator=(const RunMonitor&) = delete;
  ~RunMonitor();

  /// Begins to tell. `nearest`: which of the levels is the nearest store.
  void start(const RunFacts& facts, const MonitorPlaces& places, const std::vector<std::string>& levels,
             size_t nearest);
  /// From now on, how far the run is may be asked. None: not any more, until it is said again; returns when nobody
  /// asks.
  void let_ask(std::function<RunSample()> sample);

  // What happens. By the program's thread

  void note_restart(const std::optional<RestartCandidate>& taken, size_t passed_over);
  void note_restart_failed(const Status& why);
  /// That there is going to be a snapshot, or none: a run that is killed meanwhile has said so.
  void note_making(uint64_t step, double begin);
  /// `begin`: by the clock. What it cost, or why there is none.
  void note_snapshot(uint64_t step, double begin, bool saves, const Result<SnapshotCost>& cost);
  void note_skipped(uint64_t step, double begin);
  /// The program has waited for the store, beside what is noted anyway.
  void note_waited(double begin);
  // By threads beside it

  void note_drained(const DrainReport& report);
  void note_level(const LevelNews& news);

  /// The last word: how it ended; empty: well. After this nothing is noted any more.
  void end(std::string_view failure);

 private:
  class Core;
  double wall(double clock_seconds) const { return offset_ + clock_seconds; }

  Clock& clock_;
  const double offset_;  ///< of the calendar to the clock
  const std::shared_ptr<Core> core_;
};

}  // namespace varve
