#include "level/farther_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "core/guarded.h"
#include "core/process.h"
#include "engine/transfer.h"
#include "level/levels.h"
#include "store/remarks.h"

namespace varve {

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
      retention_(duty_.retention),
      queue_(duty_.level) {}

LevelPush::~LevelPush() { end(Ending::of_run).ignore("who wants to know ends it before"); }

Status LevelPush::start() {
  const BlockedSignals blocked;
  VARVE_ASSIGN(thread_, start_thread([this] { run(); }));
  return {};
}

void LevelPush::note_set(uint64_t step, uint64_t number, bool must) { give_up(queue_.note(step, number, must)); }

void LevelPush::give_up(const std::vector<uint64_t>& steps) const {
  // What it has of earlier runs is not known until it has been reached.
  const bool is_compared = queue_.knows_backlog();
  for (const uint64_t step : steps) {
    const Status why = Status::resource_limit(
        fmt::format("{} falls behind, and does not get this set{} (backlog={})", duty_.level.name(),
                    is_compared ? "" : ", unless it is there already", *duty_.level.backlog),
        SetName{duty_.job, step}.to_string());
    duty_.note_given_up(why);
    tell({.what = LevelNews::What::given_up, .step = step, .why = why});
  }
}

void LevelPush::tell(LevelNews news) const {
  if (!duty_.note_news) return;
  news.level = duty_.level.name();
  duty_.note_news(news);
}

Status LevelPush::end(Ending ending) {
  sink_->cancel();
  queue_.stop();
  if (thread_.joinable()) thread_.join();
  look_for_others();
  for (const uint64_t step : parts_.withdraw()) {
    if (ending == Ending::pause) continue;  // they come again
    record(Status::io_error("not all nodes have pushed their parts", SetName{duty_.job, step}.to_string()), step);
  }
  // Once: when this is destroyed, whoever tells whether it may may be gone.
  const Store* const to = std::exchange(to_, nullptr);
  if (to != nullptr && may_bring().ok()) {
    // What had to stay for a level behind this one, which has ended before, may go now.
    if (any_is_new_) retention_.apply(*to, null_progress()).ignore("the next set makes the older ones go");
    retention_.give_space_back(*to, null_progress()).ignore("the next prune gives the space back");
  }
  return queue_.end();
}

// The thread

void LevelPush::run() {
  if (duty_.prepare_thread) duty_.prepare_thread();
  // A level that is away is looked for again with the next set.
  const auto look_for_backlog = [this] {
    const Status noted = run_guarded([&] { return note_backlog(); });
    if (noted.ok()) return;
    record(noted);
    give_up(queue_.take_up({}, /*all=*/false));
  };
  look_for_backlog();
  for (;;) {
    const PushQueue::Turn turn = queue_.await(parts_.pause());
    if (turn.stopped) return;
    if (turn.looks) {
      look_for_backlog();
      continue;
    }
    if (turn.step) {
      const Moment begin = MonotonicClock::now();
      const Status pushed = run_guarded([&] { return push(*turn.step); });
      if (pushed.ok()) set_seconds_ = std::chrono::duration<double>(MonotonicClock::now() - begin).count();
      note_outcome(*turn.step, pushed);
      continue;
    }
    if (turn.timed_out) parts_.lengthen_pause();
    look_for_others();
  }
}

std::optional<double> LevelPush::set_seconds() const {
  const double seconds = set_seconds_;
  return seconds > 0 ? std::optional(seconds) : std::nullopt;
}

Status LevelPush::reach() {
  if (to_ != nullptr) return {};
  VARVE_ASSIGN(to_, duty_.to());
  return {};
}

/// What earlier runs could not bring here comes before what this one has made.
Status LevelPush::note_backlog() {
  VARVE_TRY(reach());
  if (queue_.knows_backlog()) return {};
  if (duty_.note_reached) VARVE_TRY(duty_.note_reached(*to_));
  DueSets due{.level = duty_.level, .job = duty_.job};
  due.wanted = [this](const SetRecord& record) {
    const uint64_t step = record.name.step;
    if (duty_.is_made_anew && duty_.is_made_anew(step)) return false;
    if (duty_.count == 1) return record.has_all_ranks();
    return duty_.complete_before && duty_.complete_before(step);
  };
  due.replaceable = [this](uint64_t step) { return duty_.policy_for(step) == IfExists::replace; };
  VARVE_ASSIGN(const LevelBacklog backlog, backlog_of(*duty_.from, *to_, due));
  give_up(queue_.take_up(backlog, /*all=*/true));
  return {};
}

Status LevelPush::bring_all(ProgressSink& progress) {
  progress_ = &progress;
  Status blocked = run_guarded([&] { return note_backlog(); });
  if (!blocked.ok()) {
    // Whatever is due may be owed.
    VARVE_ASSIGN(const LevelBacklog backlog,
                 backlog_of_unreached(*duty_.from, {.level = duty_.level, .job = duty_.job}));
    give_up(queue_.take_up(backlog, /*all=*/false));
    return blocked;
  }
  Status failure;
  while (const std::optional<uint64_t> step = queue_.next()) {
    const Status pushed =
        progress.cancelled() ? Status::cancelled("stopped") : run_guarded([&] { return push(*step); });
    if (failure.ok()) failure = pushed;
    note_outcome(*step, pushed);
  }
  return owed_steps().empty() ? Status() : failure;
}

namespace {
/// Whether the level has the very same set, as it does if the run has restarted from one that went there before.
Result<bool> level_has_set(const PushDuty& duty, const Store& to, const SetName& name) {
  if (duty.policy_for(name.step) == IfExists::replace) return false;
  const Result<SetRecord> there = Catalog(to).read(name);
  if (there.status().code() == StatusCode::not_found) return false;
  VARVE_TRY(there.status());
  VARVE_ASSIGN(const SetRecord mine, Catalog(*duty.from).read(name));
  return has_set_of(to, *there, *duty.from, mine);
}

TransferOptions transfer_options(const PushDuty& duty, IfExists if_exists) {
  TransferOptions options;
  options.thread_count = duty.thread_count;
  options.memory_bytes = duty.memory_bytes;
  // What was damaged may be the same content still.
  options.check_held = if_exists == IfExists::replace;
  options.may_publish = duty.may_bring;
  return options;
}
}  // namespace

Status LevelPush::push(uint64_t step) {
  tell({.what = LevelNews::What::begun, .step = step});
  VARVE_TRY(note_backlog());
  VARVE_TRY(may_bring());
  const SetName name{duty_.job, step};
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, to_->backend().watch_power());
  VARVE_ASSIGN(const bool known, level_has_set(duty_, *to_, name));
  if (known) {
    // An attempt that ended at its sync may have left it there, and the nearest store may drop its own once it is here.
    VARVE_TRY(Catalog(*to_).make_durable(duty_.job));
    confirm(step);
    return {};
  }
  const IfExists if_exists = duty_.policy_for(step);
  if (if_exists == IfExists::replace) VARVE_TRY(check_pin(name));
  if (duty_.count > 1) return push_part(step, if_exists);
  TransferOptions options = transfer_options(duty_, if_exists);
  options.if_exists = if_exists;
  VARVE_ASSIGN(const TransferReport report, copy_set(*duty_.from, *to_, name, options, *progress_));
  if (duty_.note_copied) duty_.note_copied(name, report.sent_bytes);
  confirm(step, report.sent_bytes);
  return {};
}

