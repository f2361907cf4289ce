#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace varve {

/// What the threads of a save do that takes time.
enum class WorkKind : uint8_t { read, score, encode, write, sync };
inline constexpr size_t kWorkKinds = 5;

/// What a piece of work took, in seconds, as sums over its threads: of the processor for what computes (read, score,
/// encode), passed for what waits for the store (write, sync; those that do it together share the time), less what they
/// then waited for a processor.
struct WorkTimes {
  double read = 0, score = 0, encode = 0, write = 0, sync = 0;
  double starved = 0;  ///< they could have worked, but had no processor; 0 where the system does not tell
  WorkTimes& operator+=(const WorkTimes& more);
};

/// Counts what a piece of work takes, whatever threads do it: the pools, helpers and writers that a metered thread
/// starts are metered, too, and have told when they are joined. Thread-safe.
class WorkMeter {
 public:
  /// One kind of work so far, in the seconds of WorkTimes.
  struct Spent {
    uint64_t bytes = 0;
    double seconds = 0;
  };
  Spent spent(WorkKind kind) const;
  /// Of all threads, whatever they did.
  double processor_seconds() const { return static_cast<double>(processor_ns_.load()) * 1e-9; }
  WorkTimes times() const;
  /// More of one kind, as a Timer tells it.
  void add(WorkKind kind, uint64_t bytes, int64_t nanoseconds);

  /// The meter of the calling thread's work; none: it is not metered.
  static WorkMeter* current();

  /// Meters the calling thread while it exists. `meter` may be none, and outlives it.
  class Scope {
   public:
    explicit Scope(WorkMeter* meter);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    WorkMeter* const meter_;
    WorkMeter* const outer_;
    const int64_t processor_begin_, starved_begin_;
  };

  /// While it exists, the calling thread does this kind of work, with so many bytes: told to its meter, if it has one.
  /// `sharing`: threads that do it at the same time, with this one.
  class Timer {
   public:
    Timer(WorkKind kind, uint64_t bytes, size_t sharing = 1);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    const WorkKind kind_;
    const uint64_t bytes_;
    const size_t sharing_;
    WorkMeter* const meter_;
    const int64_t begin_, starved_begin_;
  };

 private:
  struct Sum {
    std::atomic<uint64_t> bytes{0};
    std::atomic<int64_t> nanoseconds{0};
  };
  std::array<Sum, kWorkKinds> kinds_;
  std::atomic<int64_t> processor_ns_{0}, starved_ns_{0};
};

/// What the calling thread has used of the processors so far, in nanoseconds.
int64_t thread_processor_nanoseconds();

}  // namespace varve
