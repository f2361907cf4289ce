#include "runtime/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>

#include "comm/agreement.h"
#include "comm/ending_ranks.h"
#include "core/sync.h"
#include "runtime/cadence.h"
#include "runtime/placement.h"

namespace varve {

namespace {
using std::chrono::nanoseconds;

/// The longest limit that can be reckoned with.
constexpr nanoseconds kForever = std::chrono::hours(24 * 365 * 100);
/// How long the end of a session waits that nobody has asked for.
constexpr nanoseconds kPatience = std::chrono::hours(1);
/// How long a change that nobody rings for (a process that died) may stay unseen.
constexpr nanoseconds kLookInterval = std::chrono::milliseconds(200);

/// What any rank has. Collective.
Result<std::set<ArenaId>> gather_arenas(Communicator& ranks, const std::set<ArenaId>& mine) {
  ByteVector bytes;
  ByteWriter out(bytes);
  for (const ArenaId& arena : mine) out.bytes(arena.bytes);
  VARVE_ASSIGN(const auto by_rank, ranks.all_gather(bytes));
  std::set<ArenaId> all;
  for (const ByteVector& of_rank : by_rank) {
    ByteReader in(of_rank);
    while (!in.at_end()) {
      ArenaId arena;
      VARVE_ASSIGN(const ByteSpan id, in.bytes(arena.bytes.size()));
      std::copy(id.begin(), id.end(), arena.bytes.begin());
      all.insert(arena);
    }
  }
  return all;
}
}  // namespace

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
  return memory_->lend(name, grid, variables_, wait_limit());
}

nanoseconds RunSession::wait_limit() const {
  const std::chrono::duration<double> limit(settings_.wait_limit);
  return std::min(std::chrono::duration_cast<nanoseconds>(limit), kForever);
}

// Restart

Result<std::optional<uint64_t>> RunSession::restart() {
  VARVE_TRY(check_running());
  if (last_taken_) return Status::invalid_argument("a restart comes before the first checkpoint");
  VARVE_TRY(levels_.look());
  VARVE_TRY(levels_.open());
  Result<std::optional<uint64_t>> restarted = restart_from_levels();
  levels_.close_idle();
  return restarted;
}

Result<std::optional<uint64_t>> RunSession::restart_from_levels() {
  VARVE_ASSIGN(const std::vector<RestartCandidate> candidates, levels_.candidates());
  RankRestart side(levels_, variables_);
  Result<RestartDecision> decision = restart_from_newest(*ranks_, candidates, side);
  levels_.drop_caches();
  const bool found_none = decision.ok() ? !decision->taken : decision.status().code() == StatusCode::corrupt;
  if (found_none) VARVE_TRY(levels_.check_all_were_reached());
  if (decision.status().code() == StatusCode::corrupt) {
    VARVE_ASSIGN(const bool never, levels_.never_were_whole(candidates));
    if (never) {
      warnings_.add(
          Status::not_found("the first checkpoint never was on all nodes: the run begins anew", settings_.job));
      decision = RestartDecision();
      schedule_.go_on_from(1);
    }
  }
  VARVE_TRY(decision.status());
  warnings_.add(decision->warnings);
  note_findings(*decision, candidates);
  if (!decision->unreadable.empty()) VARVE_TRY(avoid_unreadable(levels_.nearest().unreadable_arenas()));
  // What is wrong with the variables is an error of the first checkpoint.
  const Status reserved = reserve_memory();
  if (!decision->taken) return std::optional<uint64_t>();
  last_step_ = decision->taken->step;
  if (!left_runs_useful_) restarted_set_ = last_step_;
  if (levels_.at(decision->taken->level).spec().is_of_node()) job_sets_.note_complete(*last_step_);
  cadence_.note_restart(*last_step_);
  if (left_runs_useful_ && reserved.ok()) save_restarted(*last_step_);
  return last_step_;
}

void RunSession::save_restarted(uint64_t step) {
  // Some nodes' own stores may have it.
  if (world_.has_node_level) levels_.note_found(levels_.nearest(), step, Found::damaged);
  last_step_.reset();
  const Status saved = make_checkpoint(step, Persistence::later, /*saves=*/true);
  if (!saved.ok()) warnings_.add(saved.with_context("what is in memory alone could not be saved to the store"));
}

