#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "core/process.h"
#include "core/sync.h"
#include "serve/request_handler.h"
#include "varve/status.h"

namespace varve {

/// Whom PollingThreads serve when its socket says so. Outlives that, but may end in serve().
class Polled {
 public:
  explicit Polled(int socket) : socket_(socket) {}
  virtual ~Polled() = default;
  Polled(const Polled&) = delete;
  Polled& operator=(const Polled&) = delete;

  /// By one thread at a time: none comes again before this is given back (await_input(), take_turn()). `buffer` is the
  /// thread's.
  virtual void serve(DataBuffer& buffer) noexcept = 0;
  /// -1: there is none any more.
  int socket() const { return socket_; }

 private:
  friend class PollingThreads;
  const int socket_;
  std::atomic<bool> is_given_back_{false};  ///< the system orders what threads do with it, and so does the language
};

/// Threads that wait together for many sockets, of which most are silent. Each takes one that has become ready, and
/// serves it. When all are at work, there is soon one more, up to a limit: with as many sockets at work, others wait
/// for their turn. So nobody may wait in serve() for what only another socket can bring. Thread-safe.
class PollingThreads {
 public:
  /// With one thread. resource_limit: there is not even that.
  static Result<std::unique_ptr<PollingThreads>> start(size_t threads_max);
  ~PollingThreads() { stop(); }
  PollingThreads(const PollingThreads&) = delete;
  PollingThreads& operator=(const PollingThreads&) = delete;

  /// From now on `one` is served once its socket has input, or is at its end. After that, whoever serves it says what
  /// is next: one of the following, the last thing that he does with it.
  Status add(Polled& one);
  /// Serve it when its socket has input, or is at its end.
  void await_input(Polled& one) { arm(one, kInput); }
  /// Serve it when all that are ready now have had their turn, as soon as its socket takes output.
  void take_turn(Polled& one) { arm(one, kInput | kOutput); }
  /// Whether there is a thread with nothing to do.
  bool has_spare() const { return waiting_ > 0; }
  /// Never again.
  void remove(const Polled& one);

  /// Waits for what is being served; nothing is served any more.
  void stop();

 private:
  static const uint32_t kInput, kOutput;

  explicit PollingThreads(size_t threads_max) : threads_max_(threads_max) {}
  Status begin();
  void arm(Polled& one, uint32_t events);
  Status start_one();
  void run();

  const size_t threads_max_;
  UniqueFd poll_, stop_;
  std::atomic<size_t> waiting_{0};  ///< threads with nothing to do, those that begin among them
  Mutex mutex_;
  bool stopping_ VARVE_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
