#include "cli/interrupt.h"

#include <atomic>
#include <csignal>

namespace varve::cli {

namespace {
std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

extern "C" void note_signal(int) { signal_came.store(true, std::memory_order_relaxed); }
}  // namespace

void note_interrupts() {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = note_signal;
    // System calls of the engine go on; the handler is gone after one call.
    action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    ::sigaction(number, &action, nullptr);
  }
}

bool interrupted() { return signal_came.load(std::memory_order_relaxed); }

}  // namespace varve::cli
