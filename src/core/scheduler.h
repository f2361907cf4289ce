#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/unique_id.h"

namespace varve {

/// A time of the monotonic clock.
using Moment = std::chrono::steady_clock::time_point;

/// A process of a machine, as the machine numbers it.
struct ProcessNumber {
  UniqueId boot;       ///< of this start of the machine
  uint64_t start = 0;  ///< when the process began; 0: whichever
  uint32_t number = 0;
};

/// Who decides when threads go on, what time it is, and what chance brings. Ordinary programs have none: all that
/// core/sync.h offers is then the system's own. In the simulated cluster (testing/sim) one decides everything, by a
/// seed: only one thread runs at a time, and it may lose its turn in any of these calls and nowhere else. So a run of
/// the code is a pure function of the seed.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// Others may go on here.
  virtual void hand_over() = 0;
  /// Waits until somebody calls wake(object), or `until` has come; false if it has.
  virtual bool wait(const void* object, Moment until) = 0;
  /// Threads that wait for `object`, one or all, may go on.
  virtual void wake(const void* object, bool all) = 0;
  /// As a futex, whose word may be mapped at several addresses: waits while the word is `seen`, until `until` at most.
  virtual void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, Moment until) = 0;
  /// Somebody wrote to the word of a futex, perhaps at another address.
  virtual void note_change() = 0;

  virtual Moment now() = 0;
  /// Seconds since 1970.
  virtual int64_t calendar_seconds() = 0;
  virtual void fill_with_random(std::span<std::byte> bytes) = 0;
  virtual uint32_t processor_count() = 0;

  /// A thread is about to be started by the calling one. Its number, which it and who joins it name.
  virtual uint64_t add_thread() = 0;
  /// It could not be started.
  virtual void forget_thread(uint64_t thread) = 0;
  /// Called by the new thread, first and last.
  virtual void begin_thread(uint64_t thread) = 0;
  virtual void end_thread(uint64_t thread) = 0;
  /// Returns once end_thread() was called.
  virtual void join_thread(uint64_t thread) = 0;

  /// The process that the calling thread belongs to.
  virtual ProcessNumber own_process() = 0;
  /// False also if it ran before the machine of the calling thread was started, or runs on another one.
  virtual bool is_alive(const ProcessNumber& process) = 0;
  virtual std::string host_name() = 0;
  /// Where a file of the machine's shared memory really lies.
  virtual std::string path_on_machine(const std::string& path) = 0;
};

/// The calling thread's; null in ordinary programs. Threads that core/sync.h starts have that of who started them.
inline thread_local constinit Scheduler* current_scheduler = nullptr;

}  // namespace varve
