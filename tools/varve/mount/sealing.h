#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>

#include "core/sync.h"
#include "engine/save.h"
#include "level/levels.h"
#include "mount/mount_run.h"
#include "mount/spool.h"

namespace varve {

/// Commits open sets, one at a time. The order of its steps is what makes a crash between any two of them harmless:
///
/// 1. the set is saved: arenas are written and sealed, nothing is visible;
/// 2. the record that is about to be committed is noted in the spool, durably;
/// 3. the commit;
/// 4. the set leaves the spool.
///
/// A spooled set whose noted record has the same trees as the committed set of that name was committed: after a crash
/// between 3 and 4 it just leaves the spool. In all other cases it is an open set still. Whoever changes a set after a
/// failed attempt has the note removed first, durably (OpenFolder), for the commit may have succeeded all the same: the
/// set is then another one, of a name that is taken. A set that turns out to be committed when it is sealed once more
/// stays so: others may have gone on from it. But if the sync of the record's name has failed, the record is taken out
/// of the catalog again: what a second sync says proves nothing. Thread-safe.
class SetCommit {
 public:
  /// All outlive this.
  SetCommit(const Store& store, const Spool& spool, LayoutService& layouts, SaveOptions options, const MountLog& log)
      : store_(store), spool_(spool), layouts_(layouts), options_(std::move(options)), log_(log) {}

  /// Steps 1 to 3. Nothing may change the set's files meanwhile. already_exists: the store has another set of that
  /// name. Whatever fails, the spool is as it was.
  /// `check_written_back`: whether what was read is what was written, OpenFolder's.
  Result<SetRecord> commit(const SpooledSet& set, const SetName& name,
                           const std::function<Status()>& check_written_back);
  /// What the store says of the set's last attempt: its record, if that was committed.
  Result<std::optional<SetRecord>> committed_before(const SpooledSet& set) const;
  /// Has a commit that is under way fail as cancelled, and all later ones.
  void cancel() { cancelled_.store(true); }

 private:
  class Progress;
  /// The record of the set's last attempt if that is in the catalog, where its name is now `durable`, or perhaps not.
  Result<std::optional<SetRecord>> find_attempt(const SpooledSet& set, Status& durable) const;
  /// Removes the very record that an attempt of this mount has left in the catalog, if it failed there.
  Status take_back_failed_attempt(const SpooledSet& set) const;

  const Store& store_;
  const Spool& spool_;
  LayoutService& layouts_;
  const SaveOptions options_;
  const MountLog& log_;
  std::atomic<bool> cancelled_{false};
  Mutex mutex_;  ///< held during a commit: one takes all processors and the memory that was granted
  /// Where the files are of sets whose record's name could not be made durable: a second sync would prove nothing.
  std::set<std::string> unsynced_ VARVE_GUARDED_BY(mutex_);
};

/// Brings what a mount has sealed to the levels behind the store that is mounted, beside all else: after each set, all
/// that they lack of its job. What fails is told, and is tried again with the next set, or by whoever comes next.
class SetForwarding {
 public:
  /// Both outlive it.
  SetForwarding(Levels& levels, const MountLog& log) : levels_(levels), log_(log) {}
  SetForwarding(const SetForwarding&) = delete;
  SetForwarding& operator=(const SetForwarding&) = delete;
  /// Gives up what is on its way: it is owed all the same.
  ~SetForwarding();

  /// Begins with what was left by others. resource_limit if there can be no thread.
  Status start();
  /// A set of this job was sealed. Thread-safe.
  void note_sealed(const std::string& job);

 private:
  class Progress;
  void run();
  void tell(const Onward& onward);

  Levels& levels_;
  const MountLog& log_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::set<std::string> jobs_ VARVE_GUARDED_BY(mutex_);  ///< that have something to bring
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace varve
