#include "runtime/run_session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <thread>

#include "comm/agreement.h"
#include "core/throttled_file_system.h"
#include "runtime/due.h"
#include "runtime/placement.h"
#include "runtime/remote_member.h"

namespace varve {

namespace {
using std::chrono::nanoseconds;

constexpr nanoseconds kForever = std::chrono::hours(24 * 365 * 100);
/// Longest wait of a call that can do without an answer.
constexpr nanoseconds kPatience = std::chrono::hours(1);
/// How long a change that nobody rings for (a process that died) may stay unseen.
constexpr nanoseconds kLookInterval = std::chrono::milliseconds(200);

/// One thread lays down what the workers have hashed and encoded: more than that would wait for it.
constexpr uint32_t kUsefulWorkersMax = 16;

/// What rank 0 decides for all.
struct SharedStart {
  UniqueId run;
  std::string store_path;
};

Result<std::string> open_or_create(FileSystem& files, const std::string& path) {
  const Status there = Store::open(files, path).status();
  if (there.code() == StatusCode::not_found) {
    const Status created = Store::create(files, path);
    // Another job may have been faster.
    if (!created.ok() && created.code() != StatusCode::already_exists) return created;
  } else if (!there.ok()) {
    return there;
  }
  std::error_code error;
  const std::filesystem::path canonical = std::filesystem::canonical(path, error);
  return error ? path : canonical.string();
}

Result<SharedStart> agree_on_start(Communicator& ranks, FileSystem& files, const std::string& path) {
  SharedStart start;
  Status prepared;
  if (ranks.rank() == 0) {
    Result<UniqueId> run = UniqueId::random();
    Result<std::string> opened = run.ok() ? open_or_create(files, path) : run.status();
    prepared = opened.status();
    if (opened.ok()) start = {*run, *opened};
  }
  VARVE_TRY(agree(ranks, prepared));
  ByteVector mine;
  ByteWriter out(mine);
  out.bytes(start.run.bytes);
  out.text(start.store_path);
  VARVE_ASSIGN(const ByteVector bytes, ranks.broadcast(mine, 0));
  ByteReader in(bytes);
  VARVE_ASSIGN(const ByteSpan run, in.bytes(start.run.bytes.size()));
  std::copy(run.begin(), run.end(), start.run.bytes.begin());
  VARVE_ASSIGN(const std::string_view store_path, in.text());
  start.store_path = store_path;
  return start;
}

CadenceRule cadence_rule(const Settings& settings) {
  return {settings.every_steps, settings.every_seconds, settings.mean_time_between_failures};
}

uint32_t processor_count() { return std::max(1u, std::thread::hardware_concurrency()); }
}  // namespace

// Opening

Result<std::unique_ptr<RunSession>> RunSession::open(std::unique_ptr<Communicator> ranks, const SessionOptions& options,
                                                     SessionEnvironment environment) {
  if (!ranks) return Status::invalid_argument("a session needs a communicator");
  VARVE_ASSIGN(Settings settings, agree_on_settings(*ranks, options, environment.sources));
  std::unique_ptr<RunSession> session(new RunSession(std::move(ranks), std::move(settings), std::move(environment)));
  VARVE_TRY(session->prepare_store());
  VARVE_TRY(session->prepare_memory());
  VARVE_TRY(session->prepare_stage_two());
  session->finished_ = false;
  return session;
}

RunSession::RunSession(std::unique_ptr<Communicator> ranks, Settings settings, SessionEnvironment environment)
    : ranks_(std::move(ranks)),
      settings_(std::move(settings)),
      environment_(std::move(environment)),
      clock_(*environment_.clock),
      cadence_(cadence_rule(settings_), clock_),
      ledger_(clock_) {
  warnings_.add(settings_.warnings);
}

Status RunSession::prepare_store() {
  FileSystem& files = *environment_.files;
  VARVE_ASSIGN(const SharedStart start, agree_on_start(*ranks_, files, settings_.store));
  run_ = start.run;
  store_path_ = start.store_path;
  family_ = {settings_.shared_memory, static_cast<uint32_t>(::getuid()), make_job_key(store_path_, settings_.job)};
  Result<std::unique_ptr<Store>> opened = Store::open(files, store_path_);
  VARVE_TRY(agree(*ranks_, opened.status()));
  store_ = std::move(*opened);
  return {};
}

Status RunSession::prepare_memory() {
  const Result<RankPlace> place = environment_.find_place(settings_.shared_memory);
  VARVE_TRY(agree(*ranks_, place.status()));
  VARVE_ASSIGN(plan_, agree_on_groups(*ranks_, *place, settings_.group));
  warnings_.add(plan_.warnings);
  const bool leads_group = plan_.own_group().leader() == ranks_->rank();
  VARVE_ASSIGN(free_processors_, agree_on_free_processors(*ranks_, place->node, leads_group));

  SnapshotOptions options;
  options.rank_count = ranks_->rank_count();
  options.slots = settings_.when_busy == WhenBusy::two_slots ? 2 : 1;
  options.copy_threads = std::max(1u, processor_count() / plan_.node_rank_count);
  Result<std::unique_ptr<SnapshotMemory>> memory = SnapshotMemory::create(owner_of(ranks_->rank()), options);
  VARVE_TRY(agree(*ranks_, memory.status()));
  memory_ = std::move(*memory);
  // Our own memory is there before we look for others': of two jobs that start together, at least one sees the other.
  Result<LeftRuns> left = find_left_runs(family_, run_);
  VARVE_TRY(agree(*ranks_, left.status()));
  left_ = std::move(*left);
  left_runs_remain_ = !left_.runs.empty();
  return {};
}

Status RunSession::prepare_stage_two() {
  Status prepared = attach();
  if (prepared.ok()) {
    FileSystem* const named = environment_.sources.files;
    FileSystem& files = named != nullptr ? *named : posix_file_system();
    const StopRule rule{settings_.stop_on_signals, settings_.stop_after_seconds, settings_.stop_file};
    Result<StopRequests> stop = StopRequests::start(rule, ranks_->rank() == 0, files, clock_);
    prepared = stop.status();
    if (stop.ok()) stop_.emplace(std::move(*stop));
  }
  VARVE_TRY(agree(*ranks_, prepared));
  if (thread_) thread_->start();
  if (relay_) relay_->start();
  return {};
}

/// Brings this rank and its checkpoint thread together.
Status RunSession::attach() {
  const uint32_t leader = plan_.own_group().leader();
  if (plan_.is_remote(ranks_->rank())) {
    VARVE_ASSIGN(std::unique_ptr<SnapshotView> view, SnapshotView::open(owner_of(ranks_->rank())));
    relay_ = std::make_unique<SnapshotRelay>(*ranks_, leader, std::move(view));
    return {};
  }
  VARVE_TRY(memory_->attach_leader(owner_of(leader)));
  if (leader == ranks_->rank()) {
    VARVE_ASSIGN(thread_, make_thread());
  }
  return {};
}

Result<std::unique_ptr<CheckpointThread>> RunSession::make_thread() {
  FileSystem* files = environment_.files;
  if (settings_.write_bytes_per_second) {
    throttled_ = std::make_unique<ThrottledFileSystem>(*files, *settings_.write_bytes_per_second, clock_);
    files = throttled_.get();
  }
  VARVE_ASSIGN(std::unique_ptr<Store> store, Store::open(*files, store_path_));
  std::vector<std::unique_ptr<GroupMember>> members;
  for (uint32_t rank : plan_.own_group().members) {
    if (plan_.is_remote(rank)) {
      members.push_back(std::make_unique<RemoteMember>(*ranks_, rank));
    } else {
      VARVE_ASSIGN(std::unique_ptr<LocalMember> member, LocalMember::open(owner_of(rank)));
      members.push_back(std::move(member));
    }
  }
  CheckpointDuty duty;
  duty.run = run_;
  duty.job = settings_.job;
  duty.ordinal = plan_.own;
  duty.group_count = plan_.count();
  duty.save.scheme = settings_.scheme;
  duty.save.codec = settings_.codec;
  duty.save.memory_bytes = settings_.memory_bytes;
  duty.save.thread_count = worker_count();
  duty.save.small_bytes = 0;  // each variable keeps its description
  duty.keep_last = settings_.keep_last;
  for (const RankGroup& group : plan_.groups) {
    if (group.leader() != ranks_->rank()) duty.siblings.push_back(owner_of(group.leader()));
  }
  duty.prepare_thread = [this] {
    const Status placed = place_calling_thread(free_processors_, settings_.low_priority);
    if (!placed.ok()) warnings_.add(placed.with_context("the checkpoint thread may get in the program's way"));
  };
  duty.report = [this](const DrainReport& report) { note_drained(report); };
  return std::make_unique<CheckpointThread>(std::move(store), std::move(duty), std::move(members), memory_->bell(),
                                            warnings_, clock_);
}

/// Who works for the checkpoint thread: on free processors, if there are any; else so many that each of the group's
/// ranks is disturbed alike. One of them that falls behind alone holds up the others.
uint32_t RunSession::worker_count() const {
  if (settings_.threads) return static_cast<uint32_t>(*settings_.threads);
  const RankGroup& group = plan_.own_group();
  const size_t processors = free_processors_.empty() ? processor_count() : free_processors_.size();
  return static_cast<uint32_t>(
      std::min({group.members.size() - group.remote.size(), processors, size_t{kUsefulWorkersMax}}));
}

Status RunSession::check_running() const {
  return finished_ ? Status::invalid_argument("the session has ended") : Status();
}

// Grids

Result<std::byte*> RunSession::make_grid(std::string_view name, uint64_t bytes) {
  VARVE_TRY(check_running());
  return memory_->make_grid(name, bytes);
}

Result<std::byte*> RunSession::lend(std::string_view name, std::byte* grid) {
  VARVE_TRY(check_running());
  return memory_->lend(name, grid, variables_, kForever);
}

// Restart

Result<std::vector<RestartCandidate>> RunSession::find_candidates(const RankRestart& side) {
  std::vector<uint64_t> steps;
  Status listed;
  if (ranks_->rank() == 0) {
    const Result<std::vector<SetName>> completed = complete_leftover_parts(*store_, settings_.job);
    if (!completed.ok()) {
      warnings_.add(completed.status().with_context("a checkpoint that was nearly complete could not be completed"));
    }
    Result<std::vector<uint64_t>> in_store = Catalog(*store_).steps(settings_.job);
    listed = in_store.status();
    if (in_store.ok()) steps = std::move(*in_store);
  }
  VARVE_TRY(agree(*ranks_, listed));
  return agree_on_candidates(*ranks_, side.memory_steps(), steps);
}

Result<std::optional<uint64_t>> RunSession::restart() {
  VARVE_TRY(check_running());
  if (last_taken_) return Status::invalid_argument("a restart comes before the first checkpoint");
  RankRestart::Place place;
  place.job = settings_.job;
  place.rank = ranks_->rank();
  place.rank_count = ranks_->rank_count();
  place.group = plan_.own;
  place.thread_count = std::max(1u, processor_count() / plan_.node_rank_count);
  place.kept_bytes_max = settings_.memory_bytes;
  RankRestart side(*store_, place, left_.of_rank(place.rank), variables_, warnings_);
  VARVE_ASSIGN(const std::vector<RestartCandidate> candidates, find_candidates(side));
  Result<RestartDecision> decision = restart_from_newest(*ranks_, candidates, side);
  store_->drop_arena_cache();
  VARVE_TRY(decision.status());
  warnings_.add(decision->warnings);
  if (thread_) thread_->allow_replacement(decision->damaged_steps);
  // What is in memory alone stays until a newer set is in the store, however this run ends.
  const RestartCandidate in_store{decision->taken ? decision->taken->step : 0, std::nullopt};
  left_runs_useful_ = decision->taken && std::find(candidates.begin(), candidates.end(), in_store) == candidates.end();
  // What else is wrong with the variables is an error of the first checkpoint.
  const Status reserved = variables_.empty() ? Status() : memory_->reserve(variables_);
  if (reserved.code() == StatusCode::no_space) warnings_.add(reserved.with_context("checkpoints will not be possible"));
  if (!decision->taken) return std::optional<uint64_t>();
  last_step_ = decision->taken->step;
  if (!left_runs_useful_) restarted_set_ = last_step_;
  cadence_.note_restart(*last_step_);
  return last_step_;
}

// Checkpoints

bool RunSession::due(uint64_t step) {
  if (finished_) return false;
  const Result<Due> due = agree_on_due(*ranks_, cadence_, *stop_, step);
  if (!due.ok()) {
    last_error_ = due.status();
    return false;
  }
  stop_agreed_ = stop_agreed_ || due->stop;
  return due->checkpoint;
}

Status RunSession::checkpoint(uint64_t step, Persistence persistence) {
  VARVE_TRY(check_running());
  const Status made = make_checkpoint(step, stop_agreed_ ? Persistence::now : persistence);
  if (!made.ok()) last_error_ = made;
  should_stop_ = should_stop_ || stop_agreed_;
  return made;
}

Status RunSession::make_checkpoint(uint64_t step, Persistence persistence) {
  const double begin = clock_.seconds();
  if (last_step_ && step <= *last_step_) {
    // A stop may be asked for right after a restart or a checkpoint: that one is the last.
    if (stop_agreed_ && step == *last_step_) return settle(kForever);
    return Status::invalid_argument(fmt::format("step {} does not come after step {}", step, *last_step_));
  }
  last_step_ = step;
  const Result<bool> taken = take_slot(persistence);
  if (taken.ok() && !*taken) {
    memory_->skip(variables_);
    memory_->give_up(step);
    ++skipped_;
    ledger_.note_skipped();
    cadence_.note_checkpoint(step, clock_.seconds() - begin);
    return {};
  }
  Status made = taken.ok() ? snapshot(step, begin) : taken.status();
  if (!made.ok()) memory_->give_up(step);
  if (persistence == Persistence::now) {
    const double settle_begin = clock_.seconds();
    made = agree(*ranks_, made);
    if (made.ok()) made = settle(kForever);
    ledger_.note_blocked(clock_.seconds() - settle_begin);
  }
  const double blocked = clock_.seconds() - begin;
  cadence_.note_checkpoint(step, blocked);
  return made;
}

Result<bool> RunSession::take_slot(Persistence persistence) {
  if (settings_.when_busy == WhenBusy::skip && persistence == Persistence::later) {
    // Together: a set of which one rank leaves out its part is never complete.
    std::array<uint64_t, 1> busy = {memory_->has_free_slot() ? uint64_t{0} : uint64_t{1}};
    VARVE_TRY(ranks_->all_max(busy));
    return busy[0] == 0;
  }
  VARVE_TRY(memory_->wait_for_free_slot(kForever));
  return true;
}

Status RunSession::snapshot(uint64_t step, double begin_seconds) {
  if (variables_.empty()) return Status::invalid_argument("nothing is protected");
  if (thread_) thread_->note_begin(step, begin_seconds);
  const double copy_begin = clock_.seconds();
  VARVE_TRY(memory_->fill(step, variables_));
  last_taken_ = step;
  RunLedger::Snapshot cost;
  cost.bytes = cost.copied_bytes = variables_.image().image_bytes;
  for (size_t i = 0; i < variables_.memory().size(); ++i) {
    if (variables_.memory()[i].lent_grid) cost.copied_bytes -= variables_.image().variables[i].bytes;
  }
  const double end = clock_.seconds();
  cost.copy_seconds = end - copy_begin;
  cost.blocked_seconds = end - begin_seconds;
  ledger_.note_snapshot(cost);
  return {};
}

// Waiting for stage 2

Status RunSession::outcome_of(uint64_t step) const {
  const std::optional<GroupNews> news = memory_->news();
  if (!news) return Status::io_error("the checkpoint thread died while it told how far it is");
  if (news->newest_persistent && *news->newest_persistent >= step) return {};
  if (!news->last_error.ok()) return news->last_error;
  return Status::io_error(fmt::format("the checkpoint of step {} is not in the store", step));
}

std::optional<Status> RunSession::part_outcome(uint64_t step) const {
  const std::optional<GroupNews> news = memory_->news();
  if (news && news->finished_step && *news->finished_step >= step) return outcome_of(step);
  for (uint32_t i = 0; i < memory_->slot_count(); ++i) {
    const SlotNews slot = memory_->slot(i);
    if (slot.step == step && slot.state == SlotState::drained) return slot.outcome;
  }
  return std::nullopt;
}

Status RunSession::await_part(uint64_t step, nanoseconds limit) const {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const uint32_t seen = memory_->bell().count();
    if (const std::optional<Status> outcome = part_outcome(step)) return *outcome;
    if (!memory_->leader_alive()) {
      return Status::io_error("the process that writes this group's checkpoints died");
    }
    const nanoseconds waited = std::chrono::steady_clock::now() - begin;
    if (waited >= limit) return Status::busy(fmt::format("time ran out before step {} was written", step));
    memory_->bell().wait(seen, std::min(limit - waited, kLookInterval));
  }
}

