#include "core/sync.h"

#include <poll.h>
#include <sys/random.h>

#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

namespace varve {

void Mutex::lock_scheduled() {
  current_scheduler->hand_over();
  while (!native_.try_lock()) (void)current_scheduler->wait(this, Moment::max());
}

void ConditionVariable::notify(bool all) {
  if (current_scheduler != nullptr) return current_scheduler->wake(this, all);
  if (all) {
    native_.notify_all();
  } else {
    native_.notify_one();
  }
}

bool ConditionVariable::wait_limited(Mutex& mutex, std::optional<Moment> end) {
  if (current_scheduler != nullptr) {
    // Nobody else runs between these two: no news is missed.
    mutex.unlock();
    const bool woken = current_scheduler->wait(this, end.value_or(Moment::max()));
    mutex.lock();
    return woken;
  }
  std::unique_lock<std::mutex> native(mutex.native_, std::adopt_lock);
  std::cv_status status = std::cv_status::no_timeout;
  if (end) {
    status = native_.wait_until(native, *end);
  } else {
    native_.wait(native);
  }
  native.release();
  return status == std::cv_status::no_timeout;
}

Result<Thread> start_thread(std::function<void()> body) {
  Scheduler* const scheduler = current_scheduler;
  const uint64_t number = scheduler == nullptr ? 0 : scheduler->add_thread();
  try {
    if (scheduler == nullptr) return Thread(std::thread(std::move(body)), number);
    std::thread native([scheduler, number, body = std::move(body)]() mutable {
      current_scheduler = scheduler;
      scheduler->begin_thread(number);
      body();
      body = nullptr;  // what it owns ends within the thread's turn
      current_scheduler = nullptr;
      scheduler->end_thread(number);
    });
    return Thread(std::move(native), number);
  } catch (const std::exception&) {  // std::system_error, or std::bad_alloc
    if (scheduler != nullptr) scheduler->forget_thread(number);
    return Status::resource_limit("the system refuses another thread, or memory for it", {},
                                  "raise the user's limit of processes");
  }
}

void Thread::join() {
  if (current_scheduler != nullptr) current_scheduler->join_thread(number_);
  native_.join();
}

bool wait_to_read(int descriptor, std::chrono::milliseconds limit) {
  pollfd waited{descriptor, POLLIN, 0};
  if (current_scheduler == nullptr) return ::poll(&waited, 1, static_cast<int>(limit.count())) > 0;
  if (::poll(&waited, 1, 0) <= 0) sleep_for(limit);
  return ::poll(&waited, 1, 0) > 0;
}

void sleep_until(Moment end) {
  if (current_scheduler == nullptr) return std::this_thread::sleep_until(end);
  static const char nothing = 0;  // nobody wakes who sleeps
  (void)current_scheduler->wait(&nothing, end);
}

int64_t calendar_seconds() {
  if (current_scheduler != nullptr) return current_scheduler->calendar_seconds();
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
}

double calendar_time() {
  if (current_scheduler != nullptr) return static_cast<double>(current_scheduler->calendar_seconds());
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

uint32_t processor_count() {
  return current_scheduler == nullptr ? std::max(1u, std::thread::hardware_concurrency())
                                      : current_scheduler->processor_count();
}

Status fill_with_random(std::span<std::byte> bytes) {
  if (current_scheduler != nullptr) {
    current_scheduler->fill_with_random(bytes);
    return {};
  }
  // Requests of up to 256 bytes are never cut short once the source is ready; only a signal can come in between.
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    if (errno != EINTR) return Status::from_errno(errno, "get random bytes", "getrandom");
  }
  return {};
}

}  // namespace varve
