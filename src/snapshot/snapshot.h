#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "core/sync.h"
#include "snapshot/control_block.h"
#include "snapshot/image_copy.h"
#include "snapshot/shared_segment.h"
#include "snapshot/snapshot_slots.h"
#include "snapshot/variable_table.h"

namespace varve {

/// What a rank and the checkpoint thread of its group tell each other: the rank's own control segment, and that of the
/// rank whose process has the thread. The program's thread only; the other side is SnapshotView, in whatever process.
class GroupLink {
 public:
  /// Makes the own control segment; fails as ControlBlock::create() does.
  static Result<GroupLink> create(const SegmentOwner& owner, uint32_t rank_count, uint32_t slot_count);

  /// Another rank, whose process has the checkpoint thread: its bell is rung when a slot is full, and waiting ends when
  /// that process is dead. Without one, only the own bell is rung.
  Status attach_leader(const SegmentOwner& leader);
  /// Whether the process with the checkpoint thread lives; true without attach_leader().
  bool leader_alive() const { return !leader_.valid() || leader_.owner_alive(); }

  const ControlBlock& own() const { return own_; }
  /// For loops of the caller's own, which wait for any change: note bell().count() first.
  Bell& bell() const { return own_.bell(); }
  std::optional<GroupNews> news() const { return own_.news(); }

  /// Wakes the checkpoint thread, and who waits here.
  void ring() const;
  /// Tells the checkpoint thread not to wait for a snapshot of this step: none was made, or is going to be.
  void give_up(uint64_t step) const;
  /// Waits until `done`, which is asked at each ring. busy: time ran out while waiting for `what`; io_error: the
  /// process that drains is dead.
  Status wait_until(const std::function<bool()>& done, std::chrono::nanoseconds limit, std::string_view what) const;
  /// Waits until the group has dealt with `step` (GroupNews::finished_step) or a later one; busy and io_error as above.
  Status wait_for_step(uint64_t step, std::chrono::nanoseconds limit) const;

 private:
  ControlBlock own_;
  ControlBlock leader_;
};

struct SnapshotOptions {
  uint32_t rank_count = 1;
  uint32_t slots = 1;  ///< 1 or 2
  /// Of two slots the second is made only when it is wanted: when half of the time to the next checkpoint is over, as
  /// far as that can be foreseen, and the first is not written yet. And only where there is plenty of memory.
  bool second_is_extra = false;
  uint32_t machine_rank_count = 1;  ///< ranks that share the memory
  uint32_t copy_threads = 1;        ///< of stage 1, the caller's among them
  bool restartable = true;          ///< the family's folder is a memory, from which a later run may restart
  /// For tests: called between the steps of a fill, with the name of the one that ended.
  std::function<void(std::string_view)> after_step = [](std::string_view) {};
};

/// The snapshots of one rank: its link to its group, slots and grids, and stage 1. The program's thread only. Removes
/// its files at its end (not in a process forked from its own).
///
/// A slot that is spilled (SnapshotSlots) is no place to restart from, unless it is in memory, too. What has no room
/// anywhere can still be shown to the checkpoint thread: show().
class SnapshotMemory {
 public:
  /// invalid_argument; already_exists; no_space; unsupported: the folder is in no memory file system.
  static Result<std::unique_ptr<SnapshotMemory>> create(const SegmentOwner& owner, const SnapshotOptions& options);
  SnapshotMemory(const SnapshotMemory&) = delete;
  SnapshotMemory& operator=(const SnapshotMemory&) = delete;
  ~SnapshotMemory();

  GroupLink& group() { return group_; }

  /// Has memory made for snapshots of what is protected now, behind the program's back, so that the first checkpoint
  /// need not: to make it takes as long as to fill it. What lies in a grid will be lent, it supposes. What goes wrong
  /// is told by the first fill(); this fails as VariableTable::refresh() does.
  Status reserve(VariableTable& variables);
  /// Waits for what is being done behind the program's back, as all below does.
  void settle();

  bool has_free_slot();
  /// As GroupLink::wait_until().
  Status wait_for_free_slot(std::chrono::nanoseconds limit);

  /// Stage 1: refresh()es the table, copies all of it that is not lent into a free slot, and publishes it. No
  /// allocation, hash or system call per variable unless something changed its size. busy: no slot is free (the lent
  /// grids stay lent). lacks_room(): there is no room anywhere; then and when a callback failed, the slot is empty, and
  /// an earlier snapshot in another slot stays, unless it had to make room.
  Status fill(const CheckpointId& checkpoint, VariableTable& variables);
  /// In place of that: lets the checkpoint thread read the program's own memory, and returns when it is done with it;
  /// what came of it is in the news. busy: no slot is free, or `limit` is over; io_error: the process that drains is
  /// dead.
  Status show(const CheckpointId& checkpoint, VariableTable& variables, std::chrono::nanoseconds limit);
  static bool lacks_room(const Status& failure) { return SharedSegment::lacks_room(failure); }
  /// What memory was too short for since this was asked last; OK: nothing.
  Status take_shortage();
  /// The checkpoint is left out: what was lent for it is lent no longer.
  void skip(VariableTable& variables);

  /// Session::make_grid() and lend(). lend() gives back only a grid that no snapshot refers to, or whose drain has
  /// ended; then that snapshot cannot be restarted from memory any more.
  Result<std::byte*> make_grid(std::string_view name, uint64_t bytes);
  Result<std::byte*> lend(std::string_view name, std::byte* grid, VariableTable& variables,
                          std::chrono::nanoseconds limit);

  /// A snapshot of this step that is not being written is none any more. Whether there was one.
  bool drop(uint64_t step);
  /// Nothing that was made counts any more, but what `kept` names by its step and run, until something else takes its
  /// place, and steps begin anew; what is lent, is lent no longer. While nobody else is at work with it.
  void forget(VariableTable& variables, const std::optional<CheckpointId>& kept = {});

  SlotNews slot(uint32_t slot) const { return group_.own().slot(slot); }
  uint32_t slot_count() const { return slots_.count(); }
  /// The newest step whose snapshot is complete here.
  std::optional<uint64_t> newest_step() const { return slots_.newest_step(); }

  /// Removes all files now; the grids' memory stays usable until the end.
  Status remove_files();
  /// Leaves them, now and at the end, as those of a process that counts as dead.
  void leave(ControlBlock::Ended why);

 private:
  SnapshotMemory(SegmentOwner owner, SnapshotOptions options);
  /// `work` has the slots, on a thread of its own, until settle().
  void begin_beside(const std::function<void()>& work);
  /// Foresees a second slot, after a fill.
  void foresee_second(uint32_t filled);
  /// Lays the slot out for what is protected now, with room for it.
  Status describe_slot(SnapshotSlot& slot, uint32_t index, const VariableTable& variables);
  void publish(SnapshotSlot& slot, uint32_t index, VariableTable& variables);

  const SegmentOwner owner_;
  const SnapshotOptions options_;
  const int creator_pid_;
  bool is_left_ = false;
  Thread beside_;  ///< has the slots as long as it runs
  Mutex beside_mutex_;
  ConditionVariable beside_bell_;
  bool is_wanted_back_ VARVE_GUARDED_BY(beside_mutex_) = false;
  Moment last_fill_ = MonotonicClock::now();  ///< or the begin
  GroupLink group_;
  GridPool grids_;
  SnapshotSlots slots_;
  CopyTeam team_;
  ByteVector encoded_;  ///< the description, kept for its capacity
};

}  // namespace varve
