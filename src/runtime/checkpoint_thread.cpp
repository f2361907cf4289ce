#include "runtime/checkpoint_thread.h"

#include <algorithm>

#include "core/guarded.h"
#include "core/process.h"
#include "core/work_meter.h"
#include "engine/save.h"
#include "runtime/placement.h"
#include "store/remarks.h"

namespace varve {

namespace {
constexpr double kPostSeconds = 0.1;
}

// How far the group is

void GroupProgress::begin(uint64_t bytes) {
  const MutexLock lock(mutex_);
  written_ = 0;
  news_.bytes_to_write = bytes;
  news_.bytes_written = 0;
  posted_ = clock_.seconds();
  post_(news_);
}

void GroupProgress::advance(uint64_t bytes) {
  written_ += bytes;
  // Who comes while another one posts goes on with its work.
  if (!mutex_.try_lock()) return;
  const MutexLock lock(mutex_, std::adopt_lock);
  if (clock_.seconds() - posted_ < kPostSeconds) return;
  news_.bytes_written = std::min<uint64_t>(written_, news_.bytes_to_write);
  posted_ = clock_.seconds();
  post_(news_);
}

void GroupProgress::wrote() {
  const MutexLock lock(mutex_);
  news_.bytes_to_write = news_.bytes_written = 0;
  post_(news_);
}

void GroupProgress::end(uint64_t step, const Status& outcome) {
  const MutexLock lock(mutex_);
  if (outcome.ok()) {
    news_.newest_persistent = std::max(news_.newest_persistent.value_or(0), step);
  } else {
    news_.last_error = outcome;
    news_.failed_step = std::max(news_.failed_step.value_or(0), step);
  }
}

void GroupProgress::finish(uint64_t step) {
  const MutexLock lock(mutex_);
  news_.finished_step = std::max(news_.finished_step.value_or(0), step);
  post_(news_);
}

// Older sets

void OlderSets::make_way() {
  any_is_new_ = true;
  if (is_ours_) note(run_guarded([&] { return retention_.apply(store_, progress_); }));
}

bool OlderSets::make_room() {
  if (!is_ours_) return false;
  note(run_guarded([&] { return retention_.apply(store_, progress_); }));
  if (!retention_.has_space_to_give()) return false;
  note(run_guarded([&] { return retention_.give_space_back(store_, progress_, 0); }));
  return !retention_.has_space_to_give();
}

void OlderSets::tidy() {
  if (!is_ours_) return;
  if (any_is_new_) note(retention_.apply(store_, progress_));
  note(retention_.give_space_back(store_, progress_));
}

void OlderSets::note(const Status& outcome) {
  if (outcome.ok() || outcome.code() == StatusCode::cancelled) return;
  warnings_.add(outcome.with_context("the space of older sets could not be given back"));
}

// The thread

namespace {
/// How long a change that nobody rings for (a member that died) may stay unseen.
constexpr std::chrono::milliseconds kThreadLookInterval(200);
/// Between looks whether the other groups are done: from the first to the last.
constexpr std::chrono::milliseconds kFirstPause(1), kLongestPause(200);
/// For others' parts, where an exception waits for them.
constexpr double kLittleSeconds = 60;
}  // namespace

CheckpointThread::CheckpointThread(const Store& store, CheckpointDuty duty,
                                   std::vector<std::unique_ptr<GroupMember>> members, Bell& bell, WarningList& warnings,
                                   Clock& clock)
    : store_(store),
      duty_(std::move(duty)),
      bell_(bell),
      warnings_(warnings),
      clock_(clock),
      snapshots_(std::move(members), duty_.group.job),
      progress_([this](const GroupNews& news) { snapshots_.post(news); }, warnings, clock),
      older_sets_(store, duty_, progress_, warnings),
      published_(store, duty_, notes_, progress_, clock),
      index_(store, duty_.group.makes_sets() ? ChunkIndex::Upkeep::here : ChunkIndex::Upkeep::others,
             duty_.store_was_empty),
      pace_(clock.seconds()),
      effort_(clock) {}

CheckpointThread::~CheckpointThread() { stop(std::chrono::hours(1)); }

Status CheckpointThread::start() {
  published_.meet_siblings();
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

void CheckpointThread::cancel() {
  progress_.cancel();
  if (duty_.stop_slowing) duty_.stop_slowing();
}

void CheckpointThread::stop(std::chrono::nanoseconds limit) {
  stopping_ = true;
  bell_.ring();
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    const auto ended = [this]() VARVE_REQUIRES(mutex_) { return ended_; };
    if (!ended_bell_.wait_for(mutex_, limit, ended)) cancel();
  }
  thread_.join();
}

void CheckpointThread::note_set(uint64_t step, SetState state) {
  notes_.note_set(step, state);
  bell_.ring();
}

void CheckpointThread::hurry(bool waits) {
  effort_.hurry(waits);
  if (waits) bell_.ring();
}

void CheckpointThread::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  const auto lose = [this](uint64_t step, const Status& why) { lose_step(step, why); };
  {
    const GentleWaking gentle;
    std::chrono::milliseconds pause = kFirstPause;
    for (;;) {
      const uint32_t seen = bell_.count();
      const bool stopping = stopping_;
      // Members on other nodes are with one checkpoint until its set is complete.
      const bool can_go_on = published_.empty() || !snapshots_.has_remote();
      if (const std::optional<uint64_t> step = can_go_on ? snapshots_.next_step(lose) : std::nullopt) {
        drain(*step);
        pause = kFirstPause;
        continue;
      }
      if (!can_go_on && effort_.hurries()) published_.look_early();
      look_at_published();
      if (stopping && published_.empty()) break;
      bell_.wait(seen, published_.empty() ? kThreadLookInterval : pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }
  snapshots_.lose_rest(lose);
  if (!progress_.cancelled()) {
    const Status shared = run_guarded([this] { return index_.share(); });
    shared.ignore("who looks up chunks next indexes what was written");
  }
  const MutexLock lock(mutex_);
  ended_ = true;
  ended_bell_.notify_all();
}

void CheckpointThread::tidy() {
  if (thread_.joinable()) return;
  published_.forget_told();
  older_sets_.tidy();
}

// One checkpoint

/// Those before it that were never taken are told of.
CheckpointNotes::Begin CheckpointThread::take_begin(uint64_t step) {
  std::map<uint64_t, CheckpointNotes::Begin> begun = notes_.take_begun(step);
  const auto found = begun.find(step);
  const CheckpointNotes::Begin begin =
      found == begun.end() ? CheckpointNotes::Begin{clock_.seconds(), {}} : found->second;
  begun.erase(step);
  for (const auto& [skipped, of_skipped] : begun) {
    tell(skipped, of_skipped.levels,
         Status::io_error("there is no snapshot of this step", duty_.group.set_of(skipped).to_string()));
  }
  return begin;
}

void CheckpointThread::tell(uint64_t step, const LevelDuty& levels, const Status& outcome) {
  if (!duty_.accept || !levels.save) return;
  const Status told = run_guarded([&] { duty_.accept({step, levels.number, levels.everywhere, outcome}); });
  if (!told.ok()) warnings_.add(told.with_context("not all levels know of a set that was made"));
}

void CheckpointThread::lose_step(uint64_t step, const Status& why) {
  snapshots_.give_back(step, why);  // one that cannot be given back is given up with its member
  const CheckpointNotes::Begin begin = take_begin(step);
  if (begin.levels.save) published_.tell_others(step, why);
  DrainReport report;
  report.step = step;
  report.outcome = why;
  report.begin_seconds = begin.seconds;
  conclude(std::move(report), begin.levels);
}

void CheckpointThread::leave_in_memory(uint64_t step) {
  warnings_.add(snapshots_.give_back(step, Status()));
  progress_.finish(published_.finished_step(step));
}

void CheckpointThread::drain(uint64_t step) {
  const CheckpointNotes::Begin begin = take_begin(step);
  if (!begin.levels.save) return leave_in_memory(step);
  DrainReport report;
  report.step = step;
  report.begin_seconds = begin.seconds;
  Result<SetRecord> part = save_at_its_pace(step, begin, report);
  if (part.ok() && duty_.replaces_on_nodes(step)) {
    const Status durable = make_part_durable(step);
    if (!durable.ok()) part = durable;
  }
  report.outcome = part.status();
  // Before the members know: all that the groups have published can be told from then on.
  if (part.ok() && duty_.note_published) duty_.note_published(step, encode_set_record(*part, store_.score()));
  // The slots are free for the next snapshot from here on, whether other groups are done or not.
  warnings_.add(snapshots_.give_back(step, report.outcome));
  progress_.wrote();
  if (!part.ok()) {
    published_.tell_others(step, report.outcome);
    return conclude(std::move(report), begin.levels);
  }
  published_.add(std::move(report), begin.levels, std::move(*part));
  look_at_published();
}

/// Other nodes are going to rest on it.
Status CheckpointThread::make_part_durable(uint64_t step) const {
  Status durable = store_.backend().settle(parts_path(store_));
  if (durable.ok()) durable = store_.make_folders_durable();
  if (!durable.ok()) remove_part(store_, duty_.group.part_of(step)).ignore("the next prune removes it");
  return durable;
}

Result<SetRecord> CheckpointThread::save_at_its_pace(uint64_t step, const CheckpointNotes::Begin& begin,
                                                     DrainReport& report) {
  Result<SetRecord> part = Status::internal("it was not saved");
  const auto work = [&] { part = run_guarded([&] { return save(step, begin.levels, report); }); };
  // A thread can lower its priority, and that of those that it starts, but not raise it again.
  Result<Thread> thread = Status::internal("there is none");
  if (pace_.begin(begin.seconds) && duty_.get_out_of_way) {
    thread = start_thread([&] {
      duty_.get_out_of_way();
      work();
    });
  }
  if (thread.ok()) {
    thread->join();
  } else {
    work();
  }
  pace_.end(clock_.seconds());
  return part;
}

Result<SetRecord> CheckpointThread::save(uint64_t step, const LevelDuty& levels, DrainReport& report) {
  const SetName name = duty_.group.set_of(step);
  // Without the group that asks, what the others save becomes no set.
  const bool asks = duty_.group.makes_sets();
  if (asks && duty_.may_save) VARVE_TRY(duty_.may_save());
  if (asks && duty_.policy_for(step) == IfExists::refuse &&
      Catalog(store_).read(name).status().code() != StatusCode::not_found) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "restart() from it, drop it, or take another job name");
  }
  if (asks && duty_.policy_for(step) == IfExists::replace) {
    VARVE_TRY(Remarks(store_).check_may_replace(name, nullptr));
    warn_of_replaced_files(name);
  }
  // Once, also if they are saved twice.
  VARVE_ASSIGN(std::vector<SnapshotSource::Part> images, snapshots_.begin_drain(step));
  SnapshotSource source(std::move(images), calendar_seconds(), duty_.origin);
  Result<SetRecord> part = save_images(step, source, levels, report);
  if (part.status().code() != StatusCode::no_space) return part;
  if (older_sets_.make_room()) return save_images(step, source, levels, report);
  const std::string waiting = duty_.what_waits ? duty_.what_waits() : std::string();
  return waiting.empty() ? part.status() : part.status().with_context(waiting);
}

