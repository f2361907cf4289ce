#include "level/farther_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/guarded.h"
#include "core/process.h"
#include "engine/transfer.h"
#include "level/levels.h"

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

/// Keeps warnings, and asks to stop.
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
      progress_(sink_.get()),
      retention_(duty_.retention) {}

LevelPush::~LevelPush() { end().ignore("who wants to know ends it before"); }

Status LevelPush::start() {
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

// What comes from other threads

void LevelPush::note_set(uint64_t step, uint64_t number, bool must) {
  {
    const MutexLock lock(mutex_);
    // There is a reason to try again what failed, whether this one is due or not.
    last_failed_ = false;
    ++reasons_;
    if ((must || is_due(duty_.level, number)) && noted_.insert(step).second) waiting_.push_back({step, number});
  }
  give_up_too_many();
  changed_.notify_all();
}

/// By the user's word (backlog=). What is on its way stays.
void LevelPush::give_up_too_many() {
  std::vector<uint64_t> given_up;
  {
    const MutexLock lock(mutex_);
    while (duty_.level.backlog && waiting_.size() > *duty_.level.backlog) {
      const auto oldest = waiting_.begin() + (pushing_ ? 1 : 0);
      given_up.push_back(oldest->step);
      given_up_.insert(oldest->step);
      waiting_.erase(oldest);
    }
    if (!given_up.empty()) {
      last_error_ = Status::resource_limit(fmt::format("the level falls behind, and does not get step {} (backlog={})",
                                                       given_up.back(), *duty_.level.backlog),
                                           duty_.level.name(),
                                           "let sets go there less often (every=), or give it more bandwidth");
    }
  }
  for (const uint64_t step : given_up) {
    duty_.note_given_up(Status::resource_limit(fmt::format("{} falls behind, and does not get this set (backlog={})",
                                                           duty_.level.name(), *duty_.level.backlog),
                                               SetName{duty_.job, step}.to_string()));
  }
}

void LevelPush::forget(uint64_t step) {
  {
    const MutexLock lock(mutex_);
    if (pushing_ != step) std::erase_if(waiting_, [&](const OwedSet& set) { return set.step == step; });
    refused_.erase(step);
    given_up_.insert(step);
  }
  changed_.notify_all();
}

bool LevelPush::owes(uint64_t step, uint64_t number) const {
  const MutexLock lock(mutex_);
  if (given_up_.contains(step)) return false;
  if (refused_.contains(step) || published_steps_.contains(step)) return true;
  if (std::any_of(waiting_.begin(), waiting_.end(), [&](const OwedSet& set) { return set.step == step; })) return true;
  return !knows_backlog_ && !noted_.contains(step) && is_due(duty_.level, number);
}

std::string LevelPush::what_waits() const {
  const LevelProgress now = progress();
  if (now.waiting == 0) return {};
  const std::string why = now.last_error.ok() ? std::string() : fmt::format(" ({})", now.last_error.message());
  return fmt::format("{} wait{} for {}{}", now.waiting == 1 ? "1 set" : fmt::format("{} sets", now.waiting),
                     now.waiting == 1 ? "s" : "", now.level, why);
}

OwedSteps LevelPush::owed_steps() const {
  const MutexLock lock(mutex_);
  OwedSteps owed{.steps = refused_, .is_known = looked_};
  for (const OwedSet& set : waiting_) owed.steps.insert(set.step);
  return owed;
}

LevelProgress LevelPush::progress() const {
  const MutexLock lock(mutex_);
  LevelProgress progress;
  progress.level = duty_.level.name();
  progress.newest = newest_;
  progress.waiting = waiting_.size() + refused_.size() + published_steps_.size();
  progress.last_error = last_error_;
  return progress;
}

Status LevelPush::finish(Moment end) {
  const MutexLock lock(mutex_);
  last_failed_ = false;
  ++reasons_;
  changed_.notify_all();
  const auto nothing_to_try = [this]() VARVE_REQUIRES(mutex_) { return looked_ && (waiting_.empty() || last_failed_); };
  if (!changed_.wait_until(mutex_, end, nothing_to_try)) {
    return Status::busy(fmt::format("time ran out before {} sets were pushed", waiting_.size()), duty_.level.name());
  }
  return waiting_.empty() && refused_.empty() ? Status() : last_error_;
}

Status LevelPush::end() {
  sink_->cancel();
  {
    const MutexLock lock(mutex_);
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
  if (to_ != nullptr) {
    retention_.give_space_back(*to_, null_progress()).ignore("the next prune gives the space back");
  }
  const MutexLock lock(mutex_);
  // Their parts were withdrawn: they are owed as before.
  for (const uint64_t step : published_steps_) {
    if (!given_up_.contains(step)) refused_.insert(step);
  }
  published_steps_.clear();
  return incomplete || !waiting_.empty() || !refused_.empty() ? last_error_ : Status();
}

// The thread

void LevelPush::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  // A level that is away is looked for again with the next set.
  if (const Status noted = run_guarded([&] { return note_backlog(); }); !noted.ok()) record(noted);
  {
    const MutexLock lock(mutex_);
    looked_ = true;
  }
  changed_.notify_all();
  while (const std::optional<uint64_t> step = await_turn()) {
    note_outcome(*step, run_guarded([&] { return push(*step); }));
  }
}

std::optional<uint64_t> LevelPush::next_turn() {
  if (!waiting_.empty() && !last_failed_) {
    pushing_ = waiting_.front().step;
    reasons_at_begin_ = reasons_;
  }
  return pushing_;
}

std::optional<uint64_t> LevelPush::await_turn() {
  MutexLock lock(mutex_);
  for (;;) {
    if (stopping_) return std::nullopt;
    if (const std::optional<uint64_t> next = next_turn()) return next;
    if (published_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    if (!changed_.wait_for(mutex_, pause_)) pause_ = std::min(2 * pause_, kLongestPause);
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

/// What earlier runs could not bring here comes before what this one has made.
Status LevelPush::note_backlog() {
  VARVE_TRY(reach());
  {
    const MutexLock lock(mutex_);
    if (knows_backlog_) return {};
  }
  DueSets due{.level = duty_.level, .job = duty_.job};
  if (duty_.count > 1) {
    due.wanted = [this](const SetRecord& record) {
      return duty_.complete_before && duty_.complete_before(record.name.step);
    };
  }
  VARVE_ASSIGN(const std::vector<OwedSet> owed, backlog_of(*duty_.from, *to_, due));
  take_up(owed);
  const MutexLock lock(mutex_);
  knows_backlog_ = true;
  return {};
}

void LevelPush::take_up(const std::vector<OwedSet>& owed) {
  {
    const MutexLock lock(mutex_);
    std::vector<OwedSet> older;
    for (const OwedSet& set : owed) {
      if (noted_.insert(set.step).second) older.push_back(set);
    }
    // The first may be on its way.
    waiting_.insert(waiting_.begin() + (pushing_ ? 1 : 0), older.begin(), older.end());
  }
  give_up_too_many();
}

Status LevelPush::bring_all(ProgressSink& progress) {
  progress_ = &progress;
  Status blocked = run_guarded([&] { return note_backlog(); });
  if (!blocked.ok()) {
    // Whatever is due may be owed.
    VARVE_ASSIGN(const std::vector<OwedSet> owed,
                 backlog_of_unreached(*duty_.from, {.level = duty_.level, .job = duty_.job}));
    take_up(owed);
  }
  MutexLock lock(mutex_);
  looked_ = true;
  if (!blocked.ok()) return blocked;
  Status failure;
  while (const std::optional<uint64_t> step = next_turn()) {
    lock.unlock();
    const Status pushed =
        progress.cancelled() ? Status::cancelled("stopped") : run_guarded([&] { return push(*step); });
    if (failure.ok()) failure = pushed;
    note_outcome(*step, pushed);
    lock.lock();
  }
  lock.unlock();
  return owed_steps().empty() ? Status() : failure;
}

Status LevelPush::push(uint64_t step) {
  VARVE_TRY(note_backlog());
  VARVE_ASSIGN(const bool known, has_it(step));
  if (known) {
    confirm(step);
    return {};
  }
  const IfExists if_exists = duty_.policy_for(step);
  if (duty_.count > 1) return push_part(step, if_exists);
  TransferOptions options;
  options.thread_count = duty_.thread_count;
  options.memory_bytes = duty_.memory_bytes;
  options.if_exists = if_exists;
  // What was damaged may be the same content still.
  options.check_held = if_exists == IfExists::replace;
  const SetName name{duty_.job, step};
  VARVE_ASSIGN(const TransferReport report, copy_set(*duty_.from, *to_, name, options, *progress_));
  if (duty_.note_copied) duty_.note_copied(name, report.sent_bytes);
  confirm(step);
  return {};
}

/// Whether the very same set is there, as it is if the run has restarted from one that went there before.
Result<bool> LevelPush::has_it(uint64_t step) const {
  const SetName name{duty_.job, step};
  if (duty_.policy_for(step) == IfExists::replace || !Catalog(*to_).has(name)) return false;
  VARVE_ASSIGN(const SetRecord mine, Catalog(*duty_.from).read(name));
  VARVE_ASSIGN(const SetRecord there, Catalog(*to_).read(name));
  return has_set_of(*to_, there, *duty_.from, mine);
}

Status LevelPush::push_part(uint64_t step, IfExists if_exists) {
  const PartName name{{duty_.job, step}, duty_.run, duty_.ordinal, duty_.count};
  Result<SetRecord> part = read_part(*to_, name);
  if (part.status().code() == StatusCode::not_found) {
    TransferOptions options;
    options.thread_count = duty_.thread_count;
    options.memory_bytes = duty_.memory_bytes;
    options.check_held = if_exists == IfExists::replace;
    VARVE_ASSIGN(const TransferReport report, copy_part(*duty_.from, *to_, name, options, *progress_));
    part = report.record;
  }
  VARVE_TRY(part.status());
  pause_ = kFirstPause;
  published_.push_back({step, std::make_unique<SetCompletion>(*to_, name, *part, if_exists)});
  {
    const MutexLock lock(mutex_);
    published_steps_.insert(step);
  }
  look_for_others();
  return {};
}

/// Sees which sets have all their parts by now.
void LevelPush::look_for_others() {
  std::vector<uint64_t> complete, failed;
  std::erase_if(published_, [&](const Published& part) {
    const Result<std::optional<SetCompletion::Set>> set = run_guarded([&] { return part.completion->try_now(); });
    if (set.ok() && !*set) return false;
    if (set.ok()) {
      complete.push_back(part.step);
    } else {
      part.completion->withdraw().ignore("a prune removes it when it is old");
      record(set.status());
      failed.push_back(part.step);
    }
    return true;
  });
  {
    const MutexLock lock(mutex_);
    for (const uint64_t step : complete) published_steps_.erase(step);
    for (const uint64_t step : failed) published_steps_.erase(step);
    for (const uint64_t step : failed) {
      if (!given_up_.contains(step)) refused_.insert(step);
    }
  }
  for (const uint64_t step : complete) confirm(step);
}

void LevelPush::confirm(uint64_t step) {
  {
    const MutexLock lock(mutex_);
    newest_ = std::max(newest_.value_or(0), step);
  }
  const Status kept = retention_.apply(*to_, *progress_);
  if (!kept.ok() && kept.code() != StatusCode::cancelled) {
    warnings_.add(
        kept.with_context(fmt::format("{}: the space of older sets could not be given back", duty_.level.name())));
  }
}

void LevelPush::note_outcome(uint64_t step, const Status& outcome) {
  if (!outcome.ok()) record(outcome);
  // What is gone from the nearest store is owed no more; all else is, and the next run tries it again.
  const bool gone = outcome.code() == StatusCode::not_found &&
                    Catalog(*duty_.from).read({duty_.job, step}).status().code() == StatusCode::not_found;
  {
    const MutexLock lock(mutex_);
    pushing_.reset();
    const bool passes = !outcome.ok() && may_pass(outcome);
    // What began before there was a new reason may have failed for what is over by now.
    last_failed_ = passes && reasons_at_begin_ == reasons_;
    if (!passes) std::erase_if(waiting_, [&](const OwedSet& set) { return set.step == step; });
    if (!outcome.ok() && !passes && !gone && !given_up_.contains(step)) refused_.insert(step);
  }
  changed_.notify_all();
}

void LevelPush::record(const Status& failure) {
  if (failure.code() == StatusCode::cancelled) return;
  const Status what = failure.with_context(fmt::format("push to {}", duty_.level.name()));
  bool news = false;
  {
    const MutexLock lock(mutex_);
    news = last_error_.to_string() != what.to_string();
    last_error_ = what;
  }
  if (news) warnings_.add(what);
}

namespace {
/// How long a store may take to be made by another rank, and how often to look.
constexpr std::chrono::milliseconds kMakingPatience(5000), kMakingPause(50);

/// Opens a level that another rank makes, perhaps just now. busy: it is not there yet.
Result<std::unique_ptr<LevelStore>> open_when_made(const std::function<Result<std::unique_ptr<LevelStore>>()>& open) {
  Status failure;
  for (std::chrono::milliseconds waited(0); waited < kMakingPatience; waited += kMakingPause) {
    Result<std::unique_ptr<LevelStore>> opened = open();
    failure = opened.status();
    // Of several places, some may be made.
    if (failure.code() != StatusCode::not_found && failure.code() != StatusCode::invalid_argument) return opened;
    sleep_for(kMakingPause);
  }
  return failure.with_code(StatusCode::busy);
}
}  // namespace

Status FartherLevel::start() {
  if (world_.has_node_level ? !world_.speaks_for_node() : world_.ranks.rank() != 0) return {};
  PushDuty duty;
  duty.from = all_.nearest().opened();
  duty.to = store_to_push_to();
  duty.level = spec_;
  duty.job = world_.job;
  duty.run = world_.run;
  if (world_.has_node_level) {
    duty.ordinal = world_.seat.own_node;
    duty.count = static_cast<uint32_t>(world_.seat.nodes.size());
    duty.complete_before = [this](uint64_t step) { return world_.sets.is_complete(step); };
  }
  duty.policy_for = [this](uint64_t step) { return policy_for(step); };
  duty.note_given_up = [this](const Status& what) { world_.warnings.add(what); };
  duty.retention = rules(world_.job);
  // One of those who bring parts applies the rule for all.
  if (duty.ordinal > 0) duty.retention.keep.reset();
  duty.retention.owed = [this](uint64_t step, uint64_t number) { return all_.owes_behind(*this, step, number); };
  duty.thread_count = world_.push_threads;
  duty.memory_bytes = world_.memory_bytes;
  duty.prepare_thread = world_.prepare_thread;
  push_ = std::make_unique<LevelPush>(std::move(duty), world_.warnings);
  return push_->start();
}

/// One that is away is opened when it is back, for the push alone.
std::function<Result<const Store*>()> FartherLevel::store_to_push_to() {
  if (opened() != nullptr) return [this]() -> Result<const Store*> { return &slowed(); };
  // The program may be in another folder by then.
  const std::string path = spec_.is_on_servers() ? name() : std::filesystem::absolute(own_path()).string();
  return [this, path, own = std::shared_ptr<LevelStore>()]() mutable -> Result<const Store*> {
    // One rank makes it, and the others wait for that.
    if (speaks()) VARVE_TRY(LevelStore::prepare(world_.files, spec_, path, world_.reach).status());
    VARVE_ASSIGN(
        own, open_when_made([&] { return LevelStore::open(world_.files, spec_, path, world_.reach, world_.clock); }));
    return &own->slowed();
  };
}

void FartherLevel::accept(const NewSet& set) {
  if (push_ && set.outcome.ok()) push_->note_set(set.step, set.number, set.everywhere);
}

void FartherLevel::forget(uint64_t step) {
  if (push_) push_->forget(step);
}

bool FartherLevel::owes(uint64_t step, uint64_t number) const { return push_ && push_->owes(step, number); }

std::string FartherLevel::what_waits() const { return push_ ? push_->what_waits() : std::string(); }

LevelProgress FartherLevel::progress(const RunNews&) const {
  return push_ ? push_->progress() : LevelProgress{.level = name()};
}

Status FartherLevel::finish(const std::optional<NewSet>& last, Moment end) {
  if (!push_) return {};
  if (last) push_->note_set(last->step, last->number, /*must=*/true);
  return push_->finish(end);
}

Status FartherLevel::end() { return push_ ? push_->end() : Status(); }

OwedSteps FartherLevel::bring_all(const std::string& job, Onward& onward, ProgressSink& progress) {
  WarningList failures;  // told in `onward` instead
  PushDuty duty;
  duty.from = all_.nearest().opened();
  duty.to = [this]() -> Result<const Store*> {
    if (is_away()) VARVE_TRY(reach(/*makes=*/true));
    return &slowed();
  };
  duty.level = spec_;
  duty.job = job;
  duty.policy_for = [](uint64_t) { return IfExists::refuse; };
  duty.note_given_up = [&](const Status& what) { onward.given_up.push_back(what); };
  duty.note_copied = [&](const SetName& set, uint64_t bytes) { onward.copies.push_back({name(), set, bytes}); };
  duty.retention.job = job;  // without `keep`: it comes after all levels have what they can have
  LevelPush push(std::move(duty), failures);
  Status failure = push.bring_all(progress);
  OwedSteps owed = push.owed_steps();
  if (!failure.ok() && failure.code() != StatusCode::cancelled) {
    const size_t count = owed.steps.size();
    if (count > 0) {
      const std::string sets = count == 1 ? "1 set is" : fmt::format("{} sets are", count);
      failure = failure.with_context(
          fmt::format("{} in {}, and still to be copied to {}", sets, all_.nearest().name(), name()));
    }
    onward.failures.push_back(std::move(failure));
  }
  return owed;
}

}  // namespace varve
