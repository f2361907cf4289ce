#include "runtime/run_monitor.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "core/guarded.h"
#include "core/process.h"
#include "core/step_text.h"
#include "core/sync.h"

namespace varve {

namespace {
/// Between writes of what happens: what follows sooner goes together.
constexpr std::chrono::milliseconds kWriteInterval(200);
/// Between writes for a collector.
constexpr double kMetricsSeconds = 5;
/// Of events that wait to be written; of more, the newest are lost, and counted.
constexpr size_t kEventsMax = 10'000;
/// How long the end of a run waits for the last word to be written.
constexpr std::chrono::seconds kLastWordPatience(5);

/// Threads that did not come back from a write. Held, as they go on.
std::vector<Thread>& monitors_left() {
  static auto* const left = new std::vector<Thread>;
  return *left;
}

bool is_folder(const std::string& path) {
  struct stat facts {};
  return path.ends_with('/') || (::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode));
}
}  // namespace

/// What the thread shares with the run. It outlives both.
class RunMonitor::Core {
 public:
  Core(BlockedTime& blocked, RunLedger& ledger, WarningList& warnings, Clock& clock, double offset)
      : blocked_(&blocked), ledger_(&ledger), warnings_(&warnings), clock_(&clock), offset_(offset) {}

  static void start(const std::shared_ptr<Core>& core, const RunFacts& facts, MonitorPlaces places,
                    const std::vector<std::string>& levels, size_t nearest);
  void let_ask(std::function<RunSample()> sample);
  /// Calls `change` with the progress, and has the event written.
  template <class Change>
  void note(RunEvent event, Change change);
  void end(std::string_view failure);

 private:
  /// What is to be written at a time.
  struct Draft {
    std::string lines;
    Metrics metrics;
    bool last = false;
  };
  void run();
  void conclude(std::string_view failure);
  bool wait_for_work();
  Draft draft();
  void ask() VARVE_REQUIRES(mutex_);
  void compose(Metrics& into) VARVE_REQUIRES(mutex_);
  void add_blocked(RunEvent& event) VARVE_REQUIRES(mutex_);
  void write(const Draft& draft);
  void settle(const Status& outcome, bool& told, std::string_view what);

  mutable Mutex mutex_;
  ConditionVariable changed_;
  /// Null once the run has ended.
  BlockedTime* blocked_ VARVE_GUARDED_BY(mutex_);
  RunLedger* ledger_ VARVE_GUARDED_BY(mutex_);
  WarningList* warnings_ VARVE_GUARDED_BY(mutex_);
  Clock* clock_ VARVE_GUARDED_BY(mutex_);
  std::function<RunSample()> sample_ VARVE_GUARDED_BY(mutex_);
  RunProgress progress_ VARVE_GUARDED_BY(mutex_);
  std::deque<RunEvent> events_ VARVE_GUARDED_BY(mutex_);
  uint64_t lost_ VARVE_GUARDED_BY(mutex_) = 0;
  BlockedParts told_blocked_ VARVE_GUARDED_BY(mutex_);
  Metrics last_ VARVE_GUARDED_BY(mutex_);  ///< at the end
  bool tells_ VARVE_GUARDED_BY(mutex_) = false;
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  bool has_news_ VARVE_GUARDED_BY(mutex_) = false;   ///< for the log
  bool is_urgent_ VARVE_GUARDED_BY(mutex_) = false;  ///< what waits is to be written at once
  bool ended_ VARVE_GUARDED_BY(mutex_) = false;
  Thread thread_ VARVE_GUARDED_BY(mutex_);

  const double offset_;
  // Said once, before the thread
  RunFacts facts_;
  MonitorPlaces places_;
  // The thread's alone
  Moment written_{};
  std::string lines_;  ///< that could not be written yet
  double metrics_written_ = 0;
  bool told_timeline_ = false, told_metrics_ = false;
};

