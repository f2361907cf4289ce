#include "runtime/stop_requests.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <limits>
#include <utility>

#include "core/quantity.h"
#include "core/sync.h"

namespace varve {

namespace {
/// A parallel file system is asked no more often than this.
constexpr double kFileSecondsMin = 1.0;

/// A signal of ours: how often it came, and who was told before us.
struct WatchedSignal {
  int number;
  const char* name;
  std::atomic<uint64_t> count{0};
  std::atomic<int64_t> first_ns{0};  ///< when it came first since somebody listens, on the monotonic clock; 0: not yet
  bool in_chain = false;             ///< our handler is the signal's, or below one that calls it
  struct sigaction previous {};      ///< what ours calls; not changed while in_chain
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "a signal handler may not wait");

std::array<WatchedSignal, 2> watched_signals{{{SIGTERM, "SIGTERM"}, {SIGUSR1, "SIGUSR1"}}};
Mutex installation_mutex;  ///< guards `in_chain` and `previous`, which handlers read
std::atomic<uint64_t> user_count{0};
/// Whose users they are: a process that was forked from this one inherits the handlers, but wants nothing of them.
std::atomic<pid_t> user_process{0};

bool anybody_listens() { return user_count.load() > 0 && user_process.load() == ::getpid(); }

/// Also in a signal handler.
int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

bool takes_information(const struct sigaction& action) {
  return (static_cast<unsigned>(action.sa_flags) & static_cast<unsigned>(SA_SIGINFO)) != 0;
}

void call_previous(const WatchedSignal& watched, siginfo_t* info, void* context) {
  const struct sigaction& previous = watched.previous;
  if (takes_information(previous)) {
    previous.sa_sigaction(watched.number, info, context);
  } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
    previous.sa_handler(watched.number);
  } else if (previous.sa_handler == SIG_DFL && !anybody_listens()) {
    // Nobody of us wants it any more, but somebody else's handler still calls ours.
    ::signal(watched.number, SIG_DFL);
    ::raise(watched.number);
  }
}

extern "C" void note_stop_signal(int number, siginfo_t* info, void* context) {
  const int error = errno;
  for (WatchedSignal& watched : watched_signals) {
    if (watched.number != number) continue;
    int64_t never = 0;
    watched.first_ns.compare_exchange_strong(never, monotonic_ns(), std::memory_order_relaxed);
    watched.count.fetch_add(1, std::memory_order_relaxed);
    call_previous(watched, info, context);
  }
  errno = error;
}

bool is_ours(const struct sigaction& action) {
  return takes_information(action) && action.sa_sigaction == note_stop_signal;
}

Status install(WatchedSignal& watched) {
  // Below a handler that somebody put over ours: once more over that one, the two would call each other for ever.
  if (watched.in_chain) return {};
  struct sigaction present {};
  if (::sigaction(watched.number, nullptr, &present) != 0)
    return Status::from_errno(errno, "look at the handler of the signal", watched.name);
  if (!takes_information(present) && present.sa_handler == SIG_IGN) return {};
  watched.previous = present;
  struct sigaction action {};
  action.sa_sigaction = note_stop_signal;
  action.sa_mask = present.sa_mask;
  // The program's system calls go on: it is going to end in good order anyway.
  action.sa_flags = static_cast<int>(static_cast<unsigned>(SA_SIGINFO) | static_cast<unsigned>(SA_RESTART) |
                                     (static_cast<unsigned>(present.sa_flags) & static_cast<unsigned>(SA_ONSTACK)));
  if (::sigaction(watched.number, &action, nullptr) != 0)
    return Status::from_errno(errno, "handle the signal", watched.name);
  watched.in_chain = true;
  return {};
}

void uninstall(WatchedSignal& watched) {
  struct sigaction present {};
  // A handler that somebody put over ours may call ours, so that it has to stay.
  if (!watched.in_chain || ::sigaction(watched.number, nullptr, &present) != 0 || !is_ours(present)) return;
  if (::sigaction(watched.number, &watched.previous, nullptr) == 0) watched.in_chain = false;
}

/// While it lives, the signals are counted.
class SignalWatch {
 public:
  static Result<std::unique_ptr<SignalWatch>> start() {
    const MutexLock lock(installation_mutex);
    if (!anybody_listens()) {
      user_count = 0;
      user_process = ::getpid();
      for (WatchedSignal& watched : watched_signals) {
        watched.first_ns = 0;
        if (Status status = install(watched); !status.ok()) {
          for (WatchedSignal& other : watched_signals) uninstall(other);
          return status;
        }
      }
    }
    ++user_count;
    return std::unique_ptr<SignalWatch>(new SignalWatch);
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch() {
    const MutexLock lock(installation_mutex);
    if (user_count.fetch_sub(1) > 1) return;
    for (WatchedSignal& watched : watched_signals) uninstall(watched);
  }

  struct Arrival {
    const char* name = nullptr;
    double seconds_ago = 0;
  };
  /// A signal that came since the begin.
  std::optional<Arrival> came() const {
    for (size_t i = 0; i < watched_signals.size(); ++i) {
      const WatchedSignal& watched = watched_signals[i];
      if (watched.count.load(std::memory_order_relaxed) == counts_at_start_[i]) continue;
      const int64_t since = std::max(watched.first_ns.load(std::memory_order_relaxed), start_ns_);
      return Arrival{watched.name, static_cast<double>(monotonic_ns() - since) * 1e-9};
    }
    return std::nullopt;
  }

 private:
  SignalWatch() {
    for (size_t i = 0; i < watched_signals.size(); ++i) counts_at_start_[i] = watched_signals[i].count.load();
  }
  const int64_t start_ns_ = monotonic_ns();
  std::array<uint64_t, 2> counts_at_start_{};
};
}  // namespace

class StopRequests::Impl {
 public:
  Impl(StopRule rule, bool watches_file, FileSystem& files, Clock& clock, std::unique_ptr<SignalWatch> signals)
      : rule_(std::move(rule)),
        watches_file_(watches_file),
        files_(files),
        clock_(clock),
        signals_(std::move(signals)),
        begin_(clock.seconds()),
        next_look_(begin_) {
    if (rule_.end_time) end_ = begin_ + *rule_.end_time - static_cast<double>(calendar_seconds());
  }

