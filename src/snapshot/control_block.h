#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/bytes.h"
#include "core/process_identity.h"
#include "snapshot/shared_segment.h"
#include "varve/status.h"

namespace varve {

/// Waits until `word` is not `seen` any longer or the time has passed; may return earlier. Works between processes when
/// `word` lies in shared memory.
void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds limit);
/// Wakes all that wait for `word`, in whatever process.
void futex_wake_all(const std::atomic<uint32_t>& word);

/// A bell in (shared) memory: whoever changes something rings it; who waits for a change notes the count, looks, and
/// waits for another count. Nothing is missed.
class Bell {
 public:
  uint32_t count() const { return count_.load(std::memory_order_acquire); }
  void ring() {
    count_.fetch_add(1, std::memory_order_acq_rel);
    futex_wake_all(count_);
  }
  void wait(uint32_t seen, std::chrono::nanoseconds limit) const { futex_wait(count_, seen, limit); }

 private:
  std::atomic<uint32_t> count_{0};
};

/// What a group's checkpoint thread tells a member beside its slots.
struct GroupNews {
  std::optional<uint64_t> newest_persistent;  ///< step whose whole set is complete in the store
  uint64_t bytes_to_write = 0;
  uint64_t bytes_written = 0;
  Status last_error;
  std::optional<uint64_t> failed_step;    ///< of that error
  std::optional<uint64_t> finished_step;  ///< up to this step nothing more will be tried: complete, or failed
};

/// For a control segment or a message; long texts of the error are cut, so that kNewsBytesMax hold it.
ByteVector encode_news(const GroupNews& news);
constexpr size_t kNewsBytesMax = 1024;
/// Ignores what follows. corrupt: it is none.
Result<GroupNews> decode_news(ByteSpan bytes);

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

/// Which of its job's checkpoints a snapshot is: where a run goes back, it makes a step that there was once more.
struct CheckpointId {
  uint64_t step = 0;
  /// The run that made it. A program that goes back goes on as another run in the memory of the one that it began as.
  UniqueId run{};
  uint64_t number = 0;  ///< SetRecord::number of its set; if none is made of it, of the job's next one. 0: not known
  bool operator==(const CheckpointId&) const = default;
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

/// A slot's cell in the control segment. What makes no sense in it reads as an empty slot. The transitions are each for
/// its side alone; content that was written before is visible to who sees the new state.
class SlotCell {
 public:
  SlotNews news() const;

  // The owner's
  void begin_fill(uint64_t step, uint64_t fill_number);
  /// `summed`: its checksums are there; else mark_restartable() says so. Not `kept`: nobody looks for it where it is.
  void end_fill(bool summed, bool kept = true);
  /// In place of a copy for which there is no room: ControlBlock::begin_showing() comes before.
  void end_fill_shown();
  void cancel_fill();       ///< back to empty
  void mark_overwritten();  ///< a grid that it refers to is going to be written

  // The checkpoint thread's
  /// full → draining; false if it is not full of that step.
  bool begin_drain(uint64_t step);
  void mark_restartable();
  void end_drain(const Status& outcome);

 private:
  void become(SlotState state) { state_.store(static_cast<uint32_t>(state), std::memory_order_release); }

  static constexpr size_t kOutcomeBytes = 1000;
  /// Values of restartable_.
  enum Restartable : uint32_t { not_restartable = 0, restartable = 1, shown = 2, not_kept = 3 };

  std::atomic<uint32_t> state_;
  std::atomic<uint32_t> restartable_;
  std::atomic<uint64_t> step_;
  std::atomic<uint64_t> fill_number_;
  std::array<std::byte, kOutcomeBytes> outcome_;  ///< written while draining, read when drained
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
  /// The process that made it, unless its run has ended. Where its number means nothing here, the lock that it holds
  /// decides.
  bool owner_alive() const;
  /// Of a process that goes on, but counts as dead from now on.
  enum class Ended : uint32_t {
    no = 0,
    run = 1,   ///< on all ranks that live
    rank = 2,  ///< this one has left; others may be at work
  };
  /// The owner's.
  void end(Ended what) const;
  Ended ended() const;
  Status unlink() const { return segment_.unlink(); }
  bool valid() const { return segment_.valid(); }

  Bell& bell() const;
  SlotCell& cell(uint32_t slot) const;
  /// What the cell says.
  SlotNews slot(uint32_t slot) const;
  /// The owner's: SlotCell::begin_fill(), of this checkpoint.
  void begin_fill(uint32_t slot, const CheckpointId& checkpoint, uint64_t fill_number) const;
  /// Of a slot that is full, or was drained. What an earlier version has left says of it only the step.
  CheckpointId checkpoint(uint32_t slot) const;

  /// The owner's: unless a slot is full of it, there is no snapshot of `step`, or of an earlier one, and will be none.
  void give_up(uint64_t step) const;
  std::optional<uint64_t> given_up() const;
  /// The owner's, while nobody else is at work with it: nothing was given up, and there are no news.
  void forget() const;

  /// The owner's: shows an image of so many bytes in the program's own memory, piece by piece, until end_showing().
  void begin_showing(uint64_t image_bytes) const;
  void end_showing() const;
  /// Answers what is asked, if anything is; whether something was. `copy` gets what lies in the image.
  bool answer_shown(const std::function<void(uint64_t offset, MutableByteSpan into)>& copy) const;
  /// The other side's: how long the image is that is shown, and bytes of it, one call at a time. io_error: the owner
  /// died; cancelled: it shows nothing any more.
  uint64_t shown_bytes() const;
  Status read_shown(uint64_t offset, MutableByteSpan into) const;

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
