#include "runtime/checkpoint_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "core/clock.h"
#include "core/guarded.h"
#include "core/process.h"
#include "core/sync.h"
#include "engine/save.h"
#include "runtime/group_member.h"
#include "runtime/placement.h"

namespace varve {

namespace {
constexpr double kPostSeconds = 0.1;
}

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

namespace {
/// How long a change that nobody rings for (a member that died) may stay unseen.
constexpr std::chrono::milliseconds kThreadLookInterval(200);
/// Between looks whether the other groups are done: from the first to the last.
constexpr std::chrono::milliseconds kFirstPause(1), kLongestPause(200);
}  // namespace

CheckpointThread::CheckpointThread(const Store& store, CheckpointDuty duty,
                                   std::vector<std::unique_ptr<GroupMember>> members, Bell& bell, WarningList& warnings,
                                   Clock& clock)
    : store_(store),
      duty_(std::move(duty)),
      members_(std::move(members)),
      bell_(bell),
      warnings_(warnings),
      clock_(clock),
      progress_(
          [this](const GroupNews& news) {
            for (const auto& member : members_) member->post(news);
          },
          warnings, clock),
      retention_(duty_.retention),
      has_remote_(std::any_of(members_.begin(), members_.end(), [](const auto& member) { return member->remote(); })) {}

CheckpointThread::~CheckpointThread() { stop(std::chrono::hours(1)); }

Status CheckpointThread::start() {
  siblings_.emplace(duty_.siblings);
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

void CheckpointThread::stop(std::chrono::nanoseconds limit) {
  stopping_ = true;
  bell_.ring();
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    const auto ended = [this]() VARVE_REQUIRES(mutex_) { return ended_; };
    if (!ended_bell_.wait_for(mutex_, limit, ended)) progress_.cancel();
  }
  thread_.join();
}

void CheckpointThread::note_begin(uint64_t step, double seconds, const LevelDuty& levels) {
  const MutexLock lock(mutex_);
  begin_of_[step] = {seconds, levels};
}

CheckpointThread::Begin CheckpointThread::take_begin(uint64_t step) {
  std::map<uint64_t, Begin> begun;
  {
    const MutexLock lock(mutex_);
    const auto end = begin_of_.upper_bound(step);
    begun.insert(begin_of_.begin(), end);
    begin_of_.erase(begin_of_.begin(), end);
  }
  const auto found = begun.find(step);
  const Begin begin = found == begun.end() ? Begin{clock_.seconds(), {}} : found->second;
  begun.erase(step);
  for (const auto& [skipped, of_skipped] : begun) {
    tell(skipped, of_skipped.levels,
         Status::io_error("there is no snapshot of this step", SetName{duty_.job, skipped}.to_string()));
  }
  return begin;
}

void CheckpointThread::tell(uint64_t step, const LevelDuty& levels, const Status& outcome) {
  if (duty_.accept && levels.save) duty_.accept({step, levels.number, levels.everywhere, outcome});
}

void CheckpointThread::avoid(std::set<ArenaId> arenas) {
  const MutexLock lock(mutex_);
  avoided_ = std::move(arenas);
}

SaveOptions CheckpointThread::save_options(const LevelDuty& levels) {
  SaveOptions options = duty_.save;
  options.number = levels.number;
  const MutexLock lock(mutex_);
  options.avoided_arenas = avoided_;
  return options;
}

void CheckpointThread::give_up(uint64_t step) {
  {
    const MutexLock lock(mutex_);
    given_up_.insert(step);
  }
  bell_.ring();
}

bool CheckpointThread::is_given_up(uint64_t step) {
  const MutexLock lock(mutex_);
  return given_up_.contains(step);
}

void CheckpointThread::cancel() { progress_.cancel(); }

// Which checkpoint comes next

void CheckpointThread::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  {
    const GentleWaking gentle;
    std::chrono::milliseconds pause = kFirstPause;
    for (;;) {
      const uint32_t seen = bell_.count();
      const bool stopping = stopping_;
      // Members on other nodes are with one checkpoint until its set is complete.
      const bool can_go_on = published_.empty() || !has_remote_;
      if (const std::optional<uint64_t> step = can_go_on ? next_step() : std::nullopt) {
        drain(*step);
        pause = kFirstPause;
        continue;
      }
      look_at_published();
      if (stopping && published_.empty()) break;
      bell_.wait(seen, published_.empty() ? kThreadLookInterval : pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }
  release_all();
  const MutexLock lock(mutex_);
  ended_ = true;
  ended_bell_.notify_all();
}

/// The oldest step that all members have. Steps that some member will never have are given back on the way.
std::optional<uint64_t> CheckpointThread::next_step() {
  for (;;) {
    const std::optional<uint64_t> step = oldest_local_step();
    if (!step) return std::nullopt;
    bool all = true;
    const GroupMember* lacking = nullptr;
    for (const auto& member : members_) {
      if (member->remote()) continue;
      if (member->will_lack(*step)) lacking = member.get();
      const Result<std::optional<uint64_t>> next = member->next_step();
      all = all && next.ok() && *next == step;
    }
    if (!all && lacking == nullptr) return std::nullopt;
    // Only now are those on other nodes asked, as they keep us waiting until they are as far.
    for (const auto& member : members_) {
      if (member->remote() && !catch_up(*member, *step)) lacking = member.get();
    }
    if (lacking == nullptr) return step;
    lose_step(*step, Status::io_error(fmt::format("rank {} has no snapshot of this step", lacking->rank()),
                                      SetName{duty_.job, *step}.to_string()));
  }
}

/// The oldest step of which a member on this node has a snapshot, or, if there are others elsewhere who wait to be
/// told, that it has given up.
std::optional<uint64_t> CheckpointThread::oldest_local_step() {
  std::optional<uint64_t> oldest;
  auto consider = [&oldest](uint64_t step) { oldest = std::min(oldest.value_or(step), step); };
  for (const auto& member : members_) {
    if (member->remote()) continue;
    const std::optional<uint64_t> given_up = member->given_up();
    if (has_remote_ && given_up && (!settled_ || *given_up > *settled_)) consider(*given_up);
    const Result<std::optional<uint64_t>> step = member->next_step();
    if (step.ok() && *step) consider(**step);
  }
  return oldest;
}

/// Waits until a remote member is at `step` or past it; whether it has a snapshot of it.
bool CheckpointThread::catch_up(GroupMember& member, uint64_t step) {
  for (;;) {
    const Result<std::optional<uint64_t>> next = member.next_step();
    if (!next.ok() || !*next) return false;
    if (**next >= step) return !member.will_lack(step);
    lose_step(**next,
              Status::io_error("not all ranks have a snapshot of this step", SetName{duty_.job, **next}.to_string()));
  }
}

void CheckpointThread::lose_step(uint64_t step, const Status& why) {
  for (const auto& member : members_) {
    member->end_drain(step, why).ignore("a snapshot that cannot be given back is given up with its member");
  }
  settled_ = std::max(settled_.value_or(0), step);
  const Begin begin = take_begin(step);
  if (begin.levels.save) tell_others(step, why);
  DrainReport report;
  report.step = step;
  report.outcome = why;
  report.begin_seconds = begin.seconds;
  conclude(std::move(report), begin.levels);
}

/// At the end: snapshots that not all members have. Members on other nodes tell when they end.
void CheckpointThread::release_all() {
  for (const auto& member : members_) {
    for (;;) {
      const Result<std::optional<uint64_t>> step = member->next_step();
      if (!step.ok() || !*step) break;
      lose_step(**step, Status::cancelled("the session ended before all ranks had this step"));
    }
  }
}

// One checkpoint

void CheckpointThread::leave_in_memory(uint64_t step) {
  for (const auto& member : members_) {
    const Status ended = member->end_drain(step, Status());
    if (!ended.ok()) warnings_.add(ended);
  }
  settled_ = std::max(settled_.value_or(0), step);
  progress_.finish(published_.empty() ? step : published_.front().report.step - 1);
}

void CheckpointThread::drain(uint64_t step) {
  const Begin begin = take_begin(step);
  if (!begin.levels.save) return leave_in_memory(step);
  DrainReport report;
  report.step = step;
  report.begin_seconds = begin.seconds;
  const Result<SetRecord> part = run_guarded([&] { return save(step, begin.levels, report); });
  report.outcome = part.status();
  // The slots are free for the next snapshot from here on, whether other groups are done or not.
  for (const auto& member : members_) {
    const Status ended = member->end_drain(step, report.outcome);
    if (!ended.ok()) warnings_.add(ended);
  }
  progress_.wrote();
  settled_ = std::max(settled_.value_or(0), step);
  if (!part.ok()) {
    tell_others(step, report.outcome);
    return conclude(std::move(report), begin.levels);
  }
  auto completion = std::make_unique<SetCompletion>(store_, part_of(step), *part, duty_.policy_for(step));
  published_.push_back({std::move(report), begin.levels, std::move(completion), clock_.seconds()});
  look_at_published();
}

Result<SetRecord> CheckpointThread::save(uint64_t step, const LevelDuty& levels, DrainReport& report) {
  const SetName name{duty_.job, step};
  if (duty_.may_save) VARVE_TRY(duty_.may_save());
  if (duty_.policy_for(step) == IfExists::refuse &&
      Catalog(store_).read(name).status().code() != StatusCode::not_found) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "restart() from it, drop it, or take another job name");
  }
  Result<SetRecord> part = save_images(step, levels, report);
  if (part.status().code() != StatusCode::no_space) return part;
  if (const Status room = make_room(part.status()); !room.ok()) return room;
  return save_images(step, levels, report);
}