/// What was damaged may be replaced; what is near alone is to go far, too.
void RunSession::note_findings(const RestartDecision& decision, const std::vector<RestartCandidate>& candidates) {
  for (const RestartCandidate& set : decision.mended)
    levels_.note_found(levels_.at(set.level), set.step, Found::mended);
  for (const RestartCandidate& set : decision.damaged)
    levels_.note_found(levels_.at(set.level), set.step, Found::damaged);
  for (const RestartCandidate& set : decision.unreadable)
    levels_.note_found(levels_.at(set.level), set.step, Found::unreadable);
  left_runs_useful_ = false;
  if (!decision.taken) return;
  const RestartCandidate& taken = *decision.taken;
  // What is in memory alone stays until it, or a newer set, is in a store, however this run ends. Of a store that all
  // share, one look tells; a node's own may be the only one that has it.
  const bool all_nodes_have_it = world_.has_node_level && job_sets_.is_complete(taken.step);
  left_runs_useful_ =
      taken.memory_run && !all_nodes_have_it &&
      std::none_of(candidates.begin(), candidates.end(), [&](const RestartCandidate& other) {
        return !other.memory_run && other.step == taken.step && !levels_.at(other.level).spec().is_of_node();
      });
  if (all_nodes_have_it || &levels_.at(taken.level) == &levels_.nearest()) {
    levels_.bring_behind(taken.step, candidates);
  }
}

/// Arenas of the nearest store of which any rank could not read something: no group's new sets refer to them, as nobody
/// knows whether they can be read again. Collective.
Status RunSession::avoid_unreadable(const std::set<ArenaId>& mine) {
  VARVE_ASSIGN(const std::set<ArenaId> all, gather_arenas(*ranks_, mine));
  if (thread_) thread_->avoid(all);
  return {};
}

// Checkpoints

bool RunSession::due(uint64_t step) {
  if (finished_) return false;
  std::vector<uint64_t> sets;
  if (plan_.count() > 1) sets = job_sets_.tell(thread_ != nullptr);
  const Result<Due> due = agree_on_due(*ranks_, cadence_, *stop_, step, sets);
  if (!due.ok()) {
    last_error_ = due.status();
    return false;
  }
  if (due->talked) learn(sets);
  stop_agreed_ = stop_agreed_ || due->stop;
  return due->checkpoint;
}

/// What all groups have told.
void RunSession::learn(std::span<const uint64_t> told) {
  sets_were_told_ = true;
  for (const uint64_t failed : job_sets_.learn(told).failed) {
    if (thread_) thread_->give_up(failed);
    levels_.forget(failed);
  }
}

/// The failure of a step before `step` that nobody was told of. That of `step` itself, which another rank may have
/// given up before this one began it, is for the next call: so a call tells the same on each rank.
Status RunSession::take_failure(uint64_t step) {
  const std::optional<GroupNews> news = memory_->news();
  if (!news || !news->failed_step || told_failure_ >= news->failed_step || *news->failed_step >= step) return {};
  told_failure_ = news->failed_step;
  return news->last_error.with_context(fmt::format("the checkpoint of step {} failed", *news->failed_step));
}

Status RunSession::checkpoint(uint64_t step, Persistence persistence) {
  VARVE_TRY(check_running());
  const Persistence wanted = stop_agreed_ ? Persistence::now : persistence;
  const Status made = make_checkpoint(step, wanted, wanted == Persistence::now);
  if (!made.ok()) last_error_ = made;
  should_stop_ = should_stop_ || stop_agreed_;
  return made;
}