  bool possible() const { return rule_.on_signals || rule_.after_seconds || rule_.file || rule_.end_time; }

  bool requested() {
    if (reason_.empty()) look();
    return !reason_.empty();
  }

  const std::string& reason() const { return reason_; }

  double seconds_left() const { return reason_.empty() ? kInfinite : std::min(wait_end_, end_) - clock_.seconds(); }

 private:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  void look() {
    if (const std::optional<SignalWatch::Arrival> signal = signals_ ? signals_->came() : std::nullopt; signal) {
      reason_ = signal->name;
      // A long step may have passed since.
      if (rule_.grace) wait_end_ = clock_.seconds() - signal->seconds_ago + *rule_.grace;
      return;
    }
    const bool looks_for_file = watches_file_ && rule_.file;
    if (!rule_.after_seconds && !looks_for_file && !rule_.end_time) return;
    const double now = clock_.seconds();
    if (end_ - now <= rule_.grace.value_or(StopRule::kGraceSeconds)) {
      reason_ = "the end of the job's time";
      return;
    }
    if (rule_.after_seconds && now - begin_ >= *rule_.after_seconds) {
      reason_ = fmt::format("the time limit of {}", format_duration(*rule_.after_seconds));
    } else if (looks_for_file && now >= next_look_) {
      next_look_ = now + kFileSecondsMin;
      // That it cannot be looked at is no wish to stop.
      if (files_.stat(*rule_.file).ok()) reason_ = fmt::format("the file {}", *rule_.file);
    }
  }

  const StopRule rule_;
  const bool watches_file_;
  FileSystem& files_;
  Clock& clock_;
  const std::unique_ptr<SignalWatch> signals_;
  const double begin_;
  double next_look_;
  double end_ = kInfinite;       ///< of the job, by the clock
  double wait_end_ = kInfinite;  ///< of who has asked
  std::string reason_;
};

Result<StopRequests> StopRequests::start(StopRule rule, bool watches_file, FileSystem& files, Clock& clock) {
  std::unique_ptr<SignalWatch> signals;
  if (rule.on_signals) {
    VARVE_ASSIGN(signals, SignalWatch::start());
  }
  return StopRequests(std::make_unique<Impl>(std::move(rule), watches_file, files, clock, std::move(signals)));
}

StopRequests::StopRequests(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StopRequests::StopRequests(StopRequests&&) noexcept = default;
StopRequests& StopRequests::operator=(StopRequests&&) noexcept = default;
StopRequests::~StopRequests() = default;
bool StopRequests::possible() const { return impl_->possible(); }
bool StopRequests::requested() { return impl_->requested(); }
std::string StopRequests::reason() const { return impl_->reason(); }
double StopRequests::seconds_left() { return impl_->seconds_left(); }

}  // namespace varve
