#pragma once

#include <map>
#include <set>

#include "core/sync.h"
#include "store/store.h"

namespace varve {

/// What is wrong with the copies of a pack or a tree node.
struct CopyFaults {
  std::set<ArenaId> damaged;     ///< they were read, and are not what they were
  std::set<ArenaId> unreadable;  ///< they could not be read: they may be whole, and may be readable tomorrow
};

/// Reads all copies anew. `hint`, and the hint of a link: an arena that is looked into, whatever it is known to hold.
CopyFaults faults_of_pack(const Store& store, const PackLink& link);
CopyFaults faults_of_node(const Store& store, const Score& score, const ArenaId& hint);

/// Marks arenas that were found damaged: no writer that begins from now on refers to them, so that what is saved anew
/// does not rest on what is broken. Nothing is removed: the next prune brings to safety what is whole and needed
/// (COMMIT.md, "Pruning"). Marked already, or gone: fine. Durable when it returns.
Status condemn_arenas(const Store& store, const std::set<ArenaId>& arenas);

/// Packs and tree nodes of which a reader has found a copy damaged. Thread-safe.
class FoundDamage {
 public:
  void note_pack(const PackLink& link);
  void note_node(const Score& score, const ArenaId& hint);
  /// Of which the reader is certain.
  void note_arena(const ArenaId& arena);
  bool empty() const;
  /// Reads their copies anew, and marks the arenas that are damaged for certain: these.
  Result<std::set<ArenaId>> condemn(const Store& store) const;

 private:
  static constexpr size_t kNotedMax = 1000;

  mutable Mutex mutex_;
  std::map<Score, ArenaId> packs_ VARVE_GUARDED_BY(mutex_), nodes_ VARVE_GUARDED_BY(mutex_);
  std::set<ArenaId> arenas_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
