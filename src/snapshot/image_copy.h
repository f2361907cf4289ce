#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "snapshot/variable_table.h"

namespace varve {

/// Copies `from` to `to` (as large, not overlapping) and returns crc32c(from, seed): each byte is read once, and what
/// was summed is what was written. Stores go past the caches; store_fence() must follow before another thread is told.
uint32_t copy_with_crc(std::byte* to, ByteSpan from, uint32_t seed);

/// Makes the stores of copy_with_crc() on this thread visible before any later one.
void store_fence();

/// The versions that this machine can run, plain first, the one that copy_with_crc() takes last. For tests and
/// benchmarks.
struct CopyKernel {
  std::string_view name;
  uint32_t (*copy_with_crc)(std::byte* to, const std::byte* from, size_t bytes, uint32_t seed);
};
std::vector<CopyKernel> copy_kernels();

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

/// Stage 1's inner part: makes bytes [offset, offset + bytes) of the image, in which no lent variable lies, at `to`,
/// and returns their CRC-32C. Past the caches; ends with a store_fence(). Any number of threads at once.
uint32_t copy_image(const VariableTable& variables, uint64_t offset, uint64_t bytes, std::byte* to);

}  // namespace varve