Status RunSession::settle(nanoseconds limit) {
  const auto begin = std::chrono::steady_clock::now();
  const Status part = agree(*ranks_, last_taken_ ? await_part(*last_taken_, limit) : Status());
  if (!part.ok()) {
    // The set will never be complete, and the groups that have written their parts need not wait for it.
    if (thread_ && last_taken_) thread_->give_up(*last_taken_);
    return part;
  }
  Status whole;
  if (last_taken_) {
    const nanoseconds waited = std::chrono::steady_clock::now() - begin;
    whole = memory_->wait_for_step(*last_taken_, std::max(limit - waited, nanoseconds(0)));
    if (whole.ok()) whole = outcome_of(*last_taken_);
  }
  return agree(*ranks_, whole);
}

Status RunSession::wait() {
  VARVE_TRY(check_running());
  if (!last_taken_) return {};
  const double begin = clock_.seconds();
  Status waited = memory_->wait_for_step(*last_taken_, kPatience);
  if (waited.ok()) waited = outcome_of(*last_taken_);
  ledger_.note_blocked(clock_.seconds() - begin);
  return waited;
}

// The end

Status RunSession::finish(std::chrono::duration<double> limit) {
  if (finished_) return {};
  const double begin = clock_.seconds();
  const double seconds_max = std::chrono::duration<double>(kForever).count();
  const std::chrono::duration<double> bounded(std::clamp(limit.count(), 0.0, seconds_max));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration_cast<nanoseconds>(bounded);
  Status settled = settle(std::chrono::duration_cast<nanoseconds>(bounded));
  if (settled.code() == StatusCode::busy) {
    if (thread_) thread_->cancel();
    settled = settled.with_context("the newest checkpoint was given up");
  }
  if (relay_) relay_->stop();
  if (thread_) thread_->stop(std::max<nanoseconds>(end - std::chrono::steady_clock::now(), nanoseconds(0)));
  ledger_.note_blocked(clock_.seconds() - begin);
  // Nobody takes its memory away while a neighbour's thread may still read it.
  const Status together = ranks_->barrier();
  close();
  return settled.ok() ? together : settled;
}