/// already_exists, so that the others' turns come: the set there is pinned, and not the same.
Status LevelPush::check_pin(const SetName& name) const {
  VARVE_ASSIGN(const SetRecord mine, Catalog(*duty_.from).read(name));
  const Status may = Remarks(*to_).check_may_replace(name, &mine);
  return may.code() == StatusCode::permission_denied ? may.with_code(StatusCode::already_exists) : may;
}

Status LevelPush::push_part(uint64_t step, IfExists if_exists) {
  const PartName name{{duty_.job, step}, duty_.run, duty_.ordinal, duty_.count};
  VARVE_ASSIGN(const TransferReport report,
               copy_part(*duty_.from, *to_, name, transfer_options(duty_, if_exists), *progress_));
  parts_.add(step, std::make_unique<SetCompletion>(*to_, name, report.record, if_exists, PartNames::reused));
  queue_.note_published(step);
  look_for_others();
  return {};
}

Status LevelPush::may_bring() const { return duty_.may_bring ? duty_.may_bring() : Status(); }

/// Sees which sets have all their parts by now.
void LevelPush::look_for_others() {
  if (parts_.empty() || !may_bring().ok()) return;
  const WaitingParts::News news = parts_.look();
  std::vector<uint64_t> failed;
  for (const auto& [step, why] : news.failed) {
    record(why, step);
    failed.push_back(step);
  }
  queue_.note_parts(news.complete, failed);
  for (const uint64_t step : news.complete) confirm(step);
}

