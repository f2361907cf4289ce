#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "core/sync.h"
#include "hash/score.h"
#include "snapshot/shared_segment.h"

namespace varve {

/// Where a pack lies in a store. All ranks read packs in this order.
struct PackPlace {
  UniqueId arena;
  uint64_t offset = 0;
  auto operator<=>(const PackPlace&) const = default;
};

/// Packs that several ranks of a node need at a restart: one reads and decodes each, and lays it into memory that all
/// of them share, where the others find it. A pack stays until all ranks are past it, so that who is far ahead finds no
/// room. Nobody waits for good, and who finds nothing reads for itself: what goes wrong here costs time only.
/// Thread-safe.
class NodePacks {
 public:
  /// Of one pack, and of all that are there together.
  static constexpr uint64_t kPackBytesMax = 1_MiB, kBytes = 32_MiB;

  /// `path`: where the memory is, the same for all ranks of the node. Whoever needs it first makes it.
  explicit NodePacks(std::string path) : path_(std::move(path)) {}
  /// Only when all ranks have read what they need: who has made the memory removes it.
  ~NodePacks();
  NodePacks(const NodePacks&) = delete;
  NodePacks& operator=(const NodePacks&) = delete;

  /// This rank will need packs from `first` on. False: there is no memory, or it is reading already.
  bool begin(const PackPlace& first);
  /// It needs none before this one any more.
  void go_on(const PackPlace& next);
  /// It needs none at all.
  void end();

  enum class State : uint8_t {
    whole,       ///< it is there
    to_fill,     ///< nobody has it, and here is room for it
    on_its_way,  ///< another thread is about to fill it
    no_room,
    alone,  ///< each reads it for itself: the others are past it, as this rank has begun late, or memory is short
  };

  /// A pack in the shared memory, or room for it; it stays there for as long as this.
  class Held {
   public:
    Held(Held&& other) noexcept { *this = std::move(other); }
    Held& operator=(Held&& other) noexcept;
    ~Held();
    State state() const { return state_; }
    /// The raw bytes, if it is whole or to_fill.
    MutableByteSpan bytes() const { return bytes_; }
    /// They are filled, and checked. If that is not said of what was to_fill, somebody else may.
    void publish();

   private:
    friend class NodePacks;
    Held() = default;
    State state_ = State::no_room;
    MutableByteSpan bytes_;
    NodePacks* packs_ = nullptr;
    uint64_t entry_ = 0;
  };

  /// Between begin() and end().
  Held find(const Score& pack, const PackPlace& place, uint64_t raw_bytes);
  /// Until another pack is there, or there may be room for one; or for so long, and false.
  bool wait(std::chrono::nanoseconds limit);

 private:
  struct Entry;
  struct Board;
  class Guard;

  /// The shared memory; null if there is none.
  Board* board();
  Held look_for(Board& board, const Score& pack, const PackPlace& place, uint64_t raw_bytes);
  Status take_memory(ByteSpan room);
  void release(const Held& held);
  void stand_at(const PackPlace* place);

  const std::string path_;
  Mutex mutex_;
  bool tried_ VARVE_GUARDED_BY(mutex_) = false;
  bool made_here_ VARVE_GUARDED_BY(mutex_) = false;
  SharedSegment segment_ VARVE_GUARDED_BY(mutex_);
  std::atomic<Board*> board_{nullptr};
  std::atomic<bool> reading_{false};
  size_t reader_ = 0;  ///< its ordinal on the board; while reading_
};

}  // namespace varve
