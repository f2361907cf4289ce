#pragma once

#include <functional>
#include <memory>

#include "level/levels.h"
#include "runtime/settings.h"
#include "store/job_lease.h"

namespace varve {

/// A run's lease of its job (JobLease), so that one run at a time goes on from the job's sets and saves new ones: in
/// the nearest store that all ranks share, or, if there is none, in each node's own. The rank that speaks for that
/// level holds it; the other stores that all share must have none when the run begins. The program's thread only, but
/// for what guard() returns.
class RunLease {
 public:
  /// `notice` gets warnings that a user would easily miss. All of these outlive it.
  RunLease(const Settings& settings, LevelWorld& world, Levels& levels, std::function<void(const Status&)> notice)
      : settings_(settings), world_(world), levels_(levels), notice_(std::move(notice)) {}

  // Once each, in this order; before anything of the job is changed. The same outcome on all ranks; busy: another run
  // of the job lives

  Status take_shared();
  Status take_on_nodes();

  /// busy: another run has taken the job over. Of the rank that holds the lease; others know nothing.
  Status check() const { return lease_ ? lease_->check() : Status(); }
  /// What each group asks before it saves, and each node before it brings anything to a level behind: as check(), but
  /// who does not hold the lease looks for it in the store; before a save near the ranks not in one on servers that is
  /// far, as that may not answer. Any thread, until release().
  enum class Place : uint8_t { near, far };
  std::function<Status()> guard(Place place) const;
  /// Gives the job free.
  void release() { lease_.reset(); }

 private:
  Status take(StoreLevel& level);
  /// busy: another run holds it in this store.
  Status check_untaken(const Store& store) const;
  JobLease::Terms terms() const;

  const Settings& settings_;
  LevelWorld& world_;
  Levels& levels_;
  const std::function<void(const Status&)> notice_;
  StoreLevel* level_ = nullptr;  ///< where it is
  UniqueId run_;                 ///< as which it was taken
  bool is_untaken_ = false;      ///< on some node, or by the one rank, it could not be taken; the same on all ranks
  std::unique_ptr<JobLease> lease_;
};

}  // namespace varve
