#pragma once

#include <set>
#include <unordered_map>
#include <unordered_set>

#include "store/set_needs.h"

namespace varve {

/// What of a set's needs a store has already.
struct HeldFrames {
  std::unordered_set<Score, ScoreHash> packs;
  std::unordered_map<Score, ArenaId, ScoreHash> nodes;  ///< and where
  uint64_t pack_bytes = 0;                              ///< stored, of these packs
};

/// Looks through the arenas of `store`, but for those that are `excluded`, for what `needs` names. A writer may rely on
/// what is found if its lease was there before, and the arenas that it saw marked are excluded (FORMAT.md, "Writing a
/// set").
///
/// A pack counts if an arena whose index is whole lists it and, by its table, holds every chunk that is needed; with
/// `read_packs` only if these chunks decode and match their scores as well. A node counts if it is read and matches its
/// score. What cannot be read does not count, and is no failure.
Result<HeldFrames> find_held(const Store& store, const std::set<ArenaId>& excluded, const SetNeeds& needs,
                             bool read_packs, size_t thread_count, ProgressSink& progress);

}  // namespace varve
