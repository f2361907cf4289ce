#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "hash/score.h"

namespace varve {

/// The chunks that a save has laid down so far. Bounded: when it is full, it forgets the older half, which costs space
/// in the store, never data.
class FreshChunks {
 public:
  struct Place {
    uint32_t pack = 0;  ///< ordinal in the group's packs
    uint64_t offset = 0;
  };
  explicit FreshChunks(uint64_t memory_bytes);
  const Place* find(const Score& score, size_t bytes) const;
  void insert(const Score& score, size_t bytes, const Place& place);

 private:
  struct Known {
    Score score;
    Place place;
    uint64_t bytes = 0;
  };
  /// Open addressing over what was laid down, in its order: a look-up that finds nothing, as most do, costs one access
  /// to memory.
  class Generation {
   public:
    const Known* find(const Score& score) const;
    void insert(const Known& known);
    size_t size() const { return known_.size(); }

   private:
    struct Slot {
      uint32_t tag = 0;
      uint32_t ordinal = 0;  ///< in known_, counted from 1; 0: free
    };
    /// The slot of a score: its own, or the free one where it belongs.
    size_t slot_of(const Score& score) const;
    void grow();
    std::deque<Known> known_;
    std::vector<Slot> slots_;  ///< a power of two, at most half of them taken
  };
  const size_t generation_entries_max_;
  Generation current_, previous_;
};

}  // namespace varve
