#pragma once

#include <sys/statvfs.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/sync.h"
#include "mount/open_set.h"
#include "mount/sealing.h"
#include "mount/set_listing.h"
#include "mount/stored_set.h"
#include "store/catalog.h"

namespace varve {

struct MountedStoreOptions {
  uint64_t memory_bytes = 256_MiB;  ///< of what is read
  uint32_t read_ahead_threads = 2;
  bool may_remove = true;    ///< sets can be dropped
  double seal_seconds = 30;  ///< an open set is sealed when nothing has come for so long; 0: never by itself
  OpenSetOptions open_sets;
  MountOwner owner;
  std::string disk_folder;                            ///< whose disk statfs() tells of
  std::function<void(const SetName&)> note_sealed{};  ///< called for each set that was sealed, from several threads
};

/// A store as a tree of folders: jobs, in each its sets, committed and open, in each its files. Everything is named by
/// inode numbers, as the kernel asks; the numbers of what somebody knows stay the same, also while a set is sealed.
///
/// The glue to FUSE and tests call it, from several threads.
class MountedStore {
 public:
  static constexpr uint64_t kRoot = 1;

  /// `spool` and `commit`: null for a mount that only reads. All outlive this.
  MountedStore(const Store& store, const Spool* spool, SetCommit* commit, Clock& clock, const MountLog& log,
               MountedStoreOptions options);
  ~MountedStore();
  MountedStore(const MountedStore&) = delete;
  MountedStore& operator=(const MountedStore&) = delete;

  /// Takes up what the spool holds from an earlier mount. Before anything else.
  Status take_up_spool();
  /// Starts the thread that seals sets which have become quiet. Not before the process has forked for the last time.
  Status start_sealing();
  /// Ends it; a seal that is under way is given up.
  void stop_sealing();
  /// Seals the sets that have become quiet, now. What fails is tried again later, ever less often.
  void seal_quiet_sets();

  bool is_read_only() const { return spool_ == nullptr; }
  MountResult<NodeView> look(uint64_t inode);
  MountResult<NodeView> find(uint64_t folder, const std::string& name);
  void forget(uint64_t inode, uint64_t count);
  MountResult<std::vector<ListedName>> list(uint64_t folder);
  MountResult<std::string> read_link(uint64_t inode);
  MountResult<std::unique_ptr<OpenFile>> open(uint64_t inode, int flags);
  Errno sync_folder(uint64_t inode);
  MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> create(uint64_t folder, const std::string& name,
                                                                     int flags, uint32_t mode);
  MountResult<NodeView> make_folder(uint64_t folder, const std::string& name, uint32_t mode);
  MountResult<NodeView> make_link(uint64_t folder, const std::string& name, const std::string& target);
  Errno remove(uint64_t folder, const std::string& name);
  /// Of a committed set from which everything was removed: drops it.
  Errno remove_folder(uint64_t folder, const std::string& name);
  /// Of an open set to a name that is not temporary: seals it first.
  Errno rename(uint64_t folder, const std::string& name, uint64_t new_folder, const std::string& new_name,
               unsigned flags);
  MountResult<NodeView> change(uint64_t inode, const AttributeChange& change, OpenFile* file);
  MountResult<struct statvfs> disk() const;

  /// Seals the open set whose folder this is, under the step that its name tells.
  Status seal(uint64_t set_folder);
  /// What is to be known of the set whose folder this is, in lines for people.
  Result<std::string> describe(uint64_t set_folder);

 private:
  struct Retry {
    double at = 0;
    double pause = 0;
  };
  struct OpenName {
    std::shared_ptr<OpenSet> set;
    Retry retry;
  };
  /// A job's folder. What it has of committed sets are those that somebody has asked for.
  struct Job {
    uint32_t realm = 0;
    std::string name;
    bool spooled = false;  ///< it is there, even without any set
    bool latest_hidden = false;
    std::map<std::string, OpenName> open;
    std::map<uint64_t, std::shared_ptr<StoredSet>> stored;
    /// Names that open sets had, of the sets that they became.
    std::map<std::string, uint64_t> aliases;
    std::map<uint32_t, uint64_t> alias_links;  ///< their numbers
  };
  /// What a number in the upper half of an inode stands for.
  struct Realm {
    std::shared_ptr<Job> job;        ///< a job's folder, or
    std::shared_ptr<SetFolder> set;  ///< a set's
    std::shared_ptr<Job> job_of_set;
  };

  MountResult<Realm> realm_of(uint64_t inode) const;
  MountResult<std::shared_ptr<SetFolder>> set_of(uint64_t inode) const;
  uint32_t new_realm(Realm realm) VARVE_REQUIRES(mutex_);
  std::shared_ptr<Job> job_named(const std::string& name);
  MountResult<std::shared_ptr<Job>> find_job(const std::string& name);
  MountResult<std::shared_ptr<StoredSet>> stored_set(const std::shared_ptr<Job>& job, uint64_t step);
  std::shared_ptr<OpenSet> open_set(const Job& job, const std::string& name) const;
  NodeView folder_view(uint32_t realm, bool may_change) const;
  NodeView link_view(uint64_t inode, uint64_t step) const;
  MountResult<NodeView> find_in_job(const std::shared_ptr<Job>& job, const std::string& name);
  MountResult<std::vector<ListedName>> list_root();
  MountResult<std::vector<ListedName>> list_job(const std::shared_ptr<Job>& job);
  MountResult<NodeView> make_job_folder(const std::string& name);
  MountResult<NodeView> make_set_folder(const std::shared_ptr<Job>& job, const std::string& name);
  Errno remove_job_folder(const std::string& name);
  Errno remove_set_folder(const std::shared_ptr<Job>& job, const std::string& name);
  Errno drop(const std::shared_ptr<Job>& job, uint64_t step);
  Errno rename_set(const std::shared_ptr<Job>& job, const std::string& name, const std::string& new_name);
  Status take_up_set(const std::shared_ptr<Job>& job, SpooledSet spooled);
  Result<std::shared_ptr<OpenSet>> adopt_open_set(const std::shared_ptr<Job>& job, SpooledSet spooled);
  Status seal_as(const std::shared_ptr<Job>& job, const std::shared_ptr<OpenSet>& set, const std::string& alias,
                 double quiet_seconds);
  void show_sealed(const std::shared_ptr<Job>& job, const std::shared_ptr<OpenSet>& set, const SetRecord& record,
                   const std::string& alias);
  void empty_trash_soon();
  void serve();

  const Store& store_;
  const Spool* const spool_;
  SetCommit* const commit_;
  Clock& clock_;
  const MountLog& log_;
  const MountedStoreOptions options_;
  const Catalog catalog_;
  StoredData data_;
  const timespec started_;  ///< what folders without a time of their own show

  mutable Mutex mutex_;  ///< guards all jobs too; nothing is waited for under it
  uint32_t next_realm_ VARVE_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint32_t, Realm> realms_ VARVE_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Job>> jobs_ VARVE_GUARDED_BY(mutex_);

  Mutex serving_mutex_;
  ConditionVariable wake_;
  bool ending_ VARVE_GUARDED_BY(serving_mutex_) = false;
  bool trash_ VARVE_GUARDED_BY(serving_mutex_) = true;
  Thread server_;
};

}  // namespace varve
