#include "core/thread_pool.h"

#include <algorithm>

#include "core/processor_meter.h"
#include "core/sync.h"

namespace varve {

ThreadPool::ThreadPool(size_t thread_count) {
  if (thread_count == 0) thread_count = processor_count();
  threads_.reserve(thread_count);
  while (threads_.size() < thread_count) {
    Result<Thread> started = start_thread([this, meter = ProcessorMeter::current()] {
      const ProcessorMeter::Scope metered(meter);
      serve();
    });
    if (!started.ok()) break;  // the user's limit of processes is reached: the threads that there are do the work
    threads_.push_back(*std::move(started));
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  filled_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

void ThreadPool::run(std::function<void()> work) {
  if (threads_.empty()) return work();
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  filled_.notify_one();
}

void ThreadPool::serve() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      work = std::move(waiting_.front());
      waiting_.pop_front();
    }
    work();
  }
}

}  // namespace varve
