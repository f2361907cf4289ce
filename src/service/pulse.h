#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <new>

#include "core/sync.h"

namespace varve {

/// Lets the client of a long request know that the server lives; false: the client is gone. From any thread.
using SignOfLife = std::function<bool()>;

/// Calls a function every few seconds as long as it is there.
class Pulse {
 public:
  explicit Pulse(const SignOfLife& beat) {
    Result<Thread> thread = start_thread([this, &beat] { run(beat); });
    started_ = thread.status();
    if (thread.ok()) thread_ = *std::move(thread);
  }
  ~Pulse() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ended_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  /// resource_limit: the system refuses another thread, and nobody beats.
  const Status& started() const { return started_; }
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  void run(const SignOfLife& beat) {
    constexpr std::chrono::seconds sign_of_life(2);
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, sign_of_life, [this] { return ending_; })) {
      try {
        beat();
      } catch (const std::bad_alloc&) {
        // The next one may have more luck.
      }
    }
  }

  Mutex mutex_;  // guards ending_
  ConditionVariable ended_;
  bool ending_ = false;
  Status started_;
  Thread thread_;
};

}  // namespace varve
