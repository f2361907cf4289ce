#pragma once

#include <cstdint>
#include <unordered_map>

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
    Place place;
    uint64_t bytes = 0;
  };
  using Map = std::unordered_map<Score, Known, ScoreHash>;
  const size_t generation_entries_max_;
  Map current_, previous_;
};

}  // namespace varve