void RunSession::close() {
  if (relay_) relay_->stop();
  if (thread_) thread_->stop(kPatience);
  const std::optional<GroupNews> news = memory_->news();
  if (!left_runs_useful_ || (news && news->newest_persistent)) forget_left_runs();
  memory_->remove_files().ignore("the next run removes what is left");
  ledger_.note_end();
  stop_.reset();
  finished_ = true;
}

RunSession::~RunSession() {
  if (finished_) return;
  if (std::uncaught_exceptions() > 0) {
    // The other ranks may not come here.
    close();
    return;
  }
  finish(kPatience).ignore("a program that wants to know calls finish()");
}

// Called by the checkpoint thread
void RunSession::note_drained(const DrainReport& report) {
  if (!report.outcome.ok()) {
    ledger_.note_failed();
    return;
  }
  const double seconds = report.end_seconds - report.begin_seconds;
  ledger_.note_persistent({report.bytes, report.stored_bytes, seconds, report.drain_seconds, report.processor_seconds});
  cadence_.note_persistent(seconds, disturbance_seconds(report.processor_seconds, report_context()));
  forget_left_runs();
}

/// What dead runs left is of no more use when a newer set is in the store. By the checkpoint thread while there is one.
void RunSession::forget_left_runs() {
  if (!left_runs_remain_) return;
  left_runs_remain_ = false;
  const Status removed = remove_left_runs(family_, left_.runs);
  if (!removed.ok()) warnings_.add(removed.with_context("the memory of an earlier run could not be removed"));
}

// What there is to tell

SessionProgress RunSession::progress() const {
  SessionProgress progress;
  progress.newest_snapshot = memory_->newest_step();
  progress.newest_persistent = restarted_set_;
  progress.skipped = skipped_;
  progress.last_error = last_error_;
  const std::optional<GroupNews> news = memory_->news();
  if (!news) return progress;
  if (news->newest_persistent) progress.newest_persistent = news->newest_persistent;
  progress.bytes_to_write = news->bytes_to_write;
  progress.bytes_written = news->bytes_written;
  if (!news->last_error.ok()) progress.last_error = news->last_error;
  return progress;
}

std::string RunSession::effective_options() const { return varve::effective_options(settings_); }

ReportContext RunSession::report_context() const {
  ReportContext context;
  context.rank_count = ranks_->rank_count();
  context.node_rank_count = plan_.node_rank_count;
  context.group_rank_count = static_cast<uint32_t>(plan_.own_group().members.size());
  context.processor_count = processor_count();
  context.mean_time_between_failures = settings_.mean_time_between_failures;
  return context;
}

std::string RunSession::report() const { return report_text(ledger_.costs(), report_context()); }
std::string RunSession::report_json() const { return varve::report_json(ledger_.costs(), report_context()); }

}  // namespace varve
