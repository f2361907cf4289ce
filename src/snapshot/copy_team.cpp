#include "snapshot/copy_team.h"

#include <pthread.h>

#include <chrono>
#include <csignal>

#include "core/guarded.h"
#include "core/sync.h"
#include "snapshot/futex.h"

namespace varve {
namespace {

/// Set in the gate while helpers may enter; the bits below count those that are inside.
constexpr uint32_t kOpen = 1U << 31;
constexpr std::chrono::hours kLong(1);

}  // namespace

CopyTeam::~CopyTeam() {
  stopping_.store(true, std::memory_order_release);
  round_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(round_);
  for (Thread& helper : helpers_) helper.join();
}

void CopyTeam::start() {
  // A thread inherits the mask: the program's signals must find the program's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (helpers_.size() + 1 < threads_) {
    Result<Thread> helper = start_thread([this] { help(); });
    if (!helper.ok()) break;  // those that there are do it all
    helpers_.push_back(std::move(*helper));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool CopyTeam::enter() {
  uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void CopyTeam::leave() {
  // The last to leave a closed round wakes the caller.
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  left_.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(left_);
}

void CopyTeam::help() {
  uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    const uint32_t round = round_.load(std::memory_order_acquire);
    if (round == seen) {
      futex_wait(round_, seen, kLong);
      continue;
    }
    seen = round;
    if (!enter()) continue;
    take_pieces();
    leave();
  }
}

void CopyTeam::take_pieces() {
  for (uint64_t piece = next_.fetch_add(1, std::memory_order_relaxed); piece < count_;
       piece = next_.fetch_add(1, std::memory_order_relaxed)) {
    (*work_)(piece);
  }
}

void CopyTeam::run(uint64_t count, const std::function<void(uint64_t)>& work) {
  work_ = &work;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  const bool alone = threads_ == 1 || count < 2;
  if (!alone) {
    if (helpers_.empty()) start();
    gate_.store(kOpen, std::memory_order_release);  // nobody is inside: the round before ended so
    round_.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(round_);
  }
  take_pieces();
  if (alone) return;
  // Closed: a helper that wakes up only now finds nothing to do, and need not be waited for.
  uint32_t seen = left_.load(std::memory_order_acquire);
  for (uint32_t inside = gate_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen; inside != 0;
       inside = gate_.load(std::memory_order_acquire)) {
    futex_wait(left_, seen, kLong);
    seen = left_.load(std::memory_order_acquire);
  }
}

}  // namespace varve
