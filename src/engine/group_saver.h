#pragma once

#include <vector>

#include "core/thread_pool.h"
#include "engine/save.h"
#include "engine/source.h"
#include "store/chunk_index.h"

namespace varve {

/// What the groups of one save share.
struct SaveContext {
  const Store& store;
  WriterLease& lease;
  const ChunkIndex& index;
  const SaveOptions& options;
  const Chunker& chunker;
  ThreadPool& pool;
  ProgressSink& progress;
  uint64_t group_memory_bytes;
  uint64_t tasks_max;  ///< that one group has in the pool
};

/// What became of one group.
struct GroupOutcome {
  GroupRecord record;
  std::vector<ArenaId> arenas;  ///< the new ones: one, unless the store is spread
  ChunkIndexEntries entries;    ///< of the new arenas, for the index; empty if there were too many to hold
  uint64_t raw_bytes = 0, new_bytes = 0, known_bytes = 0, pattern_bytes = 0, variable_count = 0;
};

/// Saves the source of one group of ranks into arenas of its own: layouts → streams → chunks in the order of the scheme
/// → packs → tree → sealed arenas. The calling thread drives it; scoring and encoding run in the pool, and results are
/// taken in order, so that the arenas do not depend on timing. `ordinal` is the group's among those of the save.
Result<GroupOutcome> save_group(const SaveContext& context, Source& source, uint32_t ordinal);

}  // namespace varve
