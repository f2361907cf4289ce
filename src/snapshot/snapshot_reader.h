#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/sync.h"
#include "format/image.h"
#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "snapshot/slot_description.h"

namespace varve {

/// A complete snapshot in shared memory, of this process, another one, or a dead one; or what a program shows of its
/// own memory instead. Reading is for any number of threads at once.
class SnapshotReader {
 public:
  /// Reads the slot in its present state. The slot's file is mapped along with the grids to which it refers.
  /// not_found; corrupt: what it says of itself is not true.
  static Result<std::unique_ptr<SnapshotReader>> open(const SegmentOwner& owner, uint32_t slot,
                                                      SharedSegment::Access access);

  /// Reads what the owner of `control`, which outlives this, shows in that slot now.
  static Result<std::unique_ptr<SnapshotReader>> open_shown(const SegmentOwner& owner, const ControlBlock& control,
                                                            uint32_t slot);

  uint64_t step() const { return description_.step; }
  uint64_t fill_number() const { return description_.fill_number; }
  const ImageTable& image() const { return image_; }

  /// Bytes of the image, dense. corrupt past its end.
  Status read(uint64_t offset, MutableByteSpan into) const;
  /// As many of them as lie together from `offset` on, without a copy; at most `bytes_max`. None if they are shown.
  ByteSpan view(uint64_t offset, uint64_t bytes_max) const;

  /// Whether every block has its checksum. corrupt naming the first variable that is damaged.
  Status verify() const;
  /// Puts all of the image where it belongs, on up to `thread_count` threads, and checks it on the way: corrupt as
  /// verify() says, when some of it is there already.
  Status load(size_t thread_count, ImageTarget& target) const;
  /// The checkpoint thread's: sums the lent grids, which stage 1 left out. Opened with read_write only.
  void sum_lent_grids();
  bool has_lent_grids() const;
  /// What was looked at so far, or what of `viewed` is of this snapshot, counts as this process's memory no more, until
  /// it is looked at again.
  void leave_pages() const;
  void leave_pages(ByteSpan viewed) const;
  /// Whether all of it is where the run's memory is, or at least in memory: a restart may count on it.
  bool in_memory() const;

 private:
  friend class SnapshotView;

  struct MappedPart {
    const std::byte* base = nullptr;  ///< of its segment
    uint64_t first_crc = 0;
  };

  explicit SnapshotReader(SegmentOwner owner) : owner_(std::move(owner)) {}
  /// Reads what the slot holds now; what is mapped stays mapped.
  Status reload();
  Status map_parts();
  Status read_table();
  size_t part_at(uint64_t offset) const;
  uint32_t block_crc(size_t part, uint64_t block, MutableByteSpan scratch) const;
  Status check_crc(size_t part, uint64_t block, uint32_t crc) const;
  Status load_block(size_t part, uint64_t block, ImageTarget& target) const;
  std::string variable_at(uint64_t offset) const;

  const SegmentOwner owner_;
  SlotDescription description_;
  ImageTable image_;
  SharedSegment slot_;
  std::map<uint32_t, SharedSegment> grids_;
  std::vector<MappedPart> mapped_;  ///< for each part
  const ControlBlock* shown_ = nullptr;
  mutable Mutex shown_mutex_;  ///< one question at a time
};

/// A snapshot that a dead run left on this node. Its checksums have not been looked at yet.
struct LeftSnapshot {
  SegmentOwner owner;
  uint32_t rank_count = 0;  ///< of that run
  size_t ranks_here = 0;    ///< of them, those that were on this node
  uint32_t slot = 0;
  CheckpointId checkpoint{};
  uint64_t fill_number = 0;

  /// corrupt: it is not what it says. Its blocks are still to be checked.
  Result<std::unique_ptr<SnapshotReader>> open() const;
  /// The same, and verifies it.
  Result<std::unique_ptr<SnapshotReader>> open_verified() const;
  /// Has it be none any more, and its memory given back. busy: its process lives. One that is gone is fine.
  Status remove() const;
};

/// What dead runs of a job left on this node.
struct LeftRuns {
  std::vector<UniqueId> runs;
  std::vector<UniqueId> ended{};        ///< of these, those that are over on all nodes, as a rank here has said
  std::vector<LeftSnapshot> snapshots;  ///< that are complete; newest step first

  /// A rank's, newest first.
  std::vector<LeftSnapshot> of_rank(uint32_t rank) const;
};

/// What these have, who may live, as long as none of it is being written. Fails as find_left_runs() does.
Result<std::vector<LeftSnapshot>> find_snapshots(const std::vector<SegmentOwner>& owners);

/// Looks through the folders of these families, which are one job's (SegmentFamily::memory_places()), for runs other
/// than `own`. busy: one of them lives, or may ("job is running already"). What cannot be made sense of belongs to its
/// run, and offers no snapshot; what cannot be opened or mapped now, as memory or descriptors are short, may be a
/// checkpoint: a failure. A folder that is not there has nothing.
Result<LeftRuns> find_left_runs(std::span<const SegmentFamily> places, const UniqueId& own);
inline Result<LeftRuns> find_left_runs(const SegmentFamily& family, const UniqueId& own) {
  return find_left_runs(std::span(&family, 1), own);
}

/// What a job has in the memory of this node.
struct MemoryUse {
  uint64_t bytes = 0;
  bool running = false;                 ///< a run of the job lives; if it began with it, what it has is not told
  std::optional<uint64_t> newest_step;  ///< that a dead run left
  uint32_t rank_count = 0;              ///< of that run
};
Result<MemoryUse> memory_use(const SegmentFamily& family);

/// Removes all files of these runs, as find_left_runs() has found them, unless one of them lives again. Several ranks
/// may do it at once.
Status remove_left_runs(std::span<const SegmentFamily> places, const std::vector<UniqueId>& runs);
inline Status remove_left_runs(const SegmentFamily& family, const std::vector<UniqueId>& runs) {
  return remove_left_runs(std::span(&family, 1), runs);
}

}  // namespace varve
