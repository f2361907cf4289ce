#include "level/farther_level.h"

#include <fmt/format.h>

#include <filesystem>

#include "level/levels.h"

namespace varve {

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
  return Status(StatusCode::busy, std::string(failure.message()), std::string(failure.subject()),
                std::string(failure.hint()));
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
  // One of those who bring parts keeps house for all.
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
    if (speaks()) VARVE_TRY(LevelStore::prepare(world_.files, spec_, path, world_.key_file).status());
    VARVE_ASSIGN(own, open_when_made(
                          [&] { return LevelStore::open(world_.files, spec_, path, world_.key_file, world_.clock); }));
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
