#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "core/sync.h"
#include "store/arena_reader.h"

namespace varve {

class Store;

/// The arenas of a store that are kept open: each has one or two file descriptors, and its index. Those that were used
/// last stay. Thread-safe.
class ArenaCache {
 public:
  static constexpr size_t kArenasMax = 256;
  using Opened = Result<std::shared_ptr<ArenaReader>>;

  /// The arena, opened by `open` if it is not there. Of those who ask for one at the same time, one alone opens it.
  Opened get(const ArenaId& id, const std::function<Opened()>& open);
  /// Forgets all of them, those too that are being opened, so that removed arenas give back their space.
  void drop();

 private:
  struct Kept {
    std::shared_ptr<ArenaReader> reader;
    std::list<ArenaId>::iterator used;
  };
  Mutex mutex_;
  uint64_t generation_ VARVE_GUARDED_BY(mutex_) = 0;
  std::map<ArenaId, Kept> arenas_ VARVE_GUARDED_BY(mutex_);
  std::list<ArenaId> recently_used_ VARVE_GUARDED_BY(mutex_);
  std::set<ArenaId> opening_ VARVE_GUARDED_BY(mutex_);  ///< by some thread just now
  ConditionVariable opened_;
};

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
  /// The arenas that are there now and list any of these packs and nodes, or may list more than can be told; by their
  /// ids. Opens only arenas that were not seen before.
  Result<std::vector<ArenaId>> listing(const Store& store, std::span<const Score> scores);

 private:
  struct Entry {
    uint64_t prefix = 0;
    uint32_t arena = 0;  ///< ordinal in arenas_
  };
  void forget_gone(const std::set<ArenaId>& present) VARVE_REQUIRES(mutex_);
  void take_in(const std::vector<ArenaId>& arenas, std::vector<Entry> entries, std::set<ArenaId> uncertain);

  Mutex refresh_mutex_ VARVE_ACQUIRED_BEFORE(mutex_);         ///< held while arenas are gone through
  uint64_t done_round_ VARVE_GUARDED_BY(refresh_mutex_) = 0;  ///< the last one that was completed
  mutable Mutex mutex_;
  uint64_t rounds_ VARVE_GUARDED_BY(mutex_) = 0;
  std::vector<ArenaId> arenas_ VARVE_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ VARVE_GUARDED_BY(mutex_);   ///< by prefix
  std::set<ArenaId> uncertain_ VARVE_GUARDED_BY(mutex_);  ///< could not be opened, or not by their index
};

}  // namespace varve
