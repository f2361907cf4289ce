#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/progress.h"
#include "format/set_record.h"
#include "layout/layout.h"
#include "store/arena_reader.h"
#include "store/catalog.h"
#include "store/store.h"

namespace varve {

/// What a pack or node takes in an arena.
double frame_bytes(const FrameEntry& entry);

/// Adds a range of a pack's raw bytes to those that are referred to. Many sets that refer to the same cost no more than
/// one.
void add_range(std::vector<Extent>& ranges, const Extent& range);

/// Sorts ranges and joins those that touch or overlap.
void join_ranges(std::vector<Extent>& ranges);

/// Which chunks of a pack lie in the (joined) ranges.
std::vector<bool> chunks_in_ranges(const PackMeta& meta, const std::vector<Extent>& ranges);

/// Whether the copy of a pack in `arena` is long enough for the (joined) ranges and holds every chunk in them.
bool holds_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);

/// Whether that copy can be read, and every chunk in the ranges is what its score says.
bool reads_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);

/// What a lease says that its writer is about to commit, or nothing, if it says nothing yet. A record that is half
/// written cannot be understood.
Result<std::optional<SetRecord>> record_in_lease(const Store& store, const std::string& lease_name);

/// What the sets of a store need, and what may become sets: parts, and the leases of writers that are about to commit.
struct Needs {
  /// For each pack, the ranges of its raw bytes that are referred to; sorted and apart.
  std::unordered_map<Score, std::vector<Extent>, ScoreHash> packs;
  std::unordered_set<Score, ScoreHash> nodes;
  /// A lease could not be understood: its writer may be about to commit what is not listed here.
  bool uncertain = false;
};

/// Goes through the trees of all leases, parts, leases once more, and sets, in this order: what is needed moves on in
/// it, and never back (COMMIT.md). Fails if one cannot be read, since what it needs is then unknown. `certain`: also of
/// what is renamed, pinned and unpinned at the same time; else only good enough to choose by. `progress` may cancel it.
Result<Needs> needs_of_sets(const Store& store, bool certain = true, const ProgressSink& progress = null_progress());

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
