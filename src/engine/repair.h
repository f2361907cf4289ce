#pragma once

#include <string>
#include <vector>

#include "core/progress.h"
#include "store/verify.h"

namespace varve {

/// Another level that has, perhaps, what a store has lost.
struct RepairSource {
  std::string name;  ///< for people
  const Store* store = nullptr;
};

/// What was mended of a store's sets, and whence.
struct MendedFrom {
  std::string source;  ///< its name; kOwnChunks for packs that were put together from chunks of this store
  uint64_t packs = 0, nodes = 0, records = 0;
  uint64_t bytes = 0;  ///< written
};
inline constexpr std::string_view kOwnChunks = "other sets of this store";

struct RepairReport {
  VerifyReport before;                      ///< what was wrong
  VerifyReport after;                       ///< what still is; the same as `before` if that was nothing
  std::vector<MendedFrom> mended;           ///< by source
  std::vector<SetName> mended_sets;         ///< that are whole again
  std::vector<SetName> partly_mended_sets;  ///< of which something was mended, and something is in no source
  uint64_t removed_arenas = 0;              ///< damaged ones, out of which everything was brought that is needed
};

struct RepairOptions {
  size_t thread_count = 0;  ///< 0: as many as processors
  /// Damaged arenas are removed as a prune does it (PruneOptions::wait_seconds); those that writers may still refer to
  /// are left to the next prune.
  double wait_seconds = 30;
};

/// Makes a store whole: reads all of it, and what is damaged or missing of its sets is taken from the first source that
/// has it whole; else it is put together from chunks that are somewhere in the store or in a source under another name.
/// What is written was checked against its score, and is durable when the function returns. Then damaged arenas are
/// emptied and removed. What nobody has stays as it is, is told in `after`, and keeps nothing else from being mended.
/// Writers, readers and prunes may be at work meanwhile.
Result<RepairReport> repair_store(const Store& store, const std::vector<RepairSource>& sources,
                                  const RepairOptions& options = {}, ProgressSink& progress = null_progress());

/// What came of the mending of one set.
struct SetRepair {
  std::vector<MendedFrom> mended;  ///< by source; durable
  Status lost;                     ///< OK: the set is whole. Else what is wrong with the first thing that nobody has
};

/// Mends one set alone, without a look at the rest of the store, and removes nothing. A set whose record is damaged or
/// missing comes back too, if a source has it, and all that it needs is somewhere.
Result<SetRepair> repair_set(const Store& store, const SetName& name, const std::vector<RepairSource>& sources,
                             const RepairOptions& options = {}, ProgressSink& progress = null_progress());

}  // namespace varve
