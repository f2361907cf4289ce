#pragma once

#include <sys/statvfs.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mount/job_folder.h"
#include "mount/mount_context.h"

namespace varve {

/// A store as a tree of folders: jobs, in each its sets, committed and open, in each its files. Everything is named by
/// inode numbers, as the kernel asks; the numbers of what somebody knows stay the same, also while a set is sealed.
/// Verbs are those of MountedFolder.
///
/// The glue to FUSE and tests call it, from several threads.
class MountedStore {
 public:
  static constexpr uint64_t kRoot = MountedFolder::kTop;  ///< of realm 0

  /// `spool` and `commit`: null for a mount that only reads. All outlive this.
  MountedStore(const Store& store, const Spool* spool, SetCommit* commit, Clock& clock, const MountLog& log,
               MountedStoreOptions options);
  /// A seal that is under way is given up.
  ~MountedStore();
  MountedStore(const MountedStore&) = delete;
  MountedStore& operator=(const MountedStore&) = delete;

  /// Takes up what the spool holds from an earlier mount. Before anything else.
  Status take_up_spool();
  /// Starts the thread that seals sets which have become quiet. Not before the process has forked for the last time.
  Status start_sealing();
  /// Seals the sets that have become quiet, now. What fails is tried again later, ever less often.
  void seal_quiet_sets();

  MountResult<NodeView> look(uint64_t inode);
  MountResult<NodeView> find(uint64_t folder, const std::string& name);
  void forget(uint64_t inode, uint64_t count);
  MountResult<std::vector<ListedName>> list(uint64_t folder);
  MountResult<std::string> read_link(uint64_t inode);
  MountResult<std::unique_ptr<OpenFile>> open(uint64_t inode, int flags);
  /// Nobody uses the file any more. If it was cut off, its set is not sealed by itself.
  void release(uint64_t inode, std::unique_ptr<OpenFile> file);
  Errno sync_folder(uint64_t inode);
  MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> create(uint64_t folder, const std::string& name,
                                                                     int flags, uint32_t mode);
  MountResult<NodeView> make_folder(uint64_t folder, const std::string& name, uint32_t mode);
  MountResult<NodeView> make_link(uint64_t folder, const std::string& name, const std::string& target);
  /// Of the folder of a committed set from which everything was removed: drops the set.
  Errno remove(uint64_t folder, const std::string& name, int flags);
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
  /// What an inode stands for.
  struct Place {
    std::shared_ptr<MountedFolder> folder;
    uint32_t id = 0;
  };
  enum class Use : uint8_t { look, change };
  /// EROFS: nothing can be changed in this mount.
  MountResult<Place> place_of(uint64_t inode, Use use = Use::look) const;

  MountContext context_;
  const std::shared_ptr<RootFolder> root_;
  std::atomic<bool> told_of_unseen_{false};  ///< the log says that programs cannot be seen
};

}  // namespace varve
