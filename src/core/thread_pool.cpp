#include "core/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "core/guarded.h"
#include "core/sync.h"
#include "core/work_meter.h"

namespace varve {

ThreadPool::ThreadPool(size_t thread_count) {
  if (thread_count == 0) thread_count = processor_count();
  threads_.reserve(thread_count);
  while (threads_.size() < thread_count) {
    Result<Thread> started = run_guarded([this] {
      return start_thread([this, meter = WorkMeter::current()] {
        const WorkMeter::Scope metered(meter);
        serve();
      });
    });
    if (!started.ok()) break;  // the user's limit of processes is reached: the threads that there are do the work
    threads_.push_back(*std::move(started));
  }
}

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  filled_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

void ThreadPool::run(std::function<void()> work) {
  if (threads_.empty()) return work();
  {
    const MutexLock lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void ThreadPool::serve() {
  for (;;) {
    std::function<void()> work;
    {
      const MutexLock lock(mutex_);
      while (!ending_ && waiting_.empty()) filled_.wait(mutex_);
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

Status parallel_for(size_t count, size_t thread_count, const std::function<Status(size_t)>& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stop{false};
  Mutex mutex;
  Status failure VARVE_GUARDED_BY(mutex);
  auto work = [&] {
    for (size_t i = next++; i < count && !stop; i = next++) {
      Status status = run_guarded([&] { return body(i); });
      if (status.ok()) continue;
      const MutexLock lock(mutex);
      if (failure.ok()) failure = std::move(status);
      stop = true;
    }
  };
  std::vector<Thread> threads;
  threads.reserve(std::min(thread_count, count));
  for (size_t i = 1; i < std::min(thread_count, count); ++i) {
    Result<Thread> started = run_guarded([&work] {
      return start_thread([&work, meter = WorkMeter::current()] {
        const WorkMeter::Scope metered(meter);
        work();
      });
    });
    if (!started.ok()) break;  // the system refuses more: those that there are do it all
    threads.push_back(*std::move(started));
  }
  work();
  for (Thread& thread : threads) thread.join();
  return failure;
}

}  // namespace varve
