#include "runtime/run_lease.h"

#include <array>
#include <atomic>
#include <memory>

#include "comm/agreement.h"

namespace varve {

Status RunLease::take_shared() {
  for (StoreLevel* const level : levels_.stores()) {
    if (level->spec().is_of_node() || level->access().is_away()) continue;
    // One that has gone away this very moment is no place for it; open() says what that means.
    const Status opened = world_.ranks.rank() == 0 ? level->access().store().status() : Status();
    if (!agree(world_.ranks, opened).ok()) continue;
    if (level_ == nullptr) {
      VARVE_TRY(take(*level));
    } else {
      VARVE_TRY(agree(world_.ranks, world_.ranks.rank() == 0 ? check_untaken(*level->access().opened()) : Status()));
    }
  }
  return {};
}

/// Another run, whose levels are others than this one's, may hold the job's lease where this one does not. It is taken
/// for a moment, and as by another run: what is known of the own one rests on the lease that stays.
Status RunLease::check_untaken(const Store& store) const {
  JobLease::Terms terms = this->terms();
  VARVE_ASSIGN(terms.run, UniqueId::random());
  const Status taken = JobLease::acquire(store, std::move(terms), world_.clock).status();
  // A server without room is busy, too.
  return taken.remedy() == Remedy::take_job_over ? taken : Status();
}

JobLease::Terms RunLease::terms() const {
  JobLease::Terms terms;
  terms.job = settings_.job;
  terms.run = run_;
  terms.take_over = settings_.take_over;
  terms.ended = world_.left_runs.ended;
  terms.notice = notice_;
  return terms;
}

Status RunLease::take_on_nodes() {
  return level_ == nullptr && world_.has_node_level ? take(levels_.nearest()) : Status();
}

Status RunLease::take(StoreLevel& level) {
  level_ = &level;
  run_ = world_.run;
  Status taken;
  if (level.access().speaks()) {
    Result<std::unique_ptr<JobLease>> lease = JobLease::acquire(*level.access().opened(), terms(), world_.clock);
    taken = lease.status();
    if (lease.ok()) lease_ = std::move(*lease);
  }
  // Only a run that lives is a reason not to begin. A store that is full may have room later.
  if (!taken.ok() && taken.code() != StatusCode::busy) {
    world_.warnings.add(
        taken.with_context("this run could not take its job's lease, so that a second one would not notice it"));
    taken = {};
    is_untaken_ = true;
  }
  VARVE_TRY(agree(world_.ranks, taken));
  std::array<uint64_t, 1> untaken = {is_untaken_ ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_max(untaken));
  is_untaken_ = untaken[0] != 0;
  return {};
}

std::function<Status()> RunLease::guard(Place place) const {
  const bool looks = level_ != nullptr && level_->access().is_at_work() &&
                     (place == Place::far || level_->access().is_nearest() || !level_->spec().is_on_servers());
  const Store* const store = looks ? level_->access().opened() : nullptr;
  return [this, store, lost = std::make_shared<std::atomic<bool>>(false)] {
    if (lease_) return lease_->check();
    if (store == nullptr) return Status();
    // The lease that is there may be that of a dead run, in whose place this one could not put its own. One that was
    // seen alive has taken the job over, whatever becomes of it.
    const Status met = is_untaken_ && !*lost ? check_job_untaken(*store, settings_.job, run_)
                                             : check_job_lease(*store, settings_.job, run_);
    if (!met.ok()) *lost = true;
    return met;
  };
}

}  // namespace varve
