#include "runtime/level_push.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/blocked_signals.h"
#include "core/guarded.h"
#include "level/transfer.h"

namespace varve {

namespace {
/// Between looks whether the other parts of a set are there: from the first to the last.
constexpr std::chrono::milliseconds kFirstPause(200), kLongestPause(10'000);

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

/// Passes warnings on, and asks to stop.
class LevelPush::Sink final : public ProgressSink {
 public:
  explicit Sink(WarningList& warnings) : warnings_(warnings) {}
  void cancel() { cancelled_ = true; }
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status& what) override { warnings_.add(what); }
  bool cancelled() const override { return cancelled_; }

 private:
  WarningList& warnings_;
  std::atomic<bool> cancelled_{false};
};

LevelPush::LevelPush(PushDuty duty, WarningList& warnings)
    : duty_(std::move(duty)),
      warnings_(warnings),
      sink_(std::make_unique<Sink>(warnings)),
      retention_({.keep_last = duty_.keep}) {}

LevelPush::~LevelPush() { end().ignore("who wants to know ends it before"); }

Status LevelPush::start() {
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

// What comes from other threads

void LevelPush::note_set(uint64_t step, bool of_end) {
  Status late;
  {
    std::lock_guard lock(mutex_);
    if (noted_ && *noted_ >= step) return;
    last_failed_ = false;
    if (waiting_.size() < kWaitingMax || of_end) {
      waiting_.push_back(step);
      noted_ = step;
      left_out_ = false;
    } else {
      last_error_ = Status::resource_limit(
          fmt::format("the level falls behind: {} sets wait for it, and step {} is left out", waiting_.size(), step),
          duty_.level, "let sets go there less often (every=), or give it more bandwidth");
      if (!left_out_) late = last_error_;
      left_out_ = true;
    }
  }
  changed_.notify_all();
  if (!late.ok()) warnings_.add(late);
}

bool LevelPush::waits_for(uint64_t step) const {
  std::lock_guard lock(mutex_);
  return std::find(waiting_.begin(), waiting_.end(), step) != waiting_.end();
}

void LevelPush::allow_replacement(uint64_t step) {
  std::lock_guard lock(mutex_);
  replaceable_.insert(step);
}

IfExists LevelPush::policy_for(uint64_t step) const {
  std::lock_guard lock(mutex_);
  return replaceable_.contains(step) ? IfExists::replace : IfExists::refuse;
}

LevelProgress LevelPush::progress() const {
  std::lock_guard lock(mutex_);
  LevelProgress progress;
  progress.level = duty_.level;
  progress.newest = newest_;
  progress.waiting = waiting_.size() + published_count_;
  progress.last_error = last_error_;
  return progress;
}

Status LevelPush::finish(std::chrono::nanoseconds limit) {
  std::unique_lock lock(mutex_);
  last_failed_ = false;
  changed_.notify_all();
  const auto nothing_to_try = [this] { return waiting_.empty() || last_failed_; };
  if (!changed_.wait_for(lock, limit, nothing_to_try)) {
    return Status::busy(fmt::format("time ran out before {} sets were pushed", waiting_.size()), duty_.level);
  }
  return waiting_.empty() ? Status() : last_error_;
}

Status LevelPush::end() {
  sink_->cancel();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  look_for_others();
  for (const Published& part : published_) {
    part.completion->withdraw().ignore("a prune removes it when it is old");
    record(Status::io_error("not all nodes have pushed their parts", SetName{duty_.job, part.step}.to_string()));
  }
  const bool incomplete = !published_.empty();
  published_.clear();
  if (to_ != nullptr) retention_.finish(*to_, null_progress()).ignore("the next prune gives the space back");
  std::lock_guard lock(mutex_);
  published_count_ = 0;
  return incomplete || !waiting_.empty() ? last_error_ : Status();
}

// The thread

void LevelPush::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  while (const std::optional<uint64_t> step = await_turn()) {
    note_outcome(*step, run_guarded([&] { return push(*step); }));
  }
}

std::optional<uint64_t> LevelPush::await_turn() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (!waiting_.empty() && !last_failed_) return waiting_.front();
    if (published_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (changed_.wait_for(lock, pause_) == std::cv_status::timeout) pause_ = std::min(2 * pause_, kLongestPause);
    lock.unlock();
    look_for_others();
    lock.lock();
  }
}

Status LevelPush::reach() {
  if (to_ != nullptr) return {};
  VARVE_ASSIGN(to_, duty_.to());
  return {};
}

Status LevelPush::push(uint64_t step) {
  VARVE_TRY(reach());
  VARVE_ASSIGN(const bool known, has_it(step));
  if (known) {
    confirm(step);
    return {};
  }
  const IfExists if_exists = policy_for(step);
  if (duty_.count > 1) return push_part(step, if_exists);
  TransferOptions options;
  options.thread_count = duty_.thread_count;
  options.memory_bytes = duty_.memory_bytes;
  options.if_exists = if_exists;
  // What was damaged may be the same content still.
  options.check_held = if_exists == IfExists::replace;
  VARVE_TRY(copy_set(*duty_.from, *to_, {duty_.job, step}, options, *sink_).status());
  confirm(step);
  return {};
}

/// Whether the very same set is there, as it is if the run has restarted from one that went there before.
Result<bool> LevelPush::has_it(uint64_t step) const {
  const SetName name{duty_.job, step};
  if (policy_for(step) == IfExists::replace || !Catalog(*to_).has(name)) return false;
  VARVE_ASSIGN(const SetRecord mine, Catalog(*duty_.from).read(name));
  VARVE_ASSIGN(const SetRecord there, Catalog(*to_).read(name));
  return std::all_of(mine.groups.begin(), mine.groups.end(), [&there](const GroupRecord& group) {
    return std::any_of(there.groups.begin(), there.groups.end(),
                       [&group](const GroupRecord& other) { return other.root == group.root; });
  });
}

Status LevelPush::push_part(uint64_t step, IfExists if_exists) {
  const PartName name{{duty_.job, step}, duty_.run, duty_.ordinal, duty_.count};
  Result<SetRecord> part = read_part(*to_, name);
  if (part.status().code() == StatusCode::not_found) {
    TransferOptions options;
    options.thread_count = duty_.thread_count;
    options.memory_bytes = duty_.memory_bytes;
    options.check_held = if_exists == IfExists::replace;
    VARVE_ASSIGN(const TransferReport report, copy_part(*duty_.from, *to_, name, options, *sink_));
    part = report.record;
  }
  VARVE_TRY(part.status());
  pause_ = kFirstPause;
  published_.push_back({step, std::make_unique<SetCompletion>(*to_, name, *part, if_exists)});
  look_for_others();
  return {};
}

/// Sees which sets have all their parts by now.
void LevelPush::look_for_others() {
  std::vector<uint64_t> complete;
  std::erase_if(published_, [&](const Published& part) {
    const Result<std::optional<SetCompletion::Set>> set = run_guarded([&] { return part.completion->try_now(); });
    if (set.ok() && !*set) return false;
    if (set.ok()) {
      complete.push_back(part.step);
    } else {
      part.completion->withdraw().ignore("a prune removes it when it is old");
      record(set.status());
    }
    return true;
  });
  {
    std::lock_guard lock(mutex_);
    published_count_ = published_.size();
  }
  for (const uint64_t step : complete) confirm(step);
}

void LevelPush::confirm(uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    newest_ = std::max(newest_.value_or(0), step);
  }
  const Status kept = retention_.apply(*to_, duty_.job, step, *sink_);
  if (!kept.ok() && kept.code() != StatusCode::cancelled) {
    warnings_.add(kept.with_context(fmt::format("{}: the space of older sets could not be given back", duty_.level)));
  }
}

void LevelPush::note_outcome(uint64_t step, const Status& outcome) {
  if (!outcome.ok()) record(outcome);
  {
    std::lock_guard lock(mutex_);
    last_failed_ = !outcome.ok() && may_pass(outcome);
    if (!last_failed_ && !waiting_.empty() && waiting_.front() == step) waiting_.pop_front();
  }
  changed_.notify_all();
}

void LevelPush::record(const Status& failure) {
  if (failure.code() == StatusCode::cancelled) return;
  const Status what = failure.with_context(fmt::format("push to {}", duty_.level));
  bool news = false;
  {
    std::lock_guard lock(mutex_);
    news = last_error_.to_string() != what.to_string();
    last_error_ = what;
  }
  if (news) warnings_.add(what);
}

}  // namespace varve
