// The job's lease, so that one run at a time goes on from its sets and saves new ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "comm/agreement.h"
#include "runtime/run_session.h"

namespace varve {

/// In the nearest store that all ranks share. Before anything of the job is changed.
Status RunSession::take_shared_lease() {
  for (StoreLevel* const level : levels_.stores()) {
    if (level->is_of_node() || level->is_away()) continue;
    // One that has gone away this very moment is no place for it; open() says what that means.
    if (!agree(*ranks_, ranks_->rank() == 0 ? level->store().status() : Status()).ok()) continue;
    return take_lease(*level);
  }
  return {};
}

/// In each node's own, if there is no other.
Status RunSession::take_node_lease() {
  return lease_level_ == nullptr && world_.has_node_level ? take_lease(levels_.nearest()) : Status();
}

Status RunSession::take_lease(StoreLevel& level) {
  lease_level_ = &level;
  Status taken;
  if (level.speaks()) {
    JobLease::Terms terms;
    terms.job = settings_.job;
    terms.run = world_.run;
    terms.take_over = settings_.take_over;
    terms.notice = [this](const Status& what) { notify(what); };
    Result<std::unique_ptr<JobLease>> lease = JobLease::acquire(*level.opened(), std::move(terms), clock_);
    taken = lease.status();
    if (lease.ok()) lease_ = std::move(*lease);
  }
  // Only a run that lives is a reason not to begin. A store that is full may have room later.
  if (!taken.ok() && taken.code() != StatusCode::busy) {
    warnings_.add(
        taken.with_context("this run could not take its job's lease, so that a second one would not notice it"));
    taken = {};
  }
  return agree(*ranks_, taken);
}

Status RunSession::check_lease(const Store* store) const {
  if (lease_) return lease_->check();
  return store != nullptr ? check_job_lease(*store, settings_.job, world_.run) : Status();
}

void RunSession::notify(const Status& warning) {
  warnings_.add(warning);
  if (settings_.print_warnings && ranks_->rank() == 0) fmt::print(stderr, "varve: {}\n", warning.to_string());
}

}  // namespace varve
