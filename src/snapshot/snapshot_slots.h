#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "snapshot/slot_description.h"

namespace varve {

/// The grids of a rank: shared memory that the program computes in, and lends. One thread at a time.
class GridPool {
 public:
  enum class Use {
    program,   ///< the program's, to read and write
    spare,     ///< nobody's
    lent,      ///< for the next checkpoint; the program may read it
    snapshot,  ///< a slot refers to it
  };
  struct Grid {
    std::string name;
    SharedSegment memory;
    uint64_t bytes = 0;  ///< that were asked for
    Use use = Use::program;
    uint64_t fill_number = 0;  ///< of the snapshot that refers to it; 0: none
  };

  GridPool(SegmentOwner owner, uint32_t spares) : owner_(std::move(owner)), spares_(spares) {}

  /// Zeroed and touched. With the second grid of a name come its spares. invalid_argument: earlier ones of that name
  /// have another size; no_space.
  Result<std::byte*> make(std::string_view name, uint64_t bytes);
  /// Makes the spares of a name that are not there yet.
  Status make_spares(std::string_view name);
  /// The number of the grid that begins at `data`.
  std::optional<uint32_t> find(std::string_view name, const std::byte* data) const;
  /// One of that name that the program may have: a spare, or that of the oldest snapshot that is drained.
  std::optional<uint32_t> find_free(std::string_view name,
                                    const std::function<bool(uint64_t fill_number)>& is_drained) const;
  Grid& at(uint32_t grid) { return grids_[grid]; }
  const Grid& at(uint32_t grid) const { return grids_[grid]; }
  /// Removes the files; the memory stays mapped to the end.
  Status unlink() const;

 private:
  uint32_t size() const { return static_cast<uint32_t>(grids_.size()); }
  Status add(std::string_view name, uint64_t bytes, Use use);

  SegmentOwner owner_;
  uint32_t spares_;
  std::deque<Grid> grids_;  ///< by number; none ever goes, since the program has its address
};

/// A place for one snapshot.
struct SnapshotSlot {
  SharedSegment memory;
  uint64_t image_number = 0;  ///< of the table for which `description` was made; 0: none
  SlotDescription description;
  std::vector<uint32_t> lent;  ///< grids that it refers to
  bool usable = true;          ///< there was room for it, so far
  bool spilled = false;        ///< it is not in the family's folder
};

/// The slots of a rank, and where each has its memory. Where the memory has no room for a second slot, there is one;
/// where it has none for that, it goes to the first of the family's spill folders that has, and back when there is room
/// again. One thread at a time.
class SnapshotSlots {
 public:
  /// `control`, which has the slots' states, and `grids` outlive it. With `second_is_extra` the first slot alone is
  /// used until somebody has made room for the second.
  SnapshotSlots(SegmentOwner owner, uint32_t count, bool second_is_extra, const ControlBlock& control, GridPool& grids)
      : owner_(std::move(owner)), second_is_extra_(second_is_extra), control_(control), grids_(grids), slots_(count) {}

  uint32_t count() const { return static_cast<uint32_t>(slots_.size()); }
  SnapshotSlot& at(uint32_t slot) { return slots_[slot]; }
  /// The one to fill next; none while all wait to be written.
  std::optional<uint32_t> find_free() const;
  /// The one that had this fill last.
  std::optional<uint32_t> find_fill(uint64_t fill_number) const;
  /// Of the snapshots that are complete and restartable.
  std::optional<uint64_t> newest_step() const;

  /// Takes a free slot into use again that was given up, and into memory one that is spilled, if there is room now: it
  /// may have been short for a moment, while what a dead run had left was still there.
  void come_back(uint32_t slot);
  /// Makes a free slot at least that large. busy: it was given up for the other one, which must be waited for;
  /// SharedSegment::lacks_room(): there is no room anywhere. Then it is empty; so is a slot that had to make room.
  Status make_room(uint32_t slot, uint64_t bytes);
  /// Whether that slot is used at all.
  bool is_in_use(uint32_t slot) const { return slot == 0 || !second_is_extra_ || slots_[slot].memory.valid(); }
  /// Makes the second slot as large as the first, if that leaves plenty of memory to all: so many ranks of this machine
  /// may do the same.
  void make_second(uint32_t rank_count);
  /// What make_room() lacked since this was asked last; OK: nothing.
  Status take_shortage() { return std::exchange(shortage_, Status()); }

  /// What comes into a free slot, which gives back the grids of its snapshot before.
  void describe(uint32_t slot, SlotDescription description);
  /// Of a free slot, which gives back the grids of its snapshot before. Until the fill ends, there is none in it.
  void begin_fill(uint32_t slot, const CheckpointId& checkpoint);
  /// A free slot, which gives back its grids, has no snapshot any more.
  void empty(uint32_t slot);
  /// The snapshot refers to these grids, which were lent for it.
  void refer_to(uint32_t slot, std::vector<uint32_t> grids);
  /// Removes the files.
  Status unlink() const;

 private:
  bool may_be_used(uint32_t slot) const;
  Status make_in_memory(uint32_t slot, uint64_t bytes);
  Status do_with_one(uint32_t slot, uint64_t bytes, const Status& why);
  Status spill(uint32_t slot, uint64_t bytes, const Status& why);
  void drop(uint32_t slot);
  void release_grids(SnapshotSlot& slot);
  void note_shortage(const Status& why, std::string_view consequence);

  const SegmentOwner owner_;
  const bool second_is_extra_;
  const ControlBlock& control_;
  GridPool& grids_;
  std::vector<SnapshotSlot> slots_;
  uint64_t next_fill_number_ = 1;
  Status shortage_;
  std::string last_consequence_;  ///< of a shortage: told once
};

}  // namespace varve
