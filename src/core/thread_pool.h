#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "varve/status.h"

namespace varve {

/// Hands values from threads to threads in order, at most `capacity` waiting at a time, so that a fast producer cannot
/// fill the memory. Thread-safe.
template <class T>
class BoundedQueue {
 public:
  /// `capacity` is at least 1.
  explicit BoundedQueue(size_t capacity) : capacity_(capacity == 0 ? 1 : capacity) {}

  /// Waits for room. False, and `value` is dropped, if the queue is or gets closed.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(std::move(value));
    lock.unlock();
    filled_.notify_one();
    return true;
  }

  /// Waits for a value. Nothing once the queue is closed and all that was pushed before has been taken.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    lock.unlock();
    room_.notify_one();
    return value;
  }

  /// Lets every waiting thread go: no more is taken in, what is in may still be taken out. May be called again.
  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    filled_.notify_all();
    room_.notify_all();
  }

  /// Closes, and drops what was not taken: for the consumer that gives up.
  void cancel() {
    std::deque<T> dropped;
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
      dropped.swap(values_);
    }
    filled_.notify_all();
    room_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;  ///< guards everything below
  std::condition_variable filled_, room_;
  std::deque<T> values_;
  bool closed_ = false;
};

namespace detail {
template <class T>
struct TaskOutcome {
  using Type = Result<T>;
};
template <>
struct TaskOutcome<void> {
  using Type = Status;
};
template <>
struct TaskOutcome<Status> {
  using Type = Status;
};
template <class T>
struct TaskOutcome<Result<T>> {
  using Type = Result<T>;
};

/// What an exception that reaches the end of its thread becomes.
Status status_from_current_exception();
}  // namespace detail

/// What waiting for a task gives: the task's own Status or Result, Result<T> of a plain T, Status of a void.
template <class T>
using TaskOutcome = typename detail::TaskOutcome<T>::Type;

/// The handle of a submitted task. Dropping it does not wait.
template <class Outcome>
class Task {
 public:
  explicit Task(std::future<Outcome> future) : future_(std::move(future)) {}
  /// Waits for the task; once only. Must not be called from a task of the same pool, which could wait for itself.
  Outcome wait() { return future_.get(); }
  bool valid() const { return future_.valid(); }
  /// Whether wait() would not have to.
  bool ready() const { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::future<Outcome> future_;
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
    using Outcome = TaskOutcome<Returned>;
    // Shared, since std::function can hold only what is copyable.
    auto promise = std::make_shared<std::promise<Outcome>>();
    auto work = std::make_shared<Callable>(std::move(callable));
    Task<Outcome> task(promise->get_future());
    run([promise = std::move(promise), work = std::move(work)]() mutable {
      Outcome outcome = run_guarded<Outcome>(*work);
      work.reset();  // what the callable owns is gone before its outcome is known
      promise->set_value(std::move(outcome));
    });
    return task;
  }

 private:
  template <class Outcome, class Callable>
  static Outcome run_guarded(Callable& callable) {
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<Callable&>>) {
        callable();
        return Status();
      } else {
        return callable();
      }
    } catch (...) {
      return detail::status_from_current_exception();
    }
  }

  void run(std::function<void()> work);
  void serve();

  std::mutex mutex_;  ///< guards waiting_ and ending_
  std::condition_variable filled_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;  ///< set up by the constructor, constant from then on
};

}  // namespace varve
