#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

#include "cli/json.h"
#include "core/progress.h"
#include "core/sync.h"

namespace varve::cli {

/// Shows how a long operation goes on, on a terminal and from its second second, or tells a program; passes warnings
/// on; and is cancelled by SIGINT, SIGTERM and SIGHUP, which it catches from its construction on. Thread-safe.
class ProgressBar final : public ProgressSink {
 public:
  /// Starts a thread if standard error is a terminal, or a program wants to know. `messages` outlives this.
  explicit ProgressBar(MessageWriter& messages);
  /// Takes the bar away.
  ~ProgressBar() override;
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void total(uint64_t bytes) override { total_bytes_ = bytes; }
  void advance(uint64_t bytes) override { done_bytes_ += bytes; }
  void phase(std::string_view name) override;
  void warning(const Status& what) override { messages_.warning(what); }
  bool cancelled() const override;

 private:
  using Clock = MonotonicClock;
  struct Sample {
    Clock::time_point time;
    uint64_t done_bytes;
  };

  void draw_until_stopped();
  /// The same for a program, and how far it came at the end.
  void tell_until_stopped();
  /// The line as it is now.
  std::string line(Clock::time_point now) VARVE_REQUIRES(mutex_);

  MessageWriter& messages_;
  std::atomic<uint64_t> total_bytes_{0}, done_bytes_{0};
  Mutex mutex_;
  ConditionVariable stop_;
  bool stopping_ VARVE_GUARDED_BY(mutex_) = false;
  std::string phase_ VARVE_GUARDED_BY(mutex_);
  std::deque<Sample> samples_ VARVE_GUARDED_BY(mutex_);  ///< of the last seconds of this phase
  Thread thread_;
};

}  // namespace varve::cli
