#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "core/thread_annotations.h"
#include "core/unique_id.h"
#include "varve/status.h"

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

// All threads, locks, waits, looks at the clock and random bytes of the library go through this header. In ordinary
// programs these are the standard library's; where a thread has a Scheduler, they are that one's.

/// std::mutex.
class VARVE_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() VARVE_ACQUIRE() {
    if (current_scheduler == nullptr) [[likely]] {
      native_.lock();
    } else {
      lock_scheduled();
    }
  }
  bool try_lock() VARVE_TRY_ACQUIRE(true) { return native_.try_lock(); }
  void unlock() VARVE_RELEASE() {
    native_.unlock();
    if (current_scheduler != nullptr) [[unlikely]]
      current_scheduler->wake(this, true);
  }

 private:
  friend class ConditionVariable;
  void lock_scheduled();

  std::mutex native_;
};

/// The system's own lock also where a thread has a Scheduler: nobody loses his turn in it. So nobody may wait, nor take
/// a Mutex, while he holds it.
class VARVE_CAPABILITY("mutex") SystemMutex {
 public:
  SystemMutex() = default;
  SystemMutex(const SystemMutex&) = delete;
  SystemMutex& operator=(const SystemMutex&) = delete;
  void lock() VARVE_ACQUIRE() { native_.lock(); }
  void unlock() VARVE_RELEASE() { native_.unlock(); }

 private:
  std::mutex native_;
};

/// Holds a lock while it lives, but between unlock() and lock(). The standard library's guards are not annotated.
template <class Lock = Mutex>
class VARVE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Lock& mutex) VARVE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// For a lock that is held already: after try_lock().
  MutexLock(Lock& mutex, std::adopt_lock_t) VARVE_REQUIRES(mutex) : mutex_(mutex) {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() VARVE_RELEASE() {
    if (held_) mutex_.unlock();
  }

  void lock() VARVE_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() VARVE_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Lock& mutex_;
  bool held_ = true;
};

/// The monotonic clock.
struct MonotonicClock {
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = Moment;
  static constexpr bool is_steady = true;
  static Moment now() {
    return current_scheduler == nullptr ? std::chrono::steady_clock::now() : current_scheduler->now();
  }
};

namespace detail {
/// As long as any wait may be; beyond it, clocks would overflow.
inline constexpr std::chrono::hours kLongestWait{24 * 365};
template <class Rep, class Period>
std::chrono::nanoseconds bounded(std::chrono::duration<Rep, Period> limit) {
  if (limit >= kLongestWait) return kLongestWait;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(limit);
}
}  // namespace detail

/// As long from now; after a year at most.
template <class Rep, class Period>
Moment moment_after(std::chrono::duration<Rep, Period> time) {
  return MonotonicClock::now() + detail::bounded(time);
}

/// std::condition_variable; the lock that a wait gives up and takes again is named, not its guard.
///   while (!done_) changed_.wait(mutex_);
///   if (!changed_.wait_until(mutex_, end, [this]() VARVE_REQUIRES(mutex_) { return done_; })) ...
class ConditionVariable {
 public:
  ConditionVariable() = default;
  ConditionVariable(const ConditionVariable&) = delete;
  ConditionVariable& operator=(const ConditionVariable&) = delete;

  void notify_one() { notify(false); }
  void notify_all() { notify(true); }
  /// May return for no reason.
  void wait(Mutex& mutex) VARVE_REQUIRES(mutex) { (void)wait_limited(mutex, std::nullopt); }
  /// False if the moment has come.
  bool wait_until(Mutex& mutex, Moment end) VARVE_REQUIRES(mutex) { return wait_limited(mutex, end); }
  template <class Rep, class Period>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> limit) VARVE_REQUIRES(mutex) {
    return wait_limited(mutex, moment_after(limit));
  }
  /// Whether it is done. Not checked here: where a predicate says which lock it needs, it is another name of `mutex`.
  template <class Predicate>
  bool wait_until(Mutex& mutex, Moment end, Predicate done) VARVE_REQUIRES(mutex) VARVE_NO_THREAD_SAFETY_ANALYSIS {
    while (!done()) {
      if (!wait_limited(mutex, end)) return done();
    }
    return true;
  }
  template <class Rep, class Period, class Predicate>
  bool wait_for(Mutex& mutex, std::chrono::duration<Rep, Period> limit, Predicate done) VARVE_REQUIRES(mutex) {
    return wait_until(mutex, moment_after(limit), std::move(done));
  }

 private:
  void notify(bool all);
  bool wait_limited(Mutex& mutex, std::optional<Moment> end) VARVE_REQUIRES(mutex);

  std::condition_variable native_;
};

/// std::thread, as start_thread() gives it.
class Thread {
 public:
  Thread() = default;
  bool joinable() const { return native_.joinable(); }
  void join();

 private:
  friend Result<Thread> start_thread(std::function<void()> body);
  Thread(std::thread native, uint64_t number) : native_(std::move(native)), number_(number) {}

  std::thread native_;
  uint64_t number_ = 0;  ///< in the scheduler, if there is one
};

/// resource_limit if the system refuses another thread.
Result<Thread> start_thread(std::function<void()> body);

/// Where others may go on: beside a look at files that no FileSystem shows.
inline void hand_over() {
  if (current_scheduler != nullptr) [[unlikely]]
    current_scheduler->hand_over();
}

/// Waits until the descriptor has something to be read, for so long at most; false if it has nothing.
bool wait_to_read(int descriptor, std::chrono::milliseconds limit);

void sleep_until(Moment end);
template <class Rep, class Period>
void sleep_for(std::chrono::duration<Rep, Period> time) {
  sleep_until(moment_after(time));
}

/// Seconds since 1970, by the calendar, which may be set.
int64_t calendar_seconds();
/// The same with what is left of a second, where nobody decides what time it is.
double calendar_time();
/// How many threads can run at once on this machine, as far as this process may know; 1 at least.
uint32_t processor_count();
Status fill_with_random(std::span<std::byte> bytes);

}  // namespace varve
