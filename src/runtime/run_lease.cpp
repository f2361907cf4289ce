// The job's lease, so that one run at a time goes on from its sets and saves new ones.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "comm/agreement.h"
#include "runtime/run_session.h"

namespace varve {

/// In the nearest store that all ranks share. Before anything of the job is changed.
Status RunSession::take_shared_lease() {
  for (size_t level = 0; level < level_places_.size(); ++level) {
    const LevelPlace& place = level_places_[level];
    if (place.of_node() || place.away) continue;
    Status opened;
    if (ranks_->rank() == 0) {
      Result<std::unique_ptr<StoreLevel>> made =
          StoreLevel::open(*environment_.files, place.spec, place.path, settings_.key_file, clock_);
      opened = made.status();
      if (made.ok()) levels_[level] = std::move(*made);
    }
    // One that has gone away this very moment is no place for it; open_levels() says what that means.
    if (!agree(*ranks_, opened).ok()) continue;
    return take_lease(level);
  }
  return {};
}

/// In each node's own, if there is no other.
Status RunSession::take_node_lease() {
  if (lease_level_ || !level_places_.front().of_node()) return {};
  return take_lease(0);
}

Status RunSession::take_lease(size_t level) {
  lease_level_ = level;
  Status taken;
  if (speaks_for(level)) {
    JobLease::Terms terms;
    terms.job = settings_.job;
    terms.run = run_;
    terms.take_over = settings_.take_over;
    terms.notice = [this](const Status& what) { notify(what); };
    Result<std::unique_ptr<JobLease>> lease = JobLease::acquire(levels_[level]->store(), std::move(terms), clock_);
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
  return store != nullptr ? check_job_lease(*store, settings_.job, run_) : Status();
}

void RunSession::notify(const Status& warning) {
  warnings_.add(warning);
  if (settings_.print_warnings && ranks_->rank() == 0) fmt::print(stderr, "varve: {}\n", warning.to_string());
}

}  // namespace varve
