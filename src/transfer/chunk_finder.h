#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "store/chunk_index.h"
#include "store/partial_pack.h"
#include "store/set_needs.h"
#include "store/store.h"

namespace varve {

/// Puts packs together from their chunks, wherever these are: in other packs, of other sets, in any of several stores.
/// Only for packs whose table is still to be read somewhere. One thread.
class ChunkFinder {
 public:
  /// The stores outlive it.
  explicit ChunkFinder(std::vector<const Store*> stores) : stores_(std::move(stores)) {}

  /// The pack, with the chunks at least that are needed, each checked against its score.
  /// not_found: no table of it, or a chunk that is nowhere.
  Result<EncodedPack> build(const Score& score, const SetNeeds::PackNeed& need);

 private:
  Result<PackMeta> find_table(const Score& score, const SetNeeds::PackNeed& need) const;
  Result<ByteVector> find_chunk(const ChunkEntry& chunk);
  /// Null if the store's index cannot be had.
  ChunkIndex::Cursor* cursor_of(const Store& store);

  struct Opened {
    std::unique_ptr<ChunkIndex> index;
    std::optional<ChunkIndex::Cursor> cursor;  ///< keeps the tables of packs that it has met
  };
  const std::vector<const Store*> stores_;
  std::map<const Store*, Opened> opened_;
};

}  // namespace varve