Result<SetRecord> CheckpointThread::save_images(uint64_t step, const LevelDuty& levels, DrainReport& report) {
  std::vector<SnapshotSource::Part> parts;
  for (const auto& member : members_) {
    VARVE_ASSIGN(DrainedImage* const image, member->begin_drain(step));
    parts.push_back({member->rank(), image});
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  SnapshotSource source(std::move(parts), calendar_seconds(), duty_.origin);
  report.bytes = source.bytes();
  progress_.begin(report.bytes);
  const double begin = clock_.seconds();
  ProcessorMeter meter;
  auto save_metered = [&] {
    const ProcessorMeter::Scope metered(&meter);
    return save_part(store_, source, part_of(step), save_options(levels), progress_);
  };
  VARVE_ASSIGN(SetRecord part, save_metered());
  report.drain_seconds = clock_.seconds() - begin;
  report.processor_seconds = meter.seconds();
  report.stored_bytes = part.stored_bytes();
  return part;
}

/// The disk is full: what may go goes at once. OK: it is worth another try.
Status CheckpointThread::make_room(const Status& full) {
  if (applies_retention()) {
    note_retention(run_guarded([&] { return retention_.apply(store_, progress_); }));
    if (retention_.has_space_to_give()) {
      note_retention(run_guarded([&] { return retention_.give_space_back(store_, progress_, 0); }));
      if (!retention_.has_space_to_give()) return {};
    }
  }
  const std::string waiting = duty_.what_waits ? duty_.what_waits() : std::string();
  return waiting.empty() ? full : full.with_context(waiting);
}

/// A part of ours will not come, for this reason: so nobody waits for it. If the store does not take even that, others
/// learn of it from the next exchange of all ranks, or give it up in time.
void CheckpointThread::tell_others(uint64_t step, const Status& failure) {
  if (duty_.group_count < 2) return;
  const Status told = run_guarded([&] { return publish_failure(store_, part_of(step), failure); });
  if (told.ok()) told_failures_.push_back(part_of(step));
}

/// Sees which sets have all their parts by now, or never will.
void CheckpointThread::look_at_published() {
  for (auto part = published_.begin(); part != published_.end();) {
    std::optional<Status> outcome = outcome_of(*part);
    if (!outcome) {
      ++part;
      continue;
    }
    if (!outcome->ok()) part->completion->withdraw().ignore("the next prune removes it");
    part->report.outcome = std::move(*outcome);
    Published done = std::move(*part);
    part = published_.erase(part);
    conclude(std::move(done.report), done.levels);
  }
}

/// None: it may still become complete.
std::optional<Status> CheckpointThread::outcome_of(Published& part) {
  const uint64_t step = part.report.step;
  if (duty_.may_save) {
    const Status allowed = duty_.may_save();
    if (!allowed.ok()) return allowed;
  }
  // First this, then the look: what another one has completed is there then.
  const bool hopeless = siblings_->any_is_done_with(step) || is_given_up(step) || progress_.cancelled();
  const bool too_late = clock_.seconds() - part.since > duty_.wait_seconds;
  const auto set = run_guarded([&] { return part.completion->try_now(); });
  if (set.ok() && *set) return Status();
  if (!set.ok()) return set.status();
  if (hopeless) {
    return Status::io_error("another group could not write its part", SetName{duty_.job, step}.to_string());
  }
  return too_late ? std::optional(late(part)) : std::nullopt;
}

Status CheckpointThread::late(const Published& part) const {
  std::string names;
  for (const uint32_t ordinal : part.completion->missing()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", duty_.group_name ? duty_.group_name(ordinal) : "");
  }
  return Status::busy(fmt::format("{} did not write its part of the set within {:.0f} s", names, duty_.wait_seconds),
                      SetName{duty_.job, part.report.step}.to_string(), "wait_limit= says how long to wait");
}

/// What became of a checkpoint: told to all whom it concerns.
void CheckpointThread::conclude(DrainReport report, const LevelDuty& levels) {
  report.end_seconds = clock_.seconds();
  progress_.end(report.step, report.outcome);
  if (duty_.report) duty_.report(report);
  tell(report.step, levels, report.outcome);
  // Those who wait for it may look at all of that then.
  const uint64_t newest = std::max(settled_.value_or(0), report.step);
  progress_.finish(published_.empty() ? newest : published_.front().report.step - 1);
  if (!report.outcome.ok()) return;
  any_complete_ = true;
  if (applies_retention()) note_retention(run_guarded([&] { return retention_.apply(store_, progress_); }));
}

void CheckpointThread::tidy() {
  if (thread_.joinable()) return;
  for (const PartName& failed : told_failures_) remove_failure(store_, failed).ignore("a prune removes it in time");
  told_failures_.clear();
  if (!applies_retention()) return;
  if (any_complete_) note_retention(retention_.apply(store_, progress_));
  note_retention(retention_.give_space_back(store_, progress_));
}

void CheckpointThread::note_retention(const Status& outcome) {
  if (outcome.ok() || outcome.code() == StatusCode::cancelled) return;
  warnings_.add(outcome.with_context("the space of older sets could not be given back"));
}

}  // namespace varve
