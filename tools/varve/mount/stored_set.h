#pragma once

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/sync.h"
#include "mount/mount_run.h"
#include "mount/mounted_folder.h"
#include "mount/pack_cache.h"
#include "mount/set_listing.h"
#include "mount/spool.h"

namespace varve {

/// A file of a committed set that a program reads. What cannot be read whole is EIO, and a line of the log. Reads ahead
/// while the file is read in sequence.
class StoredFile final : public OpenFile {
 public:
  /// `name` is for the log.
  StoredFile(std::shared_ptr<const FileMap> map, PackCache& packs, const MountLog& log, std::string name)
      : map_(std::move(map)), packs_(packs), log_(log), name_(std::move(name)) {}

  MountResult<size_t> read(uint64_t offset, MutableByteSpan into) override;
  MountResult<uint64_t> seek(uint64_t offset, int whence) override;

 private:
  void read_ahead(uint64_t offset, uint64_t end);

  const std::shared_ptr<const FileMap> map_;
  PackCache& packs_;
  const MountLog& log_;
  const std::string name_;

  Mutex mutex_;
  uint64_t sequence_end_ VARVE_GUARDED_BY(mutex_) = 0;  ///< where the reads so far have come to
  size_t next_ahead_ VARVE_GUARDED_BY(mutex_) = 0;      ///< the first piece that was not read ahead
};

/// What all committed sets of a mount share: their store, and what of it is held in memory. Thread-safe.
struct StoredData {
  /// `memory_bytes`: of all caches together, about. `store` and `log` outlive this.
  StoredData(const Store& store, const MountLog& log, uint64_t memory_bytes, size_t read_ahead_threads);

  const Store& store;
  const MountLog& log;
  SharedCache<Score, const Leaf, ScoreHash> leaves;
  SharedCache<uint32_t, const SetListing> listings;  ///< by the set's number in the mount
  SharedCache<uint64_t, const FileMap> maps;         ///< by inode
  PackCache packs;                                   ///< last: its threads read from the store
};

/// To whom everything seems to belong: nobody is recorded.
struct MountOwner {
  uid_t user = 0;
  gid_t group = 0;
};

/// The numbers of the names of a committed set: one more than the ordinal in its listing, or what programs know them by
/// since the set was open.
class SetNumbers {
 public:
  /// By which number each path is known already; "" is the set's own folder.
  using Known = std::vector<std::pair<std::string, uint32_t>>;

  SetNumbers() = default;
  /// corrupt: a name that is known is not in the set.
  static Result<SetNumbers> adopt(const SetListing& listing, const Known& known);

  uint32_t id_of(uint32_t ordinal) const;
  MountResult<uint32_t> ordinal_of(uint32_t id) const;

 private:
  std::vector<uint32_t> adopted_ids_;  ///< empty: none were adopted
  std::unordered_map<uint32_t, uint32_t> adopted_ordinals_;
};

/// The names of a committed set, by ordinal, that were removed: they are in the store until the whole set is dropped.
/// Thread-safe.
class HiddenNames {
 public:
  bool has(uint32_t ordinal) const;
  bool has_all(const std::vector<uint32_t>& ordinals) const;
  void add(uint32_t ordinal);

 private:
  mutable Mutex mutex_;
  std::set<uint32_t> ordinals_ VARVE_GUARDED_BY(mutex_);
};

/// A committed set as a folder of files that can be read, and, as `rm -r` takes files away before their folder, hidden.
class StoredSet final : public MountedFolder {
 public:
  /// `realm`: the set's number in the mount. `may_hide`: else nothing can be removed.
  StoredSet(uint32_t realm, SetRecord record, StoredData& data, MountOwner owner, bool may_hide)
      : realm_(realm), record_(std::move(record)), data_(data), owner_(owner), may_hide_(may_hide) {}

  /// For a set that was open just now: everything keeps the number that programs know it by. Before the first use.
  Status adopt(const SetNumbers::Known& known);

  uint32_t realm() const { return realm_; }
  const SetRecord& record() const { return record_; }
  /// Whether everything is hidden.
  MountResult<bool> is_cleared();

  MountResult<NodeView> look(uint32_t id) override;
  MountResult<NodeView> find(uint32_t folder, const std::string& name) override;
  MountResult<std::vector<ListedName>> list(uint32_t folder) override;
  MountResult<std::string> read_link(uint32_t id) override;
  MountResult<std::unique_ptr<OpenFile>> open(uint32_t id, int flags) override;
  Errno remove(uint32_t folder, const std::string& name, int flags) override;

  // What was committed never changes.
  MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> create(uint32_t, const std::string&, int,
                                                                     uint32_t) override {
    return Errno{EROFS};
  }
  MountResult<NodeView> make_folder(uint32_t, const std::string&, uint32_t) override { return Errno{EROFS}; }
  MountResult<NodeView> make_link(uint32_t, const std::string&, const std::string&) override { return Errno{EROFS}; }
  Errno rename(uint32_t, const std::string&, uint32_t, const std::string&, unsigned) override { return {EROFS}; }
  MountResult<NodeView> change(uint32_t, const AttributeChange&, OpenFile*) override { return Errno{EROFS}; }

 private:
  MountResult<std::shared_ptr<const SetListing>> listing();
  NodeView view(const SetListing& listing, uint32_t ordinal) const;
  NodeView top() const;
  MountResult<std::shared_ptr<const FileMap>> map_of(const SetListing& listing, uint32_t ordinal);

  const uint32_t realm_;
  const SetRecord record_;
  StoredData& data_;
  const MountOwner owner_;
  const bool may_hide_;
  SetNumbers numbers_;  ///< constant from the first use on
  HiddenNames hidden_;
};

}  // namespace varve
