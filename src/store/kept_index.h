#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "store/chunk_index.h"

namespace varve {

/// The index of chunks of one who saves to a store again and again. It is opened for the first save, and what this
/// writer lays down from then on it knows by itself: so of many writers that save at the same time, none looks for what
/// the others have added each time. Runs are written for some saves together. Who sees to the upkeep of the index looks
/// at all of it again, after many saves. One thread at a time.
class KeptIndex {
 public:
  /// The store outlives it. `upkeep`: as ChunkIndex::open(). `begins_empty`: the store had no chunks a while ago.
  KeptIndex(const Store& store, ChunkIndex::Upkeep upkeep, bool begins_empty = false)
      : store_(store), upkeep_(upkeep), begins_empty_(begins_empty) {}

  /// The index for the next save, with no arenas excluded; valid until the next call.
  Result<ChunkIndex*> open(uint64_t memory_bytes);
  /// What that save has laid down, as ChunkIndex::add().
  Status add(const std::vector<ArenaId>& arenas, ChunkIndexEntries entries);
  /// At the end: has others find all that was added.
  Status share();

 private:
  /// As ChunkIndex::share_held().
  Status share_held(bool goes_on);

  const Store& store_;
  const ChunkIndex::Upkeep upkeep_;
  bool begins_empty_;
  std::unique_ptr<ChunkIndex> index_;
  uint64_t held_bytes_max_ = 0;
  uint32_t saves_ = 0;       ///< since it was opened
  uint32_t held_saves_ = 0;  ///< that others do not find
};

}  // namespace varve
