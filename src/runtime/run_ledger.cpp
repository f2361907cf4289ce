#include <algorithm>

#include "runtime/report.h"

namespace varve {

RunLedger::RunLedger(Clock& clock) : clock_(clock), begin_(clock.seconds()) {}

void RunLedger::note_snapshot(const Snapshot& snapshot) {
  std::lock_guard lock(mutex_);
  ++costs_.snapshot_count;
  costs_.snapshot_bytes += snapshot.bytes;
  costs_.copied_bytes += snapshot.copied_bytes;
  costs_.blocked_seconds += snapshot.blocked_seconds;
  costs_.blocked_seconds_max = std::max(costs_.blocked_seconds_max, snapshot.blocked_seconds);
  costs_.copy_seconds += snapshot.copy_seconds;
}

void RunLedger::note_persistent(const Drain& drain) {
  std::lock_guard lock(mutex_);
  ++costs_.persistent_count;
  costs_.drained_bytes += drain.bytes;
  costs_.stored_bytes += drain.stored_bytes;
  costs_.persistent_seconds += drain.seconds_to_persistent;
  costs_.persistent_seconds_max = std::max(costs_.persistent_seconds_max, drain.seconds_to_persistent);
  costs_.drain_seconds += drain.seconds;
  costs_.drain_processor_seconds += drain.processor_seconds;
}

void RunLedger::note_skipped() {
  std::lock_guard lock(mutex_);
  ++costs_.skipped_count;
}

void RunLedger::note_failed() {
  std::lock_guard lock(mutex_);
  ++costs_.failed_count;
}

void RunLedger::note_blocked(double seconds) {
  std::lock_guard lock(mutex_);
  costs_.blocked_seconds += seconds;
  costs_.waited_seconds += seconds;
}

void RunLedger::note_end() {
  std::lock_guard lock(mutex_);
  if (!end_) end_ = clock_.seconds();
}

RunCosts RunLedger::costs() const {
  std::lock_guard lock(mutex_);
  RunCosts costs = costs_;
  costs.run_seconds = end_.value_or(clock_.seconds()) - begin_;
  return costs;
}

}  // namespace varve
