#include "serve/polling_threads.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/guarded.h"

namespace varve {

// One event, and then none until it is asked for again: who is served is nobody else's.
const uint32_t PollingThreads::kInput = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT;
const uint32_t PollingThreads::kOutput = EPOLLOUT;

Result<std::unique_ptr<PollingThreads>> PollingThreads::start(size_t threads_max) {
  std::unique_ptr<PollingThreads> threads(new PollingThreads(threads_max));
  VARVE_TRY(threads->begin());
  return threads;
}

Status PollingThreads::begin() {
  poll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!poll_.valid() || !stop_.valid() || ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, stop_.get(), &event) != 0)
    return Status::from_errno(errno, "prepare to wait for clients", "");
  return start_one();
}

Status PollingThreads::add(Polled& one) {
  epoll_event event{.events = kInput, .data = {.ptr = &one}};
  one.is_given_back_.store(true, std::memory_order_release);
  if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, one.socket(), &event) == 0) return {};
  return Status::from_errno(errno, "wait for a client", "");
}

void PollingThreads::arm(Polled& one, uint32_t events) {
  epoll_event event{.events = events, .data = {.ptr = &one}};
  const int socket = one.socket();
  // It may be served, and have ended, before the next call returns.
  one.is_given_back_.store(true, std::memory_order_release);
  ::epoll_ctl(poll_.get(), EPOLL_CTL_MOD, socket, &event);
}

void PollingThreads::remove(const Polled& one) {
  // Not left to the end of the socket: a process that was forked meanwhile may have it, too.
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, one.socket(), nullptr);
}

Status PollingThreads::start_one() {
  const MutexLock lock(mutex_);
  if (stopping_ || threads_.size() >= threads_max_) return {};
  threads_.reserve(threads_.size() + 1);
  ++waiting_;
  Result<Thread> started = start_thread([this] { run(); });
  if (!started.ok()) {
    --waiting_;
    return started.status();
  }
  threads_.push_back(*std::move(started));
  return {};
}

void PollingThreads::run() {
  DataBuffer buffer;
  while (true) {
    epoll_event event{};
    int ready = 0;
    while ((ready = ::epoll_wait(poll_.get(), &event, 1, -1)) < 0 && errno == EINTR) {
    }
    auto* const one = static_cast<Polled*>(event.data.ptr);
    if (ready != 1 || one == nullptr) return;
    one->is_given_back_.load(std::memory_order_acquire);
    if (--waiting_ == 0)
      run_guarded([this] { return start_one(); }).ignore("those that are there go on, and the next one tries again");
    one->serve(buffer);
    ++waiting_;
  }
}

void PollingThreads::stop() {
  std::vector<Thread> ending;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    ending.swap(threads_);
  }
  const uint64_t one = 1;
  if (!ending.empty() && ::write(stop_.get(), &one, sizeof one) < 0) return;  // never: it is 0
  for (Thread& thread : ending) thread.join();
}

}  // namespace varve
