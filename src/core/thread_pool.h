#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/guarded.h"
#include "core/sync.h"
#include "varve/status.h"

namespace varve {

/// The handle of a submitted task. Dropping it does not wait.
template <class Outcome>
class Task {
 public:
  /// Waits for the task; once only. Must not be called from a task of the same pool, which could wait for itself.
  Outcome wait() {
    const std::shared_ptr<Promise> promise = std::move(promise_);
    const MutexLock lock(promise->mutex);
    while (!promise->outcome) promise->changed.wait(promise->mutex);
    return *std::move(promise->outcome);
  }
  bool valid() const { return promise_ != nullptr; }
  /// Whether wait() would not have to.
  bool ready() const {
    const MutexLock lock(promise_->mutex);
    return promise_->outcome.has_value();
  }

 private:
  friend class ThreadPool;
  struct Promise {
    Mutex mutex;
    ConditionVariable changed;
    std::optional<Outcome> outcome VARVE_GUARDED_BY(mutex);

    void keep(Outcome&& value) {
      {
        const MutexLock lock(mutex);
        outcome = std::move(value);
      }
      changed.notify_all();
    }
  };
  explicit Task(std::shared_ptr<Promise> promise) : promise_(std::move(promise)) {}

  std::shared_ptr<Promise> promise_;
};

/// A fixed number of threads that run what is submitted, first come, first served. An exception that leaves a task
/// becomes the Status of its outcome (out of memory: resource_limit; anything else: internal). Thread-safe.
class ThreadPool {
 public:
  /// As many threads as asked for, or as the machine has processors if 0; fewer, but at least one, where the system
  /// refuses more. Where it refuses even one, tasks run in submit().
  explicit ThreadPool(size_t thread_count = 0);
  /// Runs all that was submitted, then ends the threads.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t thread_count() const { return threads_.size(); }

  /// Runs `callable()` on one of the threads. What it refers to must live until the task was waited for or the pool is
  /// gone.
  template <class Callable>
  auto submit(Callable callable) {
    using Returned = std::invoke_result_t<Callable&>;
    using Guarded = GuardedOutcome<Returned>;
    // Shared, since std::function can hold only what is copyable.
    auto promise = std::make_shared<typename Task<Guarded>::Promise>();
    auto work = std::make_shared<Callable>(std::move(callable));
    Task<Guarded> task(promise);
    run([promise = std::move(promise), work = std::move(work)]() mutable {
      Guarded outcome = run_guarded(*work);
      work.reset();  // what the callable owns is gone before its outcome is known
      promise->keep(std::move(outcome));
    });
    return task;
  }

 private:
  void run(std::function<void()> work);
  void serve();

  Mutex mutex_;
  ConditionVariable filled_;
  std::deque<std::function<void()>> waiting_ VARVE_GUARDED_BY(mutex_);
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  ///< set up by the constructor, constant from then on
};

/// Calls `body(0)` to `body(count - 1)` on up to `thread_count` threads, the caller's among them, each index once and
/// in about their order. The first failure is returned; no further index is begun after it. Out of memory in a body is
/// resource_limit.
Status parallel_for(size_t count, size_t thread_count, const std::function<Status(size_t)>& body);

}  // namespace varve
