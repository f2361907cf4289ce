#pragma once

#include <unordered_map>
#include <vector>

#include "core/progress.h"
#include "store/set_record.h"
#include "store/store.h"

namespace varve {

/// What one set refers to: about 150 bytes of memory for each pack.
struct SetNeeds {
  struct PackNeed {
    ArenaId hint;                ///< where the set says that the pack is
    std::vector<Extent> ranges;  ///< of its raw bytes, sorted and apart
    uint64_t bytes() const;      ///< of the ranges
  };
  std::unordered_map<Score, PackNeed, ScoreHash> packs;
  std::unordered_map<Score, ArenaId, ScoreHash> nodes;  ///< with their hints
};

/// Goes through a set's trees. Fails if a node cannot be read.
Result<SetNeeds> needs_of_set(const Store& store, const SetRecord& record, ProgressSink& progress);

/// The same, with nodes from wherever `read` finds them, and without what those refer to that it leaves out.
Result<SetNeeds> needs_of_set(const SetRecord& record, size_t score_bytes, ProgressSink& progress,
                              const ReadNode& read);

}  // namespace varve
