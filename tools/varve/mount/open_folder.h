#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/process.h"
#include "core/sync.h"
#include "mount/mounted_folder.h"
#include "mount/spool_tree.h"

namespace varve {

struct OpenFolderOptions {
  /// How long to wait for the kernel to say that a file which a program has closed is no longer used.
  double release_seconds = 1.0;
};

/// When something was last changed. Thread-safe.
class LastChange {
 public:
  /// Now. `clock` outlives it.
  explicit LastChange(Clock& clock) : clock_(clock), at_(clock.seconds()) {}
  void note() { at_.store(clock_.seconds(), std::memory_order_relaxed); }
  double quiet_seconds() const { return clock_.seconds() - at_.load(std::memory_order_relaxed); }

 private:
  Clock& clock_;
  std::atomic<double> at_;
};

/// The folder of an open set, with the files that programs write: nobody but this object changes anything in the
/// spool's tree. While it is frozen, nothing can be changed (EBUSY), and files can be read. Thread-safe.
class OpenFolder final : public MountedFolder, public std::enable_shared_from_this<OpenFolder> {
 public:
  /// `attempted`: the spool may have a note of an attempt to seal the set as it is. `forget_attempt` removes it,
  /// durably. `clock` outlives it.
  OpenFolder(SpoolTree tree, Clock& clock, OpenFolderOptions options, bool attempted,
             std::function<Status()> forget_attempt)
      : options_(options),
        forget_attempt_(std::move(forget_attempt)),
        changed_(clock),
        tree_(std::move(tree)),
        attempted_(attempted) {}

  struct Tally {
    uint64_t files = 0, bytes = 0;  ///< regular ones
    uint64_t writers = 0;           ///< open for writing
    uint64_t cut_short = 0;         ///< of which a write has failed, and was not made again
    double quiet_seconds = 0;       ///< since anything came
  };
  Tally tally() const;

  /// From now on nothing changes. EIO: a file has lost something (lost_file()). EBUSY: a file is open for writing,
  /// something came in the last `quiet_seconds`, or it is frozen already.
  Errno freeze(double quiet_seconds);
  /// The path of a file of which something that was written is lost: a sync of it has failed, or the disk had no room
  /// for what a program changed through memory. Until it is removed, the set is not sealed. None: there is no such
  /// file.
  std::optional<std::string> lost_file() const;
  /// io_error if the kernel has failed to write anything of the files to their disk, and nobody has been told: what it
  /// gives for their bytes may then be what was there before. It says so once: the file counts as lost. Asks, and
  /// writes nothing.
  Status check_written_back();
  void thaw();
  /// Before the set's own name changes. EBUSY: it is frozen.
  Errno prepare_rename();

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
  Errno remove(uint32_t folder, const std::string& name, int flags) override;
  Errno rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
               unsigned flags) override;
  MountResult<NodeView> change(uint32_t id, const AttributeChange& change, OpenFile* file) override;

 private:
  friend class SpoolFile;
  void released(SpoolFile& file);
  bool has_lost(uint32_t id) const;
  void note_lost(uint32_t id);
  /// Before each change. EBUSY: it is frozen. What the last attempt to seal the set has committed, if anything, is no
  /// more what the set will be: without its note, no later mount takes the one for the other.
  Errno begin_change() VARVE_REQUIRES(mutex_);

  const OpenFolderOptions options_;
  const std::function<Status()> forget_attempt_;
  LastChange changed_;

  /// Held while folders are synced: who finds them clean knows that they are.
  Mutex syncing_ VARVE_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  ConditionVariable released_;
  SpoolTree tree_ VARVE_GUARDED_BY(mutex_);
  bool frozen_ VARVE_GUARDED_BY(mutex_) = false;
  bool attempted_ VARVE_GUARDED_BY(mutex_);
};

/// A file of an open set that a program has open. What it holds can be read even after the set was sealed.
class SpoolFile final : public OpenFile {
 public:
  SpoolFile(std::shared_ptr<OpenFolder> folder, uint32_t id, UniqueFd descriptor, bool writes)
      : folder_(std::move(folder)), id_(id), descriptor_(std::move(descriptor)), writes_(writes) {}
  ~SpoolFile() override { folder_->released(*this); }
  SpoolFile(const SpoolFile&) = delete;
  SpoolFile& operator=(const SpoolFile&) = delete;

  uint32_t id() const { return id_; }
  bool writes() const override { return writes_; }
  /// Whether nothing was written since a program closed a descriptor of it.
  bool is_flushed() const { return flushed_.load(std::memory_order_relaxed); }

  MountResult<size_t> read(uint64_t offset, MutableByteSpan into) override;
  MountResult<uint64_t> seek(uint64_t offset, int whence) override;
  int descriptor() const override { return descriptor_.get(); }
  Errno begin_write() override;
  void write_failed(uint64_t offset, bool in_memory) override;
  void note_written(uint64_t offset, uint64_t bytes) override;
  Errno allocate(int mode, uint64_t offset, uint64_t bytes) override;
  Errno sync(bool data_only) override;
  void flushed(ClosedBy who) override {
    flushed_.store(true, std::memory_order_relaxed);
    closed_by_.store(who, std::memory_order_relaxed);
  }
  ClosedBy last_closed_by() const override {
    return writes_ ? closed_by_.load(std::memory_order_relaxed) : ClosedBy::program;
  }
  bool has_failed_write() const override { return missing_from_.load() != kNothing; }

 private:
  const std::shared_ptr<OpenFolder> folder_;
  const uint32_t id_;
  const UniqueFd descriptor_;
  const bool writes_;
  std::atomic<bool> flushed_{false};
  /// From where on a write is missing; in several places: nobody knows when all of it is there.
  static constexpr uint64_t kNothing = UINT64_MAX, kSeveral = UINT64_MAX - 1;
  std::atomic<uint64_t> missing_from_{kNothing};
  std::atomic<ClosedBy> closed_by_{ClosedBy::program};
};

}  // namespace varve