Status RunSession::make_checkpoint(uint64_t step, Persistence persistence, bool saves) {
  const double begin = clock_.seconds();
  if (last_step_ && step <= *last_step_) {
    // A stop may be asked for right after a restart or a checkpoint: that one is the last.
    if (stop_agreed_ && step == *last_step_) return settle(wait_limit());
    return Status::invalid_argument(fmt::format("step {} does not come after step {}", step, *last_step_));
  }
  last_step_ = step;
  const Status before = take_failure(step);
  if (must_tell_sets() && !sets_were_told_) {
    std::vector<uint64_t> sets = job_sets_.tell(thread_ != nullptr);
    VARVE_TRY(ranks_->all_max(sets));
    learn(sets);
  }
  sets_were_told_ = false;
  const Result<bool> taken = take_slot(persistence);
  if (taken.ok() && !*taken) {
    memory_->skip(variables_);
    memory_->give_up(step);
    ++skipped_;
    ledger_.note_skipped();
    cadence_.note_checkpoint(step, clock_.seconds() - begin);
    return before;
  }
  const LevelDuty levels = schedule_.next(saves, stop_agreed_);
  if (levels.save) job_sets_.note_begin(step);
  if (thread_) thread_->note_begin(step, begin, levels);
  Status made = taken.ok() ? snapshot(step, begin, levels) : taken.status();
  if (!made.ok()) memory_->give_up(step);
  if (persistence == Persistence::now) {
    const double settle_begin = clock_.seconds();
    made = agree(*ranks_, made);
    if (made.ok()) made = settle(wait_limit());
    note_told(made, step);
    ledger_.note_blocked(clock_.seconds() - settle_begin);
  } else if (made.ok() && !before.ok()) {
    made = before.with_context(fmt::format("step {} is on its way", step));
  }
  const double blocked = clock_.seconds() - begin;
  cadence_.note_checkpoint(step, blocked);
  return made;
}

/// A failure that all ranks have just been told of is not told again when this group's thread comes to know it.
void RunSession::note_told(const Status& outcome, uint64_t step) {
  if (outcome.ok()) return;
  take_failure(step).ignore("it is told now");
  // What is only late may fail later, and nobody has been told that.
  if (outcome.code() != StatusCode::busy) told_failure_ = std::max(told_failure_, std::optional(step));
}

Result<bool> RunSession::take_slot(Persistence persistence) {
  if (settings_.when_busy == WhenBusy::skip && persistence == Persistence::later) {
    // Together: a set of which one rank leaves out its part is never complete.
    std::array<uint64_t, 1> busy = {memory_->has_free_slot() ? uint64_t{0} : uint64_t{1}};
    VARVE_TRY(ranks_->all_max(busy));
    return busy[0] == 0;
  }
  const Status waited = memory_->wait_for_free_slot(wait_limit());
  if (waited.code() != StatusCode::busy) VARVE_TRY(waited);
  VARVE_TRY(waited.with_context(fmt::format("{} is still writing an earlier checkpoint", group_name(plan_.own))));
  return true;
}

Status RunSession::snapshot(uint64_t step, double begin_seconds, const LevelDuty& levels) {
  if (variables_.empty()) return Status::invalid_argument("nothing is protected");
  if (lease_) VARVE_TRY(lease_->check());
  const double copy_begin = clock_.seconds();
  VARVE_TRY(take_snapshot(step));
  last_taken_ = step;
  if (levels.save) {
    last_saved_ = step;
    last_number_ = levels.number;
  }
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
  const auto begin = MonotonicClock::now();
  for (;;) {
    const uint32_t seen = memory_->bell().count();
    if (const std::optional<Status> outcome = part_outcome(step)) return *outcome;
    if (!memory_->leader_alive()) {
      return Status::io_error("the process that writes this group's checkpoints died");
    }
    const nanoseconds waited = MonotonicClock::now() - begin;
    if (waited >= limit) {
      return Status::busy(
          fmt::format("{} has not written step {} in the time that was given", group_name(plan_.own), step));
    }
    memory_->bell().wait(seen, std::min(limit - waited, kLookInterval));
  }
}

Status RunSession::settle(nanoseconds limit) {
  const auto begin = MonotonicClock::now();
  const Status part = agree(*ranks_, last_saved_ ? await_part(*last_saved_, limit) : Status());
  if (!part.ok()) {
    // The set will never be complete, and the groups that have written their parts need not wait for it.
    if (thread_ && last_saved_ && part.code() != StatusCode::busy) thread_->give_up(*last_saved_);
    return part;
  }
  Status whole;
  if (last_saved_) {
    const nanoseconds waited = MonotonicClock::now() - begin;
    whole = memory_->wait_for_step(*last_saved_, std::max(limit - waited, nanoseconds(0)));
    if (whole.ok()) whole = outcome_of(*last_saved_);
  }
  VARVE_TRY(agree(*ranks_, whole));
  if (last_saved_) job_sets_.note_complete(*last_saved_);
  return {};
}

Status RunSession::wait() {
  VARVE_TRY(check_running());
  const double begin = clock_.seconds();
  Status waited = settle(wait_limit());
  if (last_saved_) note_told(waited, *last_saved_);
  ledger_.note_blocked(clock_.seconds() - begin);
  return waited;
}

