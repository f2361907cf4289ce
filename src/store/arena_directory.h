#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "arena/frame.h"
#include "core/sync.h"

namespace varve {

class Store;

/// Which arenas list a pack or a node, for look-ups whose hint does not help: after a prune has moved it, or in a store
/// to which a set was copied, where hints name the arenas of another store. Sixteen bytes for each pack and node of the
/// store, in memory, once it is needed. It only says where to look: what is found is opened by name and checked there.
/// Thread-safe.
class ArenaDirectory {
 public:
  /// The arenas that list this score, as far as was seen, and those that may list more than could be read of them; by
  /// their ids.
  std::vector<ArenaId> candidates(const Score& score) const;

  /// How often the arenas were gone through, or begun to be.
  uint64_t rounds() const;
  /// Takes in the arenas that have come, and forgets those that are gone; unless somebody has done so who began after
  /// this number of rounds(). Only one thread at a time goes through the arenas; others wait for it.
  Status refresh(const Store& store, uint64_t rounds_seen);

 private:
  struct Entry {
    uint64_t prefix = 0;
    uint32_t arena = 0;  ///< ordinal in arenas_
  };
  void forget_gone(const std::set<ArenaId>& present);
  void take_in(const std::vector<ArenaId>& arenas, std::vector<Entry> entries, std::set<ArenaId> uncertain);

  Mutex refresh_mutex_;      ///< held while arenas are gone through; guards done_round_
  uint64_t done_round_ = 0;  ///< the last one that was completed
  mutable Mutex mutex_;      ///< guards what follows
  uint64_t rounds_ = 0;
  std::vector<ArenaId> arenas_;
  std::vector<Entry> entries_;   ///< by prefix
  std::set<ArenaId> uncertain_;  ///< could not be opened, or not by their index
};

}  // namespace varve
