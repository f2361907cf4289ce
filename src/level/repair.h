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
  VerifyReport before;               ///< what was wrong
  VerifyReport after;                ///< what still is; the same as `before` if that was nothing
  std::vector<MendedFrom> mended;    ///< by source
  std::vector<SetName> mended_sets;  ///< that are whole again
  uint64_t removed_arenas = 0;       ///< damaged ones, out of which everything was brought that is needed
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
/// emptied and removed. What nobody has stays as it is, and is told in `after`. Writers, readers and prunes may be at
/// work meanwhile.
Result<RepairReport> repair_store(const Store& store, const std::vector<RepairSource>& sources,
                                  const RepairOptions& options = {}, ProgressSink& progress = null_progress());

/// Mends one set alone, without a look at the rest of the store, and removes nothing. Sets whose record is damaged or
/// missing come back too, if a source has them. Fails with what was wrong if something of it is in no source.
Result<std::vector<MendedFrom>> repair_set(const Store& store, const SetName& name,
                                           const std::vector<RepairSource>& sources, const RepairOptions& options = {},
                                           ProgressSink& progress = null_progress());

}  // namespace varve
