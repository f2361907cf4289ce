#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "core/guarded.h"
#include "core/processor_meter.h"
#include "core/sync.h"

namespace varve {

Status parallel_for(size_t count, size_t thread_count, const std::function<Status(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  Mutex mutex;  // guards failure
  Status failure;
  auto work = [&] {
    for (size_t i = next++; i < count && !stop; i = next++) {
      Status status = run_guarded([&] { return body(i); });
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      if (failure.ok()) failure = std::move(status);
      stop = true;
    }
  };
  std::vector<Thread> threads;
  for (size_t i = 1; i < std::min(thread_count, count); ++i) {
    Result<Thread> started = start_thread([&work, meter = ProcessorMeter::current()] {
      const ProcessorMeter::Scope metered(meter);
      work();
    });
    if (!started.ok()) break;  // the system refuses more: those that there are do it all
    threads.push_back(*std::move(started));
  }
  work();
  for (Thread& thread : threads) thread.join();
  return failure;
}

}  // namespace varve
