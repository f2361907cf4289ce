#pragma once

#include <memory>
#include <vector>

#include "store/arena_spread.h"
#include "store/chunk_lookup.h"

namespace varve {

class ThreadPool;

/// Asks the indexes of a store's places, for each chunk that of the place whose range its score is in (ArenaSpread);
/// all at the same time. Thread-safe.
class SpreadChunkLookup final : public ChunkLookup {
 public:
  /// By place; they outlive it.
  explicit SpreadChunkLookup(std::vector<ChunkLookup*> places);
  ~SpreadChunkLookup() override;
  Status find(std::span<const uint64_t> prefixes, std::span<uint32_t> counts,
              std::vector<ChunkCandidate>& candidates) override;

 private:
  struct Question;
  Status ask(std::vector<Question>& questions) const;

  const std::vector<ChunkLookup*> places_;
  const ArenaSpread spread_;
  const std::unique_ptr<ThreadPool> pool_;
};

}  // namespace varve
