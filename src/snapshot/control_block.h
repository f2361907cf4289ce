#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "snapshot/futex.h"
#include "snapshot/group_news.h"
#include "snapshot/process_identity.h"
#include "snapshot/segment_names.h"
#include "snapshot/shared_segment.h"
#include "varve/status.h"

namespace varve {

inline constexpr uint32_t kSlotsMax = 2;

/// A slot's life: empty → filling → full → draining → drained → filling ... The owner takes it to filling and full, the
/// checkpoint thread to draining and drained.
enum class SlotState : uint32_t {
  empty = 0,
  filling = 1,
  full = 2,      ///< complete; not persistent yet
  draining = 3,  ///< being written to the store
  drained = 4,   ///< written, or failed: free for the next fill, and still there for a restart
};

/// What a slot's cell in the control segment says.
struct SlotNews {
  SlotState state = SlotState::empty;
  uint64_t step = 0;
  uint64_t fill_number = 0;  ///< grows with each fill of any slot of this rank
  bool restartable = false;  ///< all of its checksums are there, and its content is untouched
  bool shown = false;        ///< it is in the program's own memory alone, which the owner shows while it waits
  Status outcome;            ///< of the drain, once drained
};

/// The control segment of a rank: who it is, its bell, its slots' cells, its group's news. Everything in it is read as
/// if an enemy had written it. The segment's numbers are those of this machine's byte order: it never leaves it.
class ControlBlock {
 public:
  struct Identity {
    UniqueId run;
    ProcessIdentity process;
    uint32_t rank = 0;
    uint32_t rank_count = 0;
    uint32_t slot_count = 0;
  };

  ControlBlock() = default;
  static Result<ControlBlock> create(const SegmentOwner& owner, const Identity& identity);
  /// not_found; unsupported: of another version; corrupt: it contradicts itself or its name.
  static Result<ControlBlock> open(const SegmentOwner& owner, SharedSegment::Access access);

  const Identity& identity() const { return identity_; }
  /// Of the process that made it. Where its number means nothing here, the lock that it holds decides.
  bool owner_alive() const;
  Status unlink() const { return segment_.unlink(); }
  bool valid() const { return segment_.valid(); }

  Bell& bell() const;
  /// The cell; what makes no sense in it reads as an empty slot.
  SlotNews slot(uint32_t slot) const;

  /// The transitions, each by its side alone. Content that was written before is visible to who sees the new state.
  void begin_fill(uint32_t slot, uint64_t step, uint64_t fill_number) const;
  void end_fill(uint32_t slot, bool restartable) const;
  /// In place of a copy for which there is no room: the owner shows an image of so many bytes in the program's own
  /// memory, piece by piece, until the slot is drained.
  void end_fill_shown(uint32_t slot, uint64_t image_bytes) const;
  void cancel_fill(uint32_t slot) const;  ///< back to empty
  /// full → draining; false if it is not full of that step.
  bool begin_drain(uint32_t slot, uint64_t step) const;
  void mark_restartable(uint32_t slot) const;
  void mark_overwritten(uint32_t slot) const;  ///< a grid that it refers to is going to be written
  void end_drain(uint32_t slot, const Status& outcome) const;

  /// The owner's: unless a slot is full of it, there is no snapshot of `step`, or of an earlier one, and will be none.
  void give_up(uint64_t step) const;
  std::optional<uint64_t> given_up() const;

  void end_showing() const;
  /// Showing. The other side's: reads bytes of the image that is shown, one call at a time. io_error: the owner died;
  /// cancelled: it shows nothing any more.
  uint64_t shown_bytes() const;
  Status read_shown(uint64_t offset, MutableByteSpan into) const;
  /// The owner's: answers what is asked, if anything is; whether something was. `copy` gets what lies in the image.
  bool answer_shown(const std::function<void(uint64_t offset, MutableByteSpan into)>& copy) const;

  /// One writer; any readers, who wait for nobody: while the writer is in the middle, or if it died there, the news
  /// before are there. Nothing if they make no sense.
  void post(const GroupNews& news) const;
  std::optional<GroupNews> news() const;

 private:
  struct Shared;
  Shared& shared() const;

  SharedSegment segment_;
  Identity identity_;
};

}  // namespace varve
