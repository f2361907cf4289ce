#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.h"
#include "core/process.h"
#include "core/sync.h"
#include "mount/mount_run.h"
#include "mount/set_folder.h"
#include "mount/spool.h"

namespace varve {

class SpoolFile;

struct OpenSetOptions {
  /// Whether a file that was closed may be opened for writing again. One of no bytes always may.
  bool reopen = false;
  /// How long to wait for the kernel to say that a file which a program has closed is no longer used.
  double release_seconds = 1.0;
};

/// A set that programs write: its files lie in the spool, where nobody but this object changes anything. Stages:
///
///     open -> sealing -> sealed
///       ^--------'  the seal failed
///
/// While it is being sealed, nothing can be changed (EBUSY); once it is sealed, only files that were open can still be
/// read. Thread-safe.
class OpenSet final : public SetFolder, public std::enable_shared_from_this<OpenSet> {
 public:
  /// Of a folder of the spool, with all that is in it already. What the last mount left in writing makes the set
  /// unfinished, which is noted in the spool. `spool`, `clock` and `log` outlive it.
  static Result<std::shared_ptr<OpenSet>> load(uint32_t realm, SpooledSet spooled, const Spool& spool, Clock& clock,
                                               const MountLog& log, OpenSetOptions options);

  uint32_t realm() const { return realm_; }
  NodeView top();
  SpooledSet spooled() const;
  /// The folder's name in the mount becomes another one. busy: it is being sealed.
  Status set_name(const std::string& name);

  struct State {
    uint64_t files = 0, bytes = 0;  ///< regular ones
    uint64_t writers = 0;           ///< open for writing
    double quiet_seconds = 0;       ///< since anything came
    bool sealing = false;
    bool unfinished = false;
    Status failure;  ///< of the last attempt to seal it
  };
  State state() const;
  bool is_empty() const;

  /// From now on nothing changes. EIO: a sync of a file has failed. EBUSY: a file is open for writing, something came
  /// in the last `quiet_seconds`, or it is being sealed already.
  Errno begin_sealing(double quiet_seconds = 0);
  /// It failed: everything may change again.
  void give_up_sealing(const Status& why);
  void finish_sealing();
  /// All names with their numbers; "" is the folder itself.
  std::vector<std::pair<std::string, uint32_t>> numbers() const;

  MountResult<NodeView> look(uint32_t id) override;
  MountResult<NodeView> find(uint32_t folder, const std::string& name) override;
  void forget(uint32_t id, uint64_t count) override;
  MountResult<std::vector<ListedName>> list(uint32_t folder) override;
  MountResult<std::string> read_link(uint32_t id) override;
  MountResult<std::unique_ptr<OpenFile>> open(uint32_t id, int flags) override;
  Errno sync_folder(uint32_t id) override;
  MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> create(uint32_t folder, const std::string& name,
                                                                     int flags, uint32_t mode) override;
  MountResult<NodeView> make_folder(uint32_t folder, const std::string& name, uint32_t mode) override;
  MountResult<NodeView> make_link(uint32_t folder, const std::string& name, const std::string& target) override;
  Errno remove(uint32_t folder, const std::string& name) override;
  Errno remove_folder(uint32_t folder, const std::string& name) override;
  Errno rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
               unsigned flags) override;
  MountResult<NodeView> change(uint32_t id, const AttributeChange& change, OpenFile* file) override;

 private:
  friend class SpoolFile;
  enum class Stage : uint8_t { open, sealing, sealed };
  struct Entry {
    uint32_t parent = 0;
    std::string name;
    uint32_t type = S_IFREG;  ///< S_IFREG, S_IFDIR or S_IFLNK
    std::map<std::string, uint32_t> children;
    uint64_t spool_inode = 0;
    uint64_t known = 0;  ///< how often it was found and not forgotten
    uint32_t writers = 0;
    bool linked = true;          ///< it still has its name
    bool closed = false;         ///< it was written, and no longer may be
    bool lost = false;           ///< a sync of it failed: nobody knows which of its bytes the disk has
    bool names_unsynced = true;  ///< of a folder: not all of its names are durable
    bool names_lost = false;     ///< of a folder: a sync of it failed, and a second one would prove nothing
    std::vector<SpoolFile*> files;
  };

