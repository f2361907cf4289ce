#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "snapshot/snapshot_reader.h"

namespace varve {

/// A member's snapshots as its group's checkpoint thread sees them, in the same process or another. One thread.
class SnapshotView {
 public:
  /// not_found: the member has not made its memory yet; corrupt, unsupported: it is of another kind.
  static Result<std::unique_ptr<SnapshotView>> open(const SegmentOwner& member);

  /// Steps whose snapshots are full and wait to be drained, oldest first.
  std::vector<uint64_t> full_steps() const;
  /// The newest step of which the member will have no snapshot unless it is full already.
  std::optional<uint64_t> given_up() const { return control_.given_up(); }
  /// Takes it: the member cannot overwrite it until end_drain(). not_found: no slot is full of that step. With
  /// lent grids it first sums them, which makes the snapshot restartable. What is returned lives until end_drain(), and
  /// may be read by any thread.
  Result<const SnapshotReader*> begin_drain(uint64_t step);
  /// Gives the slot back, with what became of it, and wakes the member. Nothing was taken: does nothing.
  void end_drain(const Status& outcome);

  /// Tells the member, and wakes it.
  void post(const GroupNews& news);
  bool member_alive() const { return control_.owner_alive(); }
  /// The member's bell; a member that is the leader waits on its own for all.
  Bell& bell() const { return control_.bell(); }
  const ControlBlock::Identity& identity() const { return control_.identity(); }

 private:
  explicit SnapshotView(SegmentOwner member) : member_(std::move(member)) {}

  Result<const SnapshotReader*> open_drained(uint64_t step);

  const SegmentOwner member_;
  ControlBlock control_;
  std::array<std::unique_ptr<SnapshotReader>, kSlotsMax> readers_;  ///< kept, as mapping a slot anew costs time
  std::optional<uint32_t> drained_slot_;                            ///< that is being drained
};

}  // namespace varve
