#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "snapshot/control_block.h"
#include "snapshot/image_copy.h"
#include "snapshot/shared_segment.h"
#include "snapshot/slot_description.h"
#include "snapshot/variable_table.h"

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
  Grid& at(uint32_t grid) { return grids_[grid]; }
  const Grid& at(uint32_t grid) const { return grids_[grid]; }
  uint32_t size() const { return static_cast<uint32_t>(grids_.size()); }
  /// Removes the files; the memory stays mapped to the end.
  Status unlink() const;

 private:
  Status add(std::string_view name, uint64_t bytes, Use use);

  SegmentOwner owner_;
  uint32_t spares_;
  std::deque<Grid> grids_;  ///< by number; none ever goes, since the program has its address
};

struct SnapshotOptions {
  uint32_t rank_count = 1;
  uint32_t slots = 1;         ///< 1 or 2
  uint32_t copy_threads = 1;  ///< of stage 1, the caller's among them
  bool restartable = true;    ///< the family's folder is a memory, from which a later run may restart
  /// For tests: called between the steps of a fill, with the name of the one that ended.
  std::function<void(std::string_view)> after_step = {};
};

/// The snapshots of one rank: its control segment, slots and grids, and stage 1. The program's thread only; the other
/// side is SnapshotView, in whatever process. Removes its files at its end (not in a process forked from its own).
///
/// Where the memory has no room for a second slot, there is one; where it has none for that, it goes to the first of
/// the family's spill folders that has, and back when there is room again. Such a slot is no place to restart from,
/// unless it is in memory, too. What has no room anywhere can still be shown to the checkpoint thread: show().
class SnapshotMemory {
 public:
  /// invalid_argument; already_exists; no_space; unsupported: the folder is in no memory file system.
  static Result<std::unique_ptr<SnapshotMemory>> create(const SegmentOwner& owner, const SnapshotOptions& options);
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;
  ~SnapshotMemory();

  /// The rank whose process has the checkpoint thread: its bell is rung when a slot is full, and waiting ends when that
  /// process is dead. Before this, only the own bell is rung.
  Status attach_leader(const SegmentOwner& leader);

  /// Makes memory for snapshots of what is protected now, so that the first checkpoint need not. What lies in a grid
  /// will be lent, it supposes.
  Status reserve(VariableTable& variables);

  bool has_free_slot() const;
  /// busy: time ran out; io_error: the process that drains is dead.
  Status wait_for_free_slot(std::chrono::nanoseconds limit) const;

  /// Stage 1: refresh()es the table, copies all of it that is not lent into a free slot, and publishes it. No
  /// allocation, hash or system call per variable unless something changed its size. busy: no slot is free (the lent
  /// grids stay lent). lacks_room(): there is no room anywhere; then and when a callback failed, the slot is empty, and
  /// an earlier snapshot in another slot stays, unless it had to make room.
  Status fill(uint64_t step, VariableTable& variables);
  /// In place of that: lets the checkpoint thread read the program's own memory, and returns when it is done with it;
  /// what came of it is in the news. busy: no slot is free, or `limit` is over; io_error: the process that drains is
  /// dead.
  Status show(uint64_t step, VariableTable& variables, std::chrono::nanoseconds limit);
  static bool lacks_room(const Status& failure) { return SharedSegment::lacks_room(failure); }
  /// What memory was too short for since this was asked last; OK: nothing.
  Status take_shortage() { return std::exchange(shortage_, Status()); }
  /// The checkpoint is left out: what was lent for it is lent no longer.
  void skip(VariableTable& variables);
  /// Tells the checkpoint thread not to wait for a snapshot of this step: fill() failed, or was not called.
  void give_up(uint64_t step);

  /// Session::make_grid() and lend(). lend() gives back only a grid that no snapshot refers to, or whose drain has
  /// ended; then that snapshot cannot be restarted from memory any more.
  Result<std::byte*> make_grid(std::string_view name, uint64_t bytes) { return grids_.make(name, bytes); }
  Result<std::byte*> lend(std::string_view name, std::byte* grid, VariableTable& variables,
                          std::chrono::nanoseconds limit);

  /// Waits until the group has dealt with `step` (GroupNews::finished_step) or a later one; busy and io_error as above.
  Status wait_for_step(uint64_t step, std::chrono::nanoseconds limit) const;
  /// Waits for any change, or the limit. For loops of the caller's own: note bell().count() first.
  Bell& bell() const { return control_.bell(); }
  SlotNews slot(uint32_t slot) const { return control_.slot(slot); }
  uint32_t slot_count() const { return options_.slots; }
  std::optional<GroupNews> news() const { return control_.news(); }
  /// Whether the process with the checkpoint thread lives; true before attach_leader().
  bool leader_alive() const;
  /// The newest step whose snapshot is complete here.
  std::optional<uint64_t> newest_step() const;
  const SegmentOwner& owner() const { return owner_; }

  /// Removes all files now; the grids' memory stays usable until the end.
  Status remove_files();

 private:
  struct Slot {
    SharedSegment memory;
    uint64_t image_number = 0;  ///< of the table for which `description` was made; 0: none
    SlotDescription description;
    std::vector<uint32_t> lent;  ///< grids that it refers to
    bool usable = true;          ///< there was room for it, so far
    bool spilled = false;        ///< it is not in the family's folder
  };

  SnapshotMemory(SegmentOwner owner, SnapshotOptions options);
  std::optional<uint32_t> free_slot() const;
  bool may_be_used(uint32_t slot) const;
  Status make_room(uint32_t slot, uint64_t bytes);
  Status make_room_in_memory(Slot& slot, uint32_t index, uint64_t bytes);
  Status do_with_one_slot(uint32_t slot, uint64_t bytes, const Status& why);
  Status spill(uint32_t slot, uint64_t bytes, const Status& why);
  void come_back(uint32_t slot);
  void drop_memory(uint32_t slot);
  void note_shortage(const Status& why, std::string_view consequence);
  /// Lays the slot out for what is protected now, with room for it.
  Status describe_slot(uint32_t slot, const VariableTable& variables);
  void copy(uint32_t slot, const VariableTable& variables);
  void publish(uint32_t slot, VariableTable& variables);
  void ring() const;
  void release_grids(Slot& slot);
  std::optional<uint32_t> spare_grid(std::string_view name) const;
  bool snapshot_is_drained(uint64_t fill_number) const;
  std::byte* hand_out(uint32_t grid);
  Status wait_until(const std::function<bool()>& done, std::chrono::nanoseconds limit, std::string_view what) const;
  void step_done(std::string_view step) const {
    if (options_.after_step) options_.after_step(step);
  }

  const SegmentOwner owner_;
  const SnapshotOptions options_;
  const int creator_pid_;
  ControlBlock control_;
  ControlBlock leader_;
  std::array<Slot, kSlotsMax> slots_;
  GridPool grids_;
  CopyTeam team_;
  ByteVector encoded_;  ///< the description, kept for its capacity
  uint64_t next_fill_number_ = 1;
  Status shortage_;
  std::string last_consequence_;  ///< of a shortage: told once
};

}  // namespace varve