void LevelPush::confirm(uint64_t step, uint64_t sent_bytes) {
  any_is_new_ = true;
  queue_.note_there(step);
  if (duty_.note_there) duty_.note_there(step);
  tell({.what = LevelNews::What::arrived, .step = step, .sent_bytes = sent_bytes});
  const Status may = may_bring();
  const Status kept = may.ok() ? retention_.apply(*to_, *progress_) : Status();
  if (!kept.ok() && kept.code() != StatusCode::cancelled) {
    warnings_.add(
        kept.with_context(fmt::format("{}: the space of older sets could not be given back", duty_.level.name())));
  }
}

void LevelPush::note_outcome(uint64_t step, const Status& outcome) {
  if (!outcome.ok()) record(outcome, step);
  // What is gone from the nearest store is owed no more; all else is, and the next run tries it again.
  const bool gone = outcome.code() == StatusCode::not_found &&
                    Catalog(*duty_.from).read({duty_.job, step}).status().code() == StatusCode::not_found;
  queue_.note_outcome(step, outcome, gone);
}

void LevelPush::record(const Status& failure, std::optional<uint64_t> step) {
  if (failure.code() == StatusCode::cancelled) return;
  tell({.what = LevelNews::What::failed, .step = step, .why = failure});
  const Status what = failure.with_context(fmt::format("push to {}", duty_.level.name()));
  if (queue_.note_failure(what)) warnings_.add(what);
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
  if (world_.has_node_level ? !world_.speaks_for_node() : world_.ranks.rank() != 0) {
    ask_nothing();
    return {};
  }
  PushDuty duty;
  duty.from = all_.nearest().access().opened();
  duty.to = store_to_push_to();
  duty.level = spec_;
  duty.job = world_.job;
  duty.run = world_.run;
  if (world_.has_node_level) {
    duty.ordinal = world_.seat.own_node;
    duty.count = static_cast<uint32_t>(world_.seat.nodes.size());
    duty.complete_before = [this](uint64_t step) { return world_.sets.is_complete(step); };
  }
  duty.may_bring = world_.may_bring;
  if (is_unasked()) duty.note_reached = [this](const Store& store) { return is_unasked() ? ask(store) : Status(); };
  duty.policy_for = [this](uint64_t step) { return policy_for(step); };
  duty.is_made_anew = [this](uint64_t step) { return all_.nearest().is_made_anew(step); };
  duty.note_there = [this](uint64_t step) { note_replaced(step); };
  duty.note_given_up = [this](const Status& what) { world_.warnings.add(what); };
  duty.note_news = world_.note_level;
  duty.retention = rules(world_.job);
  // One of those who bring parts applies the rule for all.
  if (duty.ordinal > 0) duty.retention.keep.reset();
  duty.retention.owed = [this](uint64_t step, uint64_t number) { return all_.owes_behind(*this, step, number); };
  duty.thread_count = world_.work.push_threads;
  duty.memory_bytes = world_.work.memory_bytes;
  duty.prepare_thread = world_.work.prepare_thread;
  push_ = std::make_unique<LevelPush>(std::move(duty), world_.warnings);
  pauses_ = false;
  for (const NewSet& set : std::exchange(while_paused_, {})) accept(set);
  return push_->start();
}

