#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "core/guarded.h"
#include "core/processor_meter.h"

namespace varve {

Status parallel_for(size_t count, size_t thread_count, const std::function<Status(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;  // guards failure
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
  std::vector<std::thread> threads;
  try {
    for (size_t i = 1; i < std::min(thread_count, count); ++i) {
      threads.emplace_back([&work, meter = ProcessorMeter::current()] {
        const ProcessorMeter::Scope metered(meter);
        work();
      });
    }
  } catch (const std::system_error&) {
    // The system refuses more: those that there are do it all.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace varve