// The end

Status RunSession::finish(std::chrono::duration<double> limit) {
  if (finished_) return {};
  const double begin = clock_.seconds();
  const double seconds_max = std::chrono::duration<double>(kForever).count();
  const std::chrono::duration<double> bounded(std::clamp(limit.count(), 0.0, seconds_max));
  const auto end = MonotonicClock::now() + std::chrono::duration_cast<nanoseconds>(bounded);
  Status settled = settle(std::chrono::duration_cast<nanoseconds>(bounded));
  if (settled.code() == StatusCode::busy) {
    if (thread_) thread_->cancel();
    settled = settled.with_context("the newest checkpoint was given up");
  }
  if (relay_) relay_->stop();
  if (thread_) thread_->stop(std::max(nanoseconds(end - MonotonicClock::now()), nanoseconds(0)));
  levels_.stop();
  // Whoever clears up behind a job leaves only what is far away: the last set goes there, whatever its turn is.
  std::optional<NewSet> last;
  if (settled.ok() && last_saved_) last = NewSet{.step = *last_saved_, .number = last_number_};
  const Status pushed = levels_.finish(last, end);
  ledger_.note_blocked(clock_.seconds() - begin);
  // Nobody takes its memory away while a neighbour's thread may still read it, nor looks for the others' parts too
  // soon.
  const Status together = ranks_->barrier();
  const Status ended = levels_.end();
  const Status spread = agree(*ranks_, pushed.ok() ? ended : pushed);
  close();
  if (!settled.ok()) return settled;
  return together.ok() ? spread : together;
}

void RunSession::close() {
  if (relay_) relay_->stop();
  if (thread_) thread_->stop(kPatience);
  levels_.end().ignore("finish() tells of it");
  // What is still owed to a level behind stays.
  if (thread_) thread_->tidy();
  const std::optional<GroupNews> news = memory_->news();
  if (!left_runs_useful_ || (news && news->newest_persistent)) forget_left_runs();
  memory_->remove_files().ignore("the next run removes what is left");
  lease_.reset();
  ledger_.note_end();
  stop_.reset();
  finished_ = true;
}

RunSession::~RunSession() {
  if (finished_) return;
  if (std::uncaught_exceptions() > 0 || have_ended(*ranks_)) {
    // The other ranks may not come here, or cannot be reached.
    close();
    return;
  }
  finish(kPatience).ignore("a program that wants to know calls finish()");
}

// Called by the checkpoint thread
void RunSession::note_drained(const DrainReport& report) {
  job_sets_.note_own(report.step, report.outcome.ok());
  if (report.outcome.ok() && !must_tell_sets()) job_sets_.note_complete(report.step);
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

std::optional<uint64_t> RunSession::newest_persistent(const GroupNews& news) const {
  const std::optional<uint64_t> newest = must_tell_sets() ? job_sets_.newest_complete() : news.newest_persistent;
  return newest ? newest : restarted_set_;
}

SessionProgress RunSession::progress() const {
  SessionProgress progress;
  progress.newest_snapshot = memory_->newest_step();
  progress.skipped = skipped_;
  progress.last_error = last_error_;
  const std::optional<GroupNews> news = memory_->news();
  progress.newest_persistent = newest_persistent(news.value_or(GroupNews()));
  if (news) {
    progress.bytes_to_write = news->bytes_to_write;
    progress.bytes_written = news->bytes_written;
    if (!news->last_error.ok()) progress.last_error = news->last_error;
  }
  progress.levels = levels_.progress(run_news(progress, news.value_or(GroupNews())));
  return progress;
}

RunNews RunSession::run_news(const SessionProgress& progress, const GroupNews& news) const {
  RunNews run{.newest_snapshot = progress.newest_snapshot, .last_error = news.last_error};
  if (progress.newest_persistent != restarted_set_) run.newest_saved = progress.newest_persistent;
  run.saving = last_saved_ && news.finished_step.value_or(0) < *last_saved_ ? 1 : 0;
  return run;
}

std::string RunSession::effective_options() const {
  const std::string where = world_.node.empty() ? "this machine" : "VARVE_NODE";
  return varve::effective_options(settings_) +
         fmt::format("# this rank is on the node {} ({})\n", plan_.node().name, where);
}

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
