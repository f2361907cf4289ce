#pragma once

#include <memory>
#include <vector>

#include "store/chunk_lookup.h"

namespace varve {

class ThreadPool;

/// Asks the indexes of all places of a store at the same time: each knows the chunks of its own arenas. Thread-safe.
class SpreadChunkLookup final : public ChunkLookup {
 public:
  /// By place; they outlive it.
  explicit SpreadChunkLookup(std::vector<ChunkLookup*> places);
  ~SpreadChunkLookup() override;
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;

 private:
  const std::vector<ChunkLookup*> places_;
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace varve
