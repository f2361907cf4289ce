#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/chunk_index_run.h"

namespace varve {

/// Who can be asked for many chunks at once where they may be: the index of a store whose arenas are elsewhere, on a
/// server. Like every index it is only a hint: each candidate is checked against its pack's table. Thread-safe.
class ChunkLookup {
 public:
  virtual ~ChunkLookup() = default;
  /// Appends to `candidates` the chunks with these score prefixes (Score::prefix()), in the order of the prefixes;
  /// counts[i] says how many belong to prefixes[i]. A few that are missed cost space, and nothing else.
  virtual Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
                      std::vector<ChunkCandidate>& candidates) = 0;
};

}  // namespace varve
