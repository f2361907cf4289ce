#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace varve {

/// Waits until `word` is not `seen` any longer or the time has passed; may return earlier. Works between processes when
/// `word` lies in shared memory.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds limit);
/// Wakes all that wait for `word`, in whatever process.
void futex_wake_all(const std::atomic<uint32_t>& word);

/// A bell in (shared) memory: whoever changes something rings it; who waits for a change notes the count, looks, and
/// waits for another count. Nothing is missed.
class Bell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  void ring() {
    count_.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(count_);
  }
  void wait(uint32_t seen, std::chrono::nanoseconds limit) const { futex_wait(count_, seen, limit); }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace varve
