#include "snapshot/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "core/scheduler.h"

namespace varve {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);

// Never FUTEX_PRIVATE_FLAG: the other side may be another process.
long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, static_cast<const void*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds limit) {
  if (limit <= std::chrono::nanoseconds::zero()) return;
  // It is added to a clock: keep far from the end of that.
  limit = std::min(limit, std::chrono::nanoseconds(std::chrono::hours(24)));
  if (current_scheduler != nullptr) {
    return current_scheduler->wait_for_change(word, seen, current_scheduler->now() + limit);
  }
  timespec time{};
  time.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  // Woken, changed, interrupted, out of time: the caller looks again in any case.
  (void)futex(word, FUTEX_WAIT, seen, &time);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  if (current_scheduler != nullptr) return current_scheduler->note_change();
  (void)futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace varve
