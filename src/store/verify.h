#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "store/catalog.h"
#include "store/damage_reach.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// Something that is wrong in a store, and whom it hurts.
struct Damage {
  Status what;  ///< with the file and the place
  std::vector<std::string>
      affected_sets;  ///< "job@3", "job@4 (part 1 of 2)", sorted; empty: no set needs it, or it heals
  std::vector<std::string> affected_files;  ///< "job@3:path", sorted, at most kAffectedFilesMax
  bool disposable = false;                  ///< part of the index, which the next save rebuilds
  std::optional<ArenaId> arena{};           ///< in which it is, if it is in one
};

struct VerifyReport {
  uint64_t set_count = 0, arena_count = 0, pack_count = 0;
  uint64_t checked_bytes = 0;
  std::vector<Damage> damages;
  /// No damage but to what is disposable.
  bool whole() const;
};

/// Checks all sets, and parts of sets: records, trees, that every referenced pack is there and long enough, and every
/// frame's header and table. With `deep` also every byte: bodies are decoded and every chunk is checked against its
/// score. A set is affected by damage to chunks that it needs and that are whole nowhere else, so by what restore would
/// fail for.
Result<VerifyReport> verify_store(const Store& store, bool deep, ProgressSink& progress = null_progress());

/// The same by several processes that all see the store: the arenas are spread over them. All return the same report,
/// or the same failure. Collective.
Result<VerifyReport> verify_store_together(const Store& store, bool deep, Communicator& ranks,
                                           ProgressSink& progress = null_progress());

}  // namespace varve
