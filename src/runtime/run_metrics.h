#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/metrics.h"
#include "runtime/blocked_time.h"
#include "runtime/report.h"

namespace varve {

/// Who a run is.
struct RunFacts {
  std::string job{};
  std::string run{};    ///< its id, or the begin of that
  std::string store{};  ///< the nearest one, or its level
  std::string host{};
  uint32_t process = 0;
  uint32_t rank = 0;  ///< who tells
  uint32_t rank_count = 1;
  double begin = 0;  ///< seconds since 1970, as all times here
};

/// How far a level is.
struct LevelState {
  std::string name;
  std::optional<uint64_t> newest{};  ///< step
  double newest_made_at = 0;         ///< when the program made that checkpoint
  uint64_t waiting = 0;
  uint64_t failures = 0, given_up = 0;
};

/// How far a run is, besides what it has cost.
struct RunState {
  std::optional<uint64_t> newest{};  ///< step of the newest snapshot
  double newest_made_at = 0;
  std::optional<uint64_t> restarted{};  ///< the step it went on from
  std::vector<LevelState> levels{};     ///< nearest first
  uint64_t bytes_to_write = 0, bytes_written = 0;
  double updated = 0;             ///< when this was true
  std::optional<double> ended{};  ///< when
  bool failed = false;            ///< it ended with an error, or was given up
};

/// Keeps a RunState by what happens. Not thread-safe.
class RunProgress {
 public:
  /// Of the levels, nearest first; `nearest`: which of them is the nearest store.
  void begin(const std::vector<std::string>& levels, size_t nearest);

  void note_restart(std::optional<uint64_t> step, size_t level, double made_at);
  /// There is a snapshot; `saves`: it is on its way to the nearest store.
  void note_snapshot(uint64_t step, double made_at, bool saves);
  void note_stored(uint64_t step);
  void note_not_stored(uint64_t step);
  void note_arrived(const std::string& level, uint64_t step);
  void note_failure(const std::string& level);
  void note_given_up(const std::string& level);
  /// Where each node has a store of its own: the newest set of which all nodes are known to have theirs.
  void note_on_all_nodes(uint64_t step) { on_all_nodes_ = step; }
  /// How many sets wait for a level.
  void note_waiting(const std::string& level, uint64_t count);

  /// What this does not know of by itself may be set in it.
  RunState state{};
  RunState now() const;

 private:
  LevelState* find(const std::string& level);
  void arrive(LevelState& level, uint64_t step);

  size_t nearest_ = 0;
  std::map<uint64_t, double> made_at_;  ///< of the newest steps
  std::set<uint64_t> saving_;           ///< steps on their way to the nearest store
  std::optional<uint64_t> on_all_nodes_{};
};

/// How many seconds the newest set of a level is older than the run's newest checkpoint; where there is none, than the
/// run's begin.
double lag_seconds(const RunState& state, const LevelState& level, double begin);

/// A running program for monitoring; the names are in docs/GUIDE.md, "For monitoring".
Metrics run_metrics(const RunFacts& facts, const RunCosts& costs, const BlockedParts& blocked, const RunState& state);

}  // namespace varve
