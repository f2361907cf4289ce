#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/clock.h"
#include "core/sync.h"
#include "mount/open_set.h"
#include "mount/sealing.h"
#include "mount/stored_set.h"
#include "store/catalog.h"

namespace varve {

class JobFolder;

struct MountedStoreOptions {
  uint64_t memory_bytes = 256_MiB;  ///< of what is read
  uint32_t read_ahead_threads = 2;
  bool may_remove = true;    ///< sets can be dropped
  double seal_seconds = 30;  ///< an open set is sealed when nothing has come for so long; 0: never by itself
  OpenFolderOptions open_sets;
  MountOwner owner;
  std::string disk_folder;                            ///< whose disk statfs() tells of
  std::function<void(const SetName&)> note_sealed{};  ///< called for each set that was sealed, from several threads
};

/// What the number in the upper half of an inode stands for: the root, a job's folder, or a set's.
struct Realm {
  std::shared_ptr<MountedFolder> folder;
  std::shared_ptr<JobFolder> job;  ///< of a set
  std::shared_ptr<OpenSet> open;   ///< if it is one; else a set is committed
};

/// The realms of a mount by their numbers, which are never used again. Thread-safe.
class Realms {
 public:
  /// A number that leads nowhere yet.
  uint32_t take_number();
  /// From now on the number leads there.
  void set(uint32_t number, Realm realm);
  /// ESTALE: it leads nowhere.
  MountResult<Realm> at(uint32_t number) const;

 private:
  mutable Mutex mutex_;
  uint32_t next_ VARVE_GUARDED_BY(mutex_) = 1;
  std::unordered_map<uint32_t, Realm> realms_ VARVE_GUARDED_BY(mutex_);
};

/// The thread that empties a spool's trash, and now and then has sets sealed that have become quiet. Thread-safe, but
/// for start() and stop().
class SpoolKeeper {
 public:
  SpoolKeeper() = default;
  SpoolKeeper(const SpoolKeeper&) = delete;
  SpoolKeeper& operator=(const SpoolKeeper&) = delete;
  ~SpoolKeeper() { stop(); }

  /// `spool` outlives it, as does what `seal_quiet_sets` uses.
  Status start(const Spool& spool, std::function<void()> seal_quiet_sets);
  void stop();
  void empty_trash_soon();

 private:
  void run(const Spool& spool, const std::function<void()>& seal_quiet_sets);

  Mutex mutex_;
  ConditionVariable wake_;
  bool ending_ VARVE_GUARDED_BY(mutex_) = false;
  bool trash_ VARVE_GUARDED_BY(mutex_) = true;
  Thread thread_;
};

/// What all folders of a mount work with. Thread-safe.
struct MountContext {
  /// `spool` and `commit`: null for a mount that only reads. All outlive this.
  MountContext(const Store& store, const Spool* spool, SetCommit* commit, Clock& clock, const MountLog& log,
               MountedStoreOptions options);

  bool is_read_only() const { return spool == nullptr; }
  /// Of a folder, or a link to a step, of whose owner and time nothing is recorded.
  NodeView folder_view(uint64_t inode) const;
  NodeView link_view(uint64_t inode, uint64_t step) const;

  const Store& store;
  const Spool* const spool;
  SetCommit* const commit;
  Clock& clock;
  const MountLog& log;
  const MountedStoreOptions options;
  const Catalog catalog;
  const timespec started;  ///< what is shown for a time that is not recorded
  StoredData stored;
  Realms realms;
  SpoolKeeper keeper;
};

}  // namespace varve