/// What a run has gone back behind it makes anew; but files that somebody has saved it may not have.
void CheckpointThread::warn_of_replaced_files(const SetName& name) {
  const Result<SetRecord> there = Catalog(store_).read(name);
  if (!there.ok() || there->run != UniqueId()) return;
  warnings_.add(Status::already_exists("the set takes the place of files that no session has saved", name.to_string(),
                                       "pin what is to stay, or have the run go by another job's name"));
}

Result<SetRecord> CheckpointThread::save_images(uint64_t step, SnapshotSource& source, const LevelDuty& levels,
                                                DrainReport& report) {
  report.bytes = source.bytes();
  progress_.begin(report.bytes);
  const double begin = report.work_begin_seconds = clock_.seconds();
  WorkMeter meter;
  auto save_metered = [&]() -> Result<SetRecord> {
    const WorkMeter::Scope metered(&meter);
    SaveOptions options = duty_.save;
    options.made_by.number = levels.number;
    options.avoided_arenas = notes_.avoided();
    options.encoders = &encoders_;
    const auto save_it = [&] {
      return save_part(store_, source, duty_.group.part_of(step), options, progress_, &index_);
    };
    if (!duty_.adapts_effort) return save_it();
    options.pace = &effort_;
    effort_.begin(report.bytes, options.thread_count, pace_.spare(duty_.has_processors, options.thread_count));
    Result<SetRecord> saved = save_it();
    report.effort = effort_.end();
    return saved;
  };
  VARVE_ASSIGN(SetRecord part, save_metered());
  report.drain_seconds = clock_.seconds() - begin;
  report.processor_seconds = meter.processor_seconds();
  report.times = meter.times();
  report.stored_bytes = part.stored_bytes();
  return part;
}

void CheckpointThread::look_at_published() {
  // The program's thread passes on what the ranks tell each other, until it ends this one.
  const bool hears_more = !stopping_;
  if (waits_little_) published_.wait_at_most(kLittleSeconds);
  published_.look(hears_more,
                  [this](DrainReport report, const LevelDuty& levels) { conclude(std::move(report), levels); });
}

/// What became of a checkpoint: told to all whom it concerns.
void CheckpointThread::conclude(DrainReport report, const LevelDuty& levels) {
  // Of a part, whose set another group has made, that was when it was there.
  if (report.end_seconds == 0) report.end_seconds = clock_.seconds();
  progress_.end(report.step, report.outcome);
  if (duty_.report) duty_.report(report);
  tell(report.step, levels, report.outcome);
  // Those who wait for it may look at all of that then.
  progress_.finish(published_.finished_step(snapshots_.newest_given_back(report.step)));
  if (report.outcome.ok()) older_sets_.make_way();
}

}  // namespace varve