void RunMonitor::Core::start(const std::shared_ptr<Core>& core, const RunFacts& facts, MonitorPlaces places,
                             const std::vector<std::string>& levels, size_t nearest) {
  if (!places.metrics_file.empty() && is_folder(places.metrics_file)) {
    if (!places.metrics_file.ends_with('/')) places.metrics_file += '/';
    places.metrics_file += fmt::format("varve-{}.prom", facts.job);
  }
  core->facts_ = facts;
  core->places_ = std::move(places);
  const MutexLock lock(core->mutex_);
  core->progress_.begin(levels, nearest);
  const BlockedSignals blocked;
  Result<Thread> thread = start_thread([core] { core->run(); });
  if (thread.ok()) {
    core->thread_ = std::move(*thread);
    core->tells_ = true;
  } else {
    core->warnings_->add(thread.status().with_context("nobody is told how the run goes on"));
  }
}

void RunMonitor::Core::let_ask(std::function<RunSample()> sample) {
  // Who has been asked until now is asked for a last time: what is told at the end is how it was then.
  const Status asked = run_guarded([this] {
    const MutexLock lock(mutex_);
    ask();
  });
  asked.ignore("where there is no memory for it, it is not told");
  const MutexLock lock(mutex_);
  sample_ = std::move(sample);
}

void RunMonitor::Core::ask() {
  if (!sample_) return;
  const RunSample sample = sample_();
  for (const LevelProgress& level : sample.levels) progress_.note_waiting(level.level, level.waiting);
  progress_.state.bytes_to_write = sample.bytes_to_write;
  progress_.state.bytes_written = sample.bytes_written;
  if (sample.on_all_nodes) progress_.note_on_all_nodes(*sample.on_all_nodes);
}

template <class Change>
void RunMonitor::Core::note(RunEvent event, Change change) {
  const Status noted = run_guarded([&] {
    const MutexLock lock(mutex_);
    if (!tells_) return;
    if (event.at == 0) event.at = offset_ + clock_->seconds();
    change(progress_);
    if (event.tells_blocked) add_blocked(event);
    // A program that makes checkpoints faster than they can be told of goes on.
    if (events_.size() == kEventsMax) {
      ++lost_;
      return;
    }
    // A program may end soon after what failed.
    if (!event.why.empty()) is_urgent_ = true;
    events_.push_back(std::move(event));
    if (is_urgent_ || !has_news_) changed_.notify_all();
    has_news_ = true;
  });
  noted.ignore("where there is no memory for it, it is not told");
}

void RunMonitor::Core::add_blocked(RunEvent& event) {
  const BlockedParts so_far = blocked_->so_far();
  event.blocked = so_far - told_blocked_;
  told_blocked_ = so_far;
}

/// What there is to say at last.
void RunMonitor::Core::conclude(std::string_view failure) {
  const MutexLock lock(mutex_);
  if (!tells_) return;
  tells_ = false;
  sample_ = nullptr;
  const double now = offset_ + clock_->seconds();
  progress_.state.ended = now;
  progress_.state.failed = !failure.empty();
  RunEvent event{.kind = RunEventKind::end, .at = now, .tells_blocked = true};
  event.why = failure;
  event.count = lost_;
  add_blocked(event);
  events_.push_back(std::move(event));
  compose(last_);
}

void RunMonitor::Core::end(std::string_view failure) {
  run_guarded([&] { conclude(failure); }).ignore("where there is no memory for it, it is not told");
  std::optional<Thread> left;
  {
    const MutexLock lock(mutex_);
    if (!thread_.joinable()) return;
    blocked_ = nullptr;
    ledger_ = nullptr;
    warnings_ = nullptr;
    clock_ = nullptr;
    ending_ = true;
    changed_.notify_all();
    const auto ended = [this]() VARVE_REQUIRES(mutex_) { return ended_; };
    (void)changed_.wait_for(mutex_, kLastWordPatience, ended);
    if (ended_) {
      left = std::move(thread_);
    } else {
      monitors_left().push_back(std::move(thread_));
    }
  }
  if (left) left->join();
}

// The thread

