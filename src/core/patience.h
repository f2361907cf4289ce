#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "varve/status.h"

namespace varve {

/// Reading what may fail for a moment: a disk that is slow to answer, a server that is started anew. It is tried again,
/// some times after ever longer pauses, and not without end, however much there is to read. Thread-safe.
class Patience {
 public:
  /// `clock` outlives it.
  explicit Patience(Clock& clock = steady_clock()) : clock_(clock) {}

  /// What `read` returns, a Status or a Result, at its last try; `before_retry` is called before each further one.
  template <class Read, class Prepare>
  auto operator()(const Read& read, const Prepare& before_retry) {
    auto outcome = read();
    double pause = kFirstPauseSeconds;
    for (int retry = 0; retry < kRetriesMax && may_pass(status_of(outcome)) && retries_left_.fetch_sub(1) > 0;
         ++retry) {
      clock_.sleep(pause);
      pause *= kPauseGrowth;
      before_retry();
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

  Clock& clock_;
  std::atomic<int64_t> retries_left_{kRetriesOfAllMax};
};

}  // namespace varve
