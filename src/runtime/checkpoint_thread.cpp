#include "runtime/checkpoint_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "aggregate/save_part.h"
#include "core/blocked_signals.h"
#include "core/guarded.h"
#include "core/processor_meter.h"
#include "core/sync.h"
#include "runtime/placement.h"
#include "runtime/snapshot_source.h"

namespace varve {

namespace {
/// How long a change that nobody rings for (a member that died) may stay unseen.
constexpr std::chrono::milliseconds kLookInterval(200);
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
    std::unique_lock lock(mutex_);
    if (!ended_bell_.wait_for(lock, limit, [this] { return ended_; })) progress_.cancel();
  }
  thread_.join();
}

void CheckpointThread::note_begin(uint64_t step, double seconds, const LevelDuty& levels) {
  std::lock_guard lock(mutex_);
  begin_of_[step] = {seconds, levels};
}

CheckpointThread::Begin CheckpointThread::take_begin(uint64_t step) {
  std::map<uint64_t, Begin> begun;
  {
    std::lock_guard lock(mutex_);
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
  if (duty_.spread && levels.save) duty_.spread(step, levels, outcome);
}

void CheckpointThread::allow_replacement(uint64_t step) {
  std::lock_guard lock(mutex_);
  replaceable_.insert(step);
}

IfExists CheckpointThread::policy_for(uint64_t step) {
  std::lock_guard lock(mutex_);
  return replaceable_.contains(step) ? IfExists::replace : IfExists::refuse;
}

void CheckpointThread::avoid(std::set<ArenaId> arenas) {
  std::lock_guard lock(mutex_);
  avoided_ = std::move(arenas);
}

SaveOptions CheckpointThread::save_options() {
  SaveOptions options = duty_.save;
  std::lock_guard lock(mutex_);
  options.avoided_arenas = avoided_;
  return options;
}

void CheckpointThread::give_up(uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    given_up_ = std::max(given_up_.value_or(0), step);
  }
  bell_.ring();
}

bool CheckpointThread::is_given_up(uint64_t step) {
  std::lock_guard lock(mutex_);
  return given_up_ && *given_up_ >= step;
}

void CheckpointThread::cancel() { progress_.cancel(); }

// Which checkpoint comes next

void CheckpointThread::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  while (const std::optional<uint64_t> step = await_step()) drain(*step);
  release_all();
  std::lock_guard lock(mutex_);
  ended_ = true;
  ended_bell_.notify_all();
}

std::optional<uint64_t> CheckpointThread::await_step() {
  const GentleWaking gentle;
  for (;;) {
    const uint32_t seen = bell_.count();
    const bool stopping = stopping_;
    if (const std::optional<uint64_t> step = next_step()) return step;
    if (stopping) return std::nullopt;
    bell_.wait(seen, kLookInterval);
  }
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
  progress_.end(step, why);
  settled_ = std::max(settled_.value_or(0), step);
  DrainReport report;
  report.step = step;
  report.outcome = why;
  const Begin begin = take_begin(step);
  report.begin_seconds = begin.seconds;
  if (duty_.report) duty_.report(report);
  tell(step, begin.levels, why);
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
  progress_.pass_over(step);
  settled_ = std::max(settled_.value_or(0), step);
}

void CheckpointThread::drain(uint64_t step) {
  const Begin begin = take_begin(step);
  if (!begin.levels.save) return leave_in_memory(step);
  DrainReport report;
  report.step = step;
  report.begin_seconds = begin.seconds;
  const Result<SetRecord> part = run_guarded([&] { return save(step, report); });
  report.outcome = part.status();
  // The slots are free for the next snapshot from here on, whether other groups are done or not.
  for (const auto& member : members_) {
    const Status ended = member->end_drain(step, report.outcome);
    if (!ended.ok()) warnings_.add(ended);
  }
  if (part.ok()) report.outcome = run_guarded([&] { return complete(step, *part); });
  report.end_seconds = clock_.seconds();
  progress_.end(step, report.outcome);
  settled_ = std::max(settled_.value_or(0), step);
  if (duty_.report) duty_.report(report);
  tell(step, begin.levels, report.outcome);
  if (!report.outcome.ok()) return;
  complete_ = step;
  if (!keeps_house()) return;
  note_retention(run_guarded([&] { return retention_.apply(store_, duty_.job, step, progress_); }));
}

void CheckpointThread::tidy() {
  if (!keeps_house() || thread_.joinable()) return;
  if (complete_) note_retention(retention_.apply(store_, duty_.job, *complete_, progress_));
  note_retention(retention_.finish(store_, progress_));
}

void CheckpointThread::note_retention(const Status& outcome) {
  if (outcome.ok() || outcome.code() == StatusCode::cancelled) return;
  warnings_.add(outcome.with_context("the space of older sets could not be given back"));
}

Result<SetRecord> CheckpointThread::save(uint64_t step, DrainReport& report) {
  const SetName name{duty_.job, step};
  if (duty_.may_save) VARVE_TRY(duty_.may_save());
  if (policy_for(step) == IfExists::refuse && Catalog(store_).read(name).status().code() != StatusCode::not_found) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "restart() from it, drop it, or take another job name");
  }
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
  const PartName part_name{name, duty_.run, duty_.ordinal, duty_.group_count};
  ProcessorMeter meter;
  auto save_metered = [&] {
    const ProcessorMeter::Scope metered(&meter);
    return save_part(store_, source, part_name, save_options(), progress_);
  };
  VARVE_ASSIGN(SetRecord part, save_metered());
  report.drain_seconds = clock_.seconds() - begin;
  report.processor_seconds = meter.seconds();
  report.stored_bytes = part.stored_bytes();
  return part;
}

Status CheckpointThread::complete(uint64_t step, const SetRecord& part) {
  const PartName own{part.name, duty_.run, duty_.ordinal, duty_.group_count};
  SetCompletion completion(store_, own, part, policy_for(step));
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    const bool hopeless = siblings_->any_is_done_with(step) || is_given_up(step) || progress_.cancelled();
    const Status allowed = duty_.may_save ? duty_.may_save() : Status();
    const Result<std::optional<SetCompletion::Set>> set =
        allowed.ok() ? completion.try_now() : Result<std::optional<SetCompletion::Set>>(allowed);
    if (set.ok() && *set) return {};
    if (!set.ok() || hopeless) {
      completion.withdraw().ignore("the next prune removes it");
      return set.ok() ? Status::io_error("another group could not write its part", part.name.to_string())
                      : set.status();
    }
    const uint32_t seen = bell_.count();
    bell_.wait(seen, pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace varve
