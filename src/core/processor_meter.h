#pragma once

#include <atomic>
#include <cstdint>

namespace varve {

/// Counts the processor time of a piece of work, whatever threads do it: the pools, helpers and writers that a metered
/// thread starts are metered, too, and have told when they are joined. Thread-safe.
class ProcessorMeter {
 public:
  double seconds() const { return static_cast<double>(nanoseconds_.load()) * 1e-9; }

  /// The meter of the calling thread's work; none: it is not metered.
  static ProcessorMeter* current();

  /// Meters the calling thread while it exists. `meter` may be none, and outlives it.
  class Scope {
   public:
    explicit Scope(ProcessorMeter* meter);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ProcessorMeter* const meter_;
    ProcessorMeter* const outer_;
    const int64_t begin_;
  };

 private:
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace varve
