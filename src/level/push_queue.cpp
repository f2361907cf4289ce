#include "level/push_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace varve {

namespace {
/// Whether trying again may help.
bool may_pass(const Status& failure) {
  switch (failure.code()) {
    case StatusCode::io_error:
    case StatusCode::no_space:
    case StatusCode::permission_denied:
    case StatusCode::busy:
    case StatusCode::resource_limit:
    case StatusCode::cancelled: return true;
    case StatusCode::ok:
    case StatusCode::invalid_argument:
    case StatusCode::not_found:
    case StatusCode::already_exists:
    case StatusCode::corrupt:
    case StatusCode::unsupported:
    case StatusCode::internal: return false;
  }
  return false;
}
}  // namespace

std::vector<uint64_t> PushQueue::note(uint64_t step, uint64_t number, bool must) {
  std::vector<uint64_t> given_up;
  {
    const MutexLock lock(mutex_);
    // There is a reason to try again what failed, whether this one is due or not.
    attempts_.last_failed = false;
    ++attempts_.reasons;
    seen_.emplace(step, number);
    if ((must || is_due(level_, number)) && noted_.insert(step).second) waiting_.push_back({step, number});
    given_up = give_up_too_many();
  }
  changed_.notify_all();
  return given_up;
}

/// By the user's word (backlog=). What is on its way stays.
std::vector<uint64_t> PushQueue::give_up_too_many() {
  std::vector<uint64_t> given_up;
  while (level_.backlog && waiting_.size() > *level_.backlog) {
    const auto oldest = waiting_.begin() + (pushing_ ? 1 : 0);
    given_up.push_back(oldest->step);
    given_up_.insert(oldest->step);
    waiting_.erase(oldest);
  }
  if (!given_up.empty()) {
    last_error_ =
        Status::resource_limit(fmt::format("the level falls behind, and does not get step {} (backlog={})",
                                           step_text(given_up.back()), *level_.backlog),
                               level_.name(), "let sets go there less often (every=), or give it more bandwidth");
  }
  return given_up;
}

void PushQueue::forget(uint64_t step) {
  {
    const MutexLock lock(mutex_);
    if (pushing_ != step) std::erase_if(waiting_, [&](const OwedSet& set) { return set.step == step; });
    refused_.erase(step);
    given_up_.insert(step);
  }
  changed_.notify_all();
}

bool PushQueue::owes(uint64_t step, uint64_t number) const {
  const MutexLock lock(mutex_);
  if (given_up_.contains(step)) return false;
  if (refused_.contains(step) || published_.contains(step)) return true;
  if (std::any_of(waiting_.begin(), waiting_.end(), [&](const OwedSet& set) { return set.step == step; })) return true;
  return backlog_ != Backlog::known && !noted_.contains(step) && is_due(level_, number);
}

bool PushQueue::has_overlooked(uint64_t step, uint64_t number) {
  {
    const MutexLock lock(mutex_);
    if (backlog_ == Backlog::not_looked_for || !is_due(level_, number)) return false;
    if (seen_.contains({step, number})) return false;
    // Else it is looked for with the next set in any case.
    if (backlog_ != Backlog::known) return true;
    backlog_ = Backlog::not_known;
    is_to_look_ = true;
  }
  changed_.notify_all();
  return true;
}

OwedSteps PushQueue::owed_steps() const {
  const MutexLock lock(mutex_);
  OwedSteps owed{.steps = refused_, .is_known = backlog_ != Backlog::not_looked_for, .seen = seen_};
  for (const OwedSet& set : waiting_) owed.steps.insert(set.step);
  return owed;
}

LevelProgress PushQueue::progress() const {
  const MutexLock lock(mutex_);
  LevelProgress progress;
  progress.level = level_.name();
  progress.newest = newest_;
  progress.waiting = waiting_.size() + refused_.size() + published_.size();
  progress.last_error = last_error_;
  return progress;
}

Status PushQueue::try_all(Moment end) {
  const MutexLock lock(mutex_);
  attempts_.last_failed = false;
  ++attempts_.reasons;
  attempts_.is_one_more_left = true;
  changed_.notify_all();
  const auto nothing_to_try = [this]() VARVE_REQUIRES(mutex_) {
    return backlog_ != Backlog::not_looked_for && (waiting_.empty() || attempts_.last_failed);
  };
  if (!changed_.wait_until(mutex_, end, nothing_to_try)) {
    return Status::busy(fmt::format("time ran out before {} sets were pushed", waiting_.size()), level_.name());
  }
  return waiting_.empty() && refused_.empty() ? Status() : last_error_;
}

