#pragma once

#include <atomic>
#include <cstdint>

namespace varve {

/// Time that only goes forward, and waiting. Injected where time matters, so that tests need not wait. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds since some moment.
  virtual double seconds() const = 0;
  /// Returns when so many seconds have passed; at once if not above 0.
  virtual void sleep(double seconds) = 0;
};

/// The machine's monotonic clock. One object serves the process.
Clock& steady_clock();

/// Goes forward only when told to, or when somebody sleeps. For tests.
class ManualClock final : public Clock {
 public:
  double seconds() const override { return seconds_.load(); }
  void sleep(double seconds) override {
    if (seconds > 0) seconds_.fetch_add(seconds);
  }
  void advance(double seconds) { sleep(seconds); }

 private:
  std::atomic<double> seconds_{0};
};

}  // namespace varve
