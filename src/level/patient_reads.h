#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "store/store.h"

namespace varve {

/// Reading a store that may fail for a moment: a disk that is slow to answer, a server that is started anew. What fails
/// so is tried again, some times after ever longer pauses, and not without end, however much there is to read.
/// Thread-safe.
class PatientReads {
 public:
  /// Both outlive it.
  PatientReads(const Store& store, Clock& clock) : store_(store), clock_(clock) {}

  /// What `read` returns, a Status or a Result, at its last try.
  template <class Read>
  auto operator()(const Read& read) {
    auto outcome = read();
    double pause = kFirstPauseSeconds;
    for (int retry = 0; retry < kRetriesMax && may_pass(status_of(outcome)) && retries_left_.fetch_sub(1) > 0;
         ++retry) {
      clock_.sleep(pause);
      pause *= kPauseGrowth;
      // An open file may have gone bad, too.
      store_.drop_arena_cache();
      outcome = read();
    }
    return outcome;
  }

 private:
  static constexpr double kFirstPauseSeconds = 0.05, kPauseGrowth = 4;
  static constexpr int kRetriesMax = 3;
  static constexpr int64_t kRetriesOfAllMax = 12;

  static bool may_pass(const Status& status) {
    return status.code() == StatusCode::io_error || status.code() == StatusCode::busy;
  }
  static Status status_of(const Status& status) { return status; }
  template <class T>
  static Status status_of(const Result<T>& result) {
    return result.status();
  }

  const Store& store_;
  Clock& clock_;
  std::atomic<int64_t> retries_left_{kRetriesOfAllMax};
};

}  // namespace varve
