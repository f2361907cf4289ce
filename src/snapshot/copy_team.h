#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/sync.h"

namespace varve {

/// Threads that help one other with pieces of work, and sleep in between. The helpers are started by the first run()
/// that has use for them; they block all signals, which are the program's.
class CopyTeam {
 public:
  /// `threads`: that work in all, the caller's among them; at least 1.
  explicit CopyTeam(uint32_t threads) : threads_(threads < 1 ? 1 : threads) {}
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;
  ~CopyTeam();

  /// Calls work(0) … work(count - 1), each once, and returns when all have returned. Helpers take part as they wake up;
  /// one that sleeps on is not waited for. `work` does not throw. One caller at a time.
  void run(uint64_t count, const std::function<void(uint64_t)>& work);
  uint32_t threads() const { return threads_; }

 private:
  void start();
  void help();
  void take_pieces();
  bool enter();
  void leave();

  const uint32_t threads_;
  std::vector<Thread> helpers_;
  /// A round is open to helpers (kOpen), and how many are in it.
  std::atomic<uint32_t> gate_{0};
  std::atomic<uint32_t> round_{0};  ///< grows with each; helpers sleep on it
  std::atomic<uint32_t> left_{0};   ///< grows when the last helper leaves a closed round; the caller sleeps on it
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> next_{0};
  uint64_t count_ = 0;
  const std::function<void(uint64_t)>* work_ = nullptr;
};

}  // namespace varve