void PushQueue::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

std::vector<uint64_t> PushQueue::take_up(const LevelBacklog& backlog, bool all) {
  std::vector<uint64_t> given_up;
  {
    const MutexLock lock(mutex_);
    std::vector<OwedSet> older;
    for (const OwedSet& set : backlog.owed) {
      // Another one that has taken the place of what was given up, or was brought there, has not been seen.
      if (!seen_.contains({set.step, set.number})) given_up_.erase(set.step);
      noted_.insert(set.step);
      const bool waits = std::any_of(waiting_.begin(), waiting_.end(),
                                     [&](const OwedSet& waiting) { return waiting.step == set.step; });
      const bool is_settled =
          given_up_.contains(set.step) || refused_.contains(set.step) || published_.contains(set.step);
      if (!waits && !is_settled) older.push_back(set);
    }
    seen_.insert(backlog.seen.begin(), backlog.seen.end());
    // The first may be on its way.
    waiting_.insert(waiting_.begin() + (pushing_ ? 1 : 0), older.begin(), older.end());
    backlog_ = all ? Backlog::known : Backlog::not_known;
    given_up = give_up_too_many();
  }
  changed_.notify_all();
  return given_up;
}

bool PushQueue::knows_backlog() const {
  const MutexLock lock(mutex_);
  return backlog_ == Backlog::known;
}

std::optional<uint64_t> PushQueue::next() {
  const MutexLock lock(mutex_);
  return next_turn();
}

std::optional<uint64_t> PushQueue::next_turn() {
  if (!waiting_.empty() && !attempts_.last_failed) {
    pushing_ = waiting_.front().step;
    attempts_.reasons_at_begin = attempts_.reasons;
  }
  return pushing_;
}

PushQueue::Turn PushQueue::await(std::optional<std::chrono::milliseconds> pause) {
  const MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return {.stopped = true};
    if (std::exchange(is_to_look_, false)) return {.looks = true};
    if (const std::optional<uint64_t> step = next_turn()) return {.step = step};
    if (pause) return {.timed_out = !changed_.wait_for(mutex_, *pause)};
    changed_.wait(mutex_);
  }
}

void PushQueue::note_outcome(uint64_t step, const Status& outcome, bool gone) {
  {
    const MutexLock lock(mutex_);
    pushing_.reset();
    const bool passes = !outcome.ok() && may_pass(outcome);
    // What began before there was a new reason may have failed for what is over by now.
    attempts_.last_failed = passes && attempts_.reasons_at_begin == attempts_.reasons;
    if (attempts_.last_failed && std::exchange(attempts_.is_one_more_left, false)) attempts_.last_failed = false;
    if (!passes) std::erase_if(waiting_, [&](const OwedSet& set) { return set.step == step; });
    if (!outcome.ok() && !passes && !gone && !given_up_.contains(step)) refused_.insert(step);
  }
  changed_.notify_all();
}

void PushQueue::note_published(uint64_t step) {
  const MutexLock lock(mutex_);
  published_.insert(step);
}

void PushQueue::note_parts(const std::vector<uint64_t>& complete, const std::vector<uint64_t>& failed) {
  const MutexLock lock(mutex_);
  for (const uint64_t step : complete) published_.erase(step);
  for (const uint64_t step : failed) {
    published_.erase(step);
    if (!given_up_.contains(step)) refused_.insert(step);
  }
}

void PushQueue::note_there(uint64_t step) {
  const MutexLock lock(mutex_);
  newest_ = std::max(newest_.value_or(0), step);
}

bool PushQueue::note_failure(const Status& failure) {
  const MutexLock lock(mutex_);
  const bool news = last_error_.to_string() != failure.to_string();
  last_error_ = failure;
  return news;
}

Status PushQueue::end() {
  const MutexLock lock(mutex_);
  const bool incomplete = !published_.empty();
  for (const uint64_t step : published_) {
    if (!given_up_.contains(step)) refused_.insert(step);
  }
  published_.clear();
  return incomplete || !waiting_.empty() || !refused_.empty() ? last_error_ : Status();
}

}  // namespace varve