/// One that is away is opened when it is back, for the push alone.
std::function<Result<const Store*>()> FartherLevel::store_to_push_to() {
  if (access().opened() != nullptr) return [this]() -> Result<const Store*> { return &access().slowed(); };
  // The program may be in another folder by then.
  const std::string path = spec_.is_on_servers() ? name() : std::filesystem::absolute(access().own_path()).string();
  return [this, path, own = std::shared_ptr<LevelStore>()]() mutable -> Result<const Store*> {
    // One rank makes it, and the others wait for that.
    if (access().speaks()) VARVE_TRY(LevelStore::prepare(world_.files, spec_, path, world_.reach).status());
    VARVE_ASSIGN(
        own, open_when_made([&] { return LevelStore::open(world_.files, spec_, path, world_.reach, world_.clock); }));
    return &own->slowed();
  };
}

void FartherLevel::accept(const NewSet& set) {
  if (!push_ || !set.outcome.ok()) return;
  if (pauses_) {
    while_paused_.push_back(set);
  } else {
    push_->note_set(set.step, set.number, set.everywhere);
  }
}

void FartherLevel::forget(uint64_t step) {
  if (push_) push_->forget(step);
}

bool FartherLevel::owes(uint64_t step, uint64_t number) const { return push_ && push_->owes(step, number); }

bool FartherLevel::has_overlooked(uint64_t step, uint64_t number) {
  return push_ && push_->has_overlooked(step, number);
}

LevelProgress FartherLevel::progress(const RunNews&) const {
  return push_ ? push_->progress() : LevelProgress{.level = name()};
}

Status FartherLevel::finish(const std::optional<NewSet>& last, Moment end) {
  if (!push_) return {};
  if (last) push_->note_set(last->step, last->number, /*must=*/true);
  if (const Status late = check_in_time(); !late.ok()) return late;
  return push_->finish(end);
}

/// busy: the run is ended before what waits could be there, so that nobody need wait for it.
Status FartherLevel::check_in_time() const {
  const std::optional<double> seconds = push_->set_seconds();
  if (!world_.end || !seconds) return {};
  const double left = std::chrono::duration<double>(*world_.end - MonotonicClock::now()).count();
  const uint64_t waiting = push_->progress().waiting;
  const double wanted = *seconds * static_cast<double>(waiting);
  if (wanted <= left) return {};
  return Status::busy(
      fmt::format("{} would take about {:.1f} s, and {:.1f} s are left",
                  waiting == 1 ? "1 set" : fmt::format("{} sets", waiting), wanted, std::max(0.0, left)),
      name());
}

Status FartherLevel::end(Ending ending) {
  pauses_ = ending == Ending::pause;
  return push_ ? push_->end(ending) : Status();
}

OwedSteps FartherLevel::bring_all(const std::string& job, const std::function<Status()>& may_bring, Onward& onward,
                                  ProgressSink& progress) {
  WarningList failures;  // told in `onward` instead
  PushDuty duty;
  duty.from = all_.nearest().access().opened();
  duty.to = [this]() -> Result<const Store*> {
    if (access().is_away()) VARVE_TRY(access().reach(/*makes=*/true));
    return &access().slowed();
  };
  duty.level = spec_;
  duty.job = job;
  duty.may_bring = may_bring;
  duty.policy_for = [](uint64_t) { return IfExists::refuse; };
  duty.is_made_anew = [this](uint64_t step) { return all_.nearest().is_made_anew(step); };
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
