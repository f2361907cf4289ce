#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "store/arena_writer.h"
#include "store/commit.h"
#include "store/store.h"

namespace varve {

/// The new arenas that one writer appends to at the same time: one for each place of the store's spread
/// (store.h), so that each pack and node goes where its score belongs. Most stores have one place. An arena is
/// made when something comes for it. One caller at a time; as with an ArenaWriter, after any failure all of it is lost:
/// drop it.
class SpreadWriter {
 public:
  /// `ordinal` tells the writers under one lease apart. The store and the lease outlive it.
  SpreadWriter(const Store& store, const WriterLease& lease, uint32_t ordinal, ArenaWriterOptions options);

  /// Where a pack was put.
  struct Place {
    uint32_t arena = 0;    ///< ordinal in arenas()
    uint32_t ordinal = 0;  ///< among the arena's packs
  };
  /// As ArenaWriter::append_pack().
  Result<Place> append_pack(const PackMeta& meta, ByteSpan body, std::shared_ptr<const void> keeper = nullptr);
  Status append_node(const Score& score, ByteSpan content);
  /// Copies a frame from another arena as it is.
  Status append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body);

  /// Seals all arenas. Their names are durable once their directory is synced.
  Status seal();

  /// The arena that has, or would get, what has this score.
  const ArenaId& home(const Score& score) const { return ids_[store_.spread().place_of(score)]; }
  /// Those that were made, in the order of their making.
  std::vector<ArenaId> arenas() const;
  uint64_t bytes() const;

 private:
  struct Open {
    uint32_t ordinal = 0;  ///< in made_
    std::unique_ptr<ArenaWriter> writer;
  };
  Result<Open*> arena_of(const Score& score);

  const Store& store_;
  const ArenaWriterOptions options_;
  std::vector<ArenaId> ids_;    ///< by place
  std::vector<Open> by_place_;  ///< without a writer until something comes
  std::vector<uint32_t> made_;  ///< places, in the order of the making
};

}  // namespace varve
