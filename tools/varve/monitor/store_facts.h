#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/metrics.h"
#include "core/progress.h"
#include "format/set_record.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// What a store has, as far as lists and the newest records tell.
struct StoreFacts {
  struct Job {
    uint64_t set_count = 0;
    SetName newest{};            ///< of the highest step
    int64_t newest_saved_s = 0;  ///< since 1970
  };
  double looked_at = 0;  ///< since 1970
  uint64_t arena_bytes = 0;
  std::optional<uint64_t> free_bytes{};  ///< nobody knows of a bucket
  std::map<std::string, Job> jobs{};     ///< by name
};

/// One list of the arenas, one for each job, and one record for each job.
Result<StoreFacts> look_at_store(const Store& store);

/// What of the arenas neither sets nor parts of sets need, nor who is about to commit, which is about what a prune
/// gives back: goes through the trees of all sets and the indexes of all arenas, and takes some 300 bytes of memory for
/// each pack, however many sets need it. Changes nothing. cancelled: `progress` says so.
Result<uint64_t> garbage_bytes(const Store& store, ProgressSink& progress);

void tell(const StoreFacts& facts, Metrics& metrics);
void tell_garbage(uint64_t bytes, Metrics& metrics);

}  // namespace varve
