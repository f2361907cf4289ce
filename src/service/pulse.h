#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <thread>

namespace varve {

/// Lets the client of a long request know that the server lives; false: the client is gone. From any thread.
using SignOfLife = std::function<bool()>;

/// Calls a function every few seconds as long as it is there. Throws std::system_error if there can be no thread.
class Pulse {
 public:
  explicit Pulse(const SignOfLife& beat) : thread_([this, &beat] { run(beat); }) {}
  ~Pulse() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }
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

  std::mutex mutex_;  // guards ending_
  std::condition_variable ended_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace varve
