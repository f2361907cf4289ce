#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/process_identity.h"
#include "core/sync.h"
#include "store/store.h"

namespace varve {

/// A run whose lease shows no sign of life for so long is taken for dead, where nothing tells it sooner.
constexpr double kRunSilenceSeconds = 30;

/// The run that holds a job's lease, as the lease says (FORMAT.md, "The lease of a job").
struct LeaseHolder {
  UniqueId run;
  std::string host;
  ProcessIdentity process;  ///< of its rank 0
  int64_t started_s = 0;    ///< by its own clock; for people
  /// The run before it that it could not know to be dead; zeros: none. Should that one live after all, it must not find
  /// the lease gone.
  UniqueId taken_from;
  bool has_ended = false;  ///< for such a run alone the lease is there yet

  /// "process 4711 on n1, started 2026-11-22 18:00:01 UTC"
  std::string to_string() const;
};

/// A job's place in a store: while a run holds it and shows that it lives, no other run of the job may go on from its
/// sets. Time is the store's alone: whether the lease was touched, and how long ago by what the store stamps files with
/// now. A lease that its run does not touch any more may be taken by another run; the old one, should it live after
/// all, finds out and saves nothing any more. One thread at a time, beside its own.
class JobLease {
 public:
  struct Terms {
    std::string job;
    UniqueId run;
    bool take_over = false;  ///< whoever holds it
    /// Runs of the job that are known to be over, wherever the processes are that held it for them.
    std::vector<UniqueId> ended = {};
    double silence_seconds = kRunSilenceSeconds;
    double beat_seconds = 5;
    /// Called once if it has to wait to see whether the holder lives: says for what, and how long at most.
    std::function<void(const Status&)> notice = {};
  };
  /// Waits, for silence_seconds at most, unless it is known at once that the holder is dead: a process of this machine
  /// that is gone, or one that has been silent for long. busy: another run lives; says which, and what can be done.
  static Result<std::unique_ptr<JobLease>> acquire(const Store& store, Terms terms, Clock& clock);
  ~JobLease();  ///< as release()
  JobLease(const JobLease&) = delete;
  JobLease& operator=(const JobLease&) = delete;

  /// busy: another run has taken the job over; says which. Waits for a look at the store, a second at most, only if the
  /// last one is long ago, as it is after a pause: a store that cannot be reached says nothing. Thread-safe.
  Status check();
  /// Gives the job free; OK also if another run has it. In the place of a lease that was taken from a run that may yet
  /// live, one stays that says that the run has ended: the earlier one would take it for removed by somebody, and go on
  /// beside what was made since.
  Status release();

 private:
  JobLease(const Store& store, Terms terms, Clock& clock);

  struct Seen {
    ByteVector text;
    int64_t modified_ns = 0;
    std::optional<LeaseHolder> holder{};  ///< none: it makes no sense
  };
  Result<Seen> look() const;
  Status take();
  /// Whether the run that was seen is dead; waits until that is known.
  Result<bool> await_death(const Seen& first);
  Result<double> silence_of(const Seen& seen) const;
  Status running_already(const Seen& seen) const;
  void beat();
  /// Whether the lease is still the own one; fails if that cannot be told.
  Result<bool> beat_once(std::optional<LeaseHolder>& other);

  const Store& store_;
  const Terms terms_;
  Clock& clock_;
  const std::string path_;
  LeaseHolder own_;
  ByteVector text_;
  bool held_ = false;
  Mutex mutex_;
  ConditionVariable wanted_, beaten_;
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  bool look_wanted_ VARVE_GUARDED_BY(mutex_) = false;
  uint64_t beat_count_ VARVE_GUARDED_BY(mutex_) = 0;
  /// Of beats, when somebody has waited for the next in vain.
  std::optional<uint64_t> waited_count_ VARVE_GUARDED_BY(mutex_);
  double tried_seconds_ VARVE_GUARDED_BY(mutex_) = 0, confirmed_seconds_ VARVE_GUARDED_BY(mutex_) = 0;
  Status lost_ VARVE_GUARDED_BY(mutex_);
  Thread heart_;
};

/// Who has the job in this store, as far as one look tells; none: nobody, or a run that is known to be over, as one of
/// `ended` or one that is dead or silent (JobLease::acquire()). Changes nothing, and waits for nothing.
Result<std::optional<LeaseHolder>> living_lease_holder(const Store& store, const std::string& job,
                                                       const std::vector<UniqueId>& ended);

/// That a job has begun with a run.
struct JobBeginning {
  UniqueId run;
  uint64_t first_number = 1;  ///< SetRecord::number of the first set that it makes
  bool operator==(const JobBeginning&) const = default;
};
/// In a node's own store: how a job has begun there, or begun anew behind parts of sets that never were whole
/// (FORMAT.md, "Where a job has begun"). What cannot be read counts as none.
std::vector<JobBeginning> read_beginnings(const Store& store, const std::string& job);
/// Durable when it returns, in the place of what was there.
Status write_beginnings(const Store& store, const std::string& job, const std::vector<JobBeginning>& beginnings);

/// For a run that has no lease, as it could not take it: busy if another run that lives has it. OK if that cannot be
/// told, and if it is that of a run which is dead.
Status check_job_untaken(const Store& store, const std::string& job, const UniqueId& run);
/// For those of a run who do not hold its lease: busy if another run does now. OK if that cannot be told.
Status check_job_lease(const Store& store, const std::string& job, const UniqueId& run);

}  // namespace varve