void RunMonitor::Core::run() {
  bool last = false;
  while (!last) {
    const Status told = run_guarded([&] {
      const Draft now = draft();
      last = now.last;
      write(now);
    });
    told.ignore("it is tried again");
    if (!last) last = wait_for_work() && !told.ok();
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

/// Whether it is for the last time.
bool RunMonitor::Core::wait_for_work() {
  const MutexLock lock(mutex_);
  const auto is_pressed = [this]() VARVE_REQUIRES(mutex_) { return ending_ || is_urgent_; };
  const auto has_work = [this]() VARVE_REQUIRES(mutex_) {
    return ending_ || is_urgent_ || (has_news_ && !places_.timeline.empty());
  };
  (void)changed_.wait_for(mutex_, std::chrono::duration<double>(places_.look_seconds), has_work);
  (void)changed_.wait_until(mutex_, written_ + kWriteInterval, is_pressed);
  is_urgent_ = has_news_ = false;
  return ending_;
}

RunMonitor::Core::Draft RunMonitor::Core::draft() {
  std::deque<RunEvent> events;
  Draft draft;
  {
    const MutexLock lock(mutex_);
    events.swap(events_);
    draft.last = ending_;
    if (ending_) {
      draft.metrics = last_;
    } else {
      compose(draft.metrics);
    }
  }
  if (places_.timeline.empty()) return draft;
  for (const RunEvent& event : events) draft.lines += run_event_line(event, facts_.run);
  return draft;
}

void RunMonitor::Core::compose(Metrics& into) {
  ask();
  progress_.state.updated = offset_ + clock_->seconds();
  into = run_metrics(facts_, ledger_->costs(), blocked_->so_far(), progress_.now());
}

void RunMonitor::Core::write(const Draft& draft) {
  written_ = MonotonicClock::now();
  constexpr size_t kLinesMax = 1_MiB;
  if (!places_.live_file.empty()) {
    // It is there for who looks at a run that lives. One that was killed leaves it.
    if (draft.last) {
      ::unlink(places_.live_file.c_str());
    } else {
      write_metrics_file(places_.live_file, draft.metrics, 0600).ignore("who looks does not see the run");
    }
  }
  lines_ += draft.lines;
  if (!lines_.empty()) {
    const Status appended = append_to_timeline(places_.timeline, lines_);
    if (appended.ok() || lines_.size() > kLinesMax) lines_.clear();
    settle(appended, told_timeline_, "its timeline has gaps");
  }
  const double now = std::chrono::duration<double>(MonotonicClock::now().time_since_epoch()).count();
  if (places_.metrics_file.empty() || (!draft.last && now - metrics_written_ < kMetricsSeconds)) return;
  metrics_written_ = now;
  settle(write_metrics_file(places_.metrics_file, draft.metrics), told_metrics_, "monitoring does not see the run");
}

void RunMonitor::Core::settle(const Status& outcome, bool& told, std::string_view what) {
  if (outcome.ok() || std::exchange(told, true)) return;
  const MutexLock lock(mutex_);
  if (warnings_ != nullptr) warnings_->add(outcome.with_context(std::string(what)));
}

// What happens

RunMonitor::RunMonitor(BlockedTime& blocked, RunLedger& ledger, WarningList& warnings, Clock& clock)
    : clock_(clock),
      offset_(calendar_time() - clock.seconds()),
      core_(std::make_shared<Core>(blocked, ledger, warnings, clock, offset_)) {}

RunMonitor::~RunMonitor() { end("it was not said how the session ended"); }

void RunMonitor::start(const RunFacts& facts, const MonitorPlaces& places, const std::vector<std::string>& levels,
                       size_t nearest) {
  RunFacts told = facts;
  told.begin = calendar_time();
  Core::start(core_, told, places, levels, nearest);
  RunEvent event{.kind = RunEventKind::open, .tells_blocked = true};
  for (const std::string& level : levels) event.place += (event.place.empty() ? "" : "\n") + level;
  event.count = facts.rank_count;
  event.host = facts.host;
  event.process.pid = facts.process;
  if (const Result<ProcessIdentity> own = ProcessIdentity::own(); own.ok()) event.process = *own;
  core_->note(std::move(event), [](RunProgress&) {});
}

void RunMonitor::let_ask(std::function<RunSample()> sample) { core_->let_ask(std::move(sample)); }

void RunMonitor::note_restart(const std::optional<RestartCandidate>& taken, size_t passed_over) {
  RunEvent event{.kind = RunEventKind::restart, .tells_blocked = true};
  event.count = passed_over;
  if (!taken) {
    core_->note(std::move(event), [](RunProgress& run) { run.note_restart(std::nullopt, 0, 0); });
    return;
  }
  const double now = wall(clock_.seconds());
  const double made_at = taken->made_s ? static_cast<double>(*taken->made_s) : now;
  event.step = step_text(taken->step);
  event.place = taken->memory_run ? "memory" : taken->place;
  core_->note(std::move(event), [&](RunProgress& run) { run.note_restart(taken->step, taken->level, made_at); });
}

void RunMonitor::note_restart_failed(const Status& why) {
  RunEvent event{.kind = RunEventKind::restart, .tells_blocked = true};
  event.why = why.to_string();
  core_->note(std::move(event), [](RunProgress&) {});
}

void RunMonitor::note_making(uint64_t step, double begin) {
  core_->note({.kind = RunEventKind::making, .step = step_text(step), .begin = wall(begin)}, [](RunProgress&) {});
}

void RunMonitor::note_snapshot(uint64_t step, double begin, bool saves, const Result<SnapshotCost>& cost) {
  RunEvent event{
      .kind = RunEventKind::checkpoint, .step = step_text(step), .begin = wall(begin), .tells_blocked = true};
  if (cost.ok()) {
    event.bytes = cost->bytes;
    event.copied_bytes = cost->copied_bytes;
    event.stays_in_memory = !saves;
  } else {
    event.why = cost.status().to_string();
  }
  core_->note(std::move(event), [&](RunProgress& run) {
    if (cost.ok()) run.note_snapshot(step, wall(begin), saves);
  });
}

void RunMonitor::note_skipped(uint64_t step, double begin) {
  core_->note({.kind = RunEventKind::skipped, .step = step_text(step), .begin = wall(begin), .tells_blocked = true},
              [](RunProgress&) {});
}

void RunMonitor::note_waited(double begin) {
  core_->note({.kind = RunEventKind::waited, .begin = wall(begin), .tells_blocked = true}, [](RunProgress&) {});
}

void RunMonitor::note_drained(const DrainReport& report) {
  const bool stored = report.outcome.ok();
  RunEvent event{.kind = stored ? RunEventKind::stored : RunEventKind::failed, .step = step_text(report.step)};
  event.at = report.end_seconds > 0 ? wall(report.end_seconds) : 0;
  event.begin = wall(report.begin_seconds);
  event.bytes = report.bytes;
  event.stored_bytes = report.stored_bytes;
  if (report.work_begin_seconds > 0) event.work_begin = wall(report.work_begin_seconds);
  event.work_seconds = report.drain_seconds;
  event.processor_seconds = report.processor_seconds;
  event.times = report.times;
  if (!stored) event.why = report.outcome.to_string();
  core_->note(std::move(event),
              [&](RunProgress& run) { stored ? run.note_stored(report.step) : run.note_not_stored(report.step); });
}

void RunMonitor::note_level(const LevelNews& news) {
  using What = LevelNews::What;
  RunEvent event;
  switch (news.what) {
    case What::begun: event.kind = RunEventKind::begun; break;
    case What::arrived: event.kind = RunEventKind::arrived; break;
    case What::failed: event.kind = RunEventKind::away; break;
    case What::given_up: event.kind = RunEventKind::given_up; break;
  }
  if (news.step) event.step = step_text(*news.step);
  event.place = news.level;
  event.bytes = news.sent_bytes;
  if (!news.why.ok()) event.why = news.why.to_string();
  core_->note(std::move(event), [&](RunProgress& run) {
    if (news.what == What::arrived && news.step) run.note_arrived(news.level, *news.step);
    if (news.what == What::failed) run.note_failure(news.level);
    if (news.what == What::given_up) run.note_given_up(news.level);
  });
}

void RunMonitor::end(std::string_view failure) { core_->end(failure); }

}  // namespace varve