  OpenSet(uint32_t realm, SpooledSet spooled, const Spool& spool, Clock& clock, const MountLog& log,
          OpenSetOptions options)
      : realm_(realm), spool_(spool), clock_(clock), log_(log), options_(options), spooled_(std::move(spooled)) {}

  Status load_folder(uint32_t id, const std::string& path, const std::set<uint64_t>& left_open, bool& any_left_open)
      VARVE_REQUIRES(mutex_);
  Entry* entry(uint32_t id) VARVE_REQUIRES(mutex_);
  std::string path_of(uint32_t id) const VARVE_REQUIRES(mutex_);
  MountResult<struct stat> stat_of(uint32_t id) const VARVE_REQUIRES(mutex_);
  MountResult<NodeView> view(uint32_t id, bool found) VARVE_REQUIRES(mutex_);
  MountResult<std::string> place_for(uint32_t folder, const std::string& name) VARVE_REQUIRES(mutex_);
  uint32_t add(uint32_t folder, const std::string& name, uint32_t type, uint64_t spool_inode) VARVE_REQUIRES(mutex_);
  void unlink_entry(uint32_t id) VARVE_REQUIRES(mutex_);
  void tidy(uint32_t id) VARVE_REQUIRES(mutex_);
  Errno may_change() const VARVE_REQUIRES(mutex_);
  MountResult<std::unique_ptr<OpenFile>> open_path(uint32_t id, const std::string& path, int flags, uint32_t mode,
                                                   bool writes) VARVE_REQUIRES(mutex_);
  bool may_write(uint32_t id) VARVE_REQUIRES(mutex_);
  bool all_released_soon() VARVE_REQUIRES(mutex_);
  Errno truncate_closed(uint32_t id, uint64_t bytes) VARVE_REQUIRES(mutex_);
  void note_change() { changed_at_.store(clock_.seconds(), std::memory_order_relaxed); }
  std::vector<std::pair<uint32_t, UniqueFd>> unsynced_folders(uint32_t id) VARVE_REQUIRES(mutex_);

  Errno sync_names(uint32_t id);
  void note_lost(uint32_t id);
  bool is_lost(uint32_t id);
  void released(SpoolFile& file);

  const uint32_t realm_;
  const Spool& spool_;
  Clock& clock_;
  const MountLog& log_;
  const OpenSetOptions options_;
  UniqueFd files_;  ///< the folder of files; constant from load() on
  std::atomic<double> changed_at_{0};

  /// Held while folders are synced: who finds them clean knows that they are.
  Mutex syncing_ VARVE_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  ConditionVariable released_;
  SpooledSet spooled_ VARVE_GUARDED_BY(mutex_);
  std::optional<WriterJournal> journal_ VARVE_GUARDED_BY(mutex_);
  Stage stage_ VARVE_GUARDED_BY(mutex_) = Stage::open;
  Status failure_ VARVE_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, Entry> entries_ VARVE_GUARDED_BY(mutex_);
  uint32_t next_id_ VARVE_GUARDED_BY(mutex_) = kTop + 1;
};

/// A file of an open set that a program has open. What it holds can be read even after the set was sealed.
class SpoolFile final : public OpenFile {
 public:
  SpoolFile(std::shared_ptr<OpenSet> set, uint32_t id, UniqueFd descriptor, bool writes)
      : set_(std::move(set)), id_(id), descriptor_(std::move(descriptor)), writes_(writes) {}
  ~SpoolFile() override { set_->released(*this); }
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  uint32_t id() const { return id_; }
  bool writes() const { return writes_; }
  /// Whether nothing was written since a program closed a descriptor of it.
  bool is_flushed() const { return flushed_.load(std::memory_order_relaxed); }

  MountResult<size_t> read(uint64_t offset, MutableByteSpan into) override;
  MountResult<uint64_t> seek(uint64_t offset, int whence) override;
  int descriptor() const override { return descriptor_.get(); }
  Errno begin_write() override;
  Errno allocate(int mode, uint64_t offset, uint64_t bytes) override;
  Errno sync(bool data_only) override;
  void flushed() override { flushed_.store(true, std::memory_order_relaxed); }

 private:
  const std::shared_ptr<OpenSet> set_;
  const uint32_t id_;
  const UniqueFd descriptor_;
  const bool writes_;
  std::atomic<bool> flushed_{false};
};

}  // namespace varve
