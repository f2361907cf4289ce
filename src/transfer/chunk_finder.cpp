#include "transfer/chunk_finder.h"

#include "store/pack_ranges.h"

namespace varve {

namespace {
constexpr uint64_t kIndexMemoryBytes = 16_MiB;
}

Result<EncodedPack> ChunkFinder::build(const Score& score, const SetNeeds::PackNeed& need) {
  VARVE_ASSIGN(PackMeta table, find_table(score, need));
  const std::vector<bool> needed = chunks_in_ranges(table, need.ranges);
  ByteVector raw;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    VARVE_ASSIGN(const ByteVector chunk, find_chunk(table.chunks[i]));
    raw.insert(raw.end(), chunk.begin(), chunk.end());
  }
  return encode_partial_pack(std::move(table), needed, raw);
}

Result<PackMeta> ChunkFinder::find_table(const Score& score, const SetNeeds::PackNeed& need) const {
  for (const Store* store : stores_) {
    const Result<std::vector<Store::Place>> places = store->find_pack(score, need.hint, true);
    if (!places.ok()) continue;
    for (const Store::Place& place : *places) {
      Result<PackMeta> table = place.arena->read_pack_meta(place.ordinal);
      if (table.ok() && table->score == score) return table;
    }
  }
  return Status::not_found("a pack that is damaged is in no other place, nor what it should hold",
                           stores_.front()->arena_name(need.hint));
}

Result<ByteVector> ChunkFinder::find_chunk(const ChunkEntry& chunk) {
  for (const Store* store : stores_) {
    ChunkIndex::Cursor* const cursor = cursor_of(*store);
    const uint64_t prefix = chunk.score.prefix();
    if (cursor == nullptr || !cursor->prefetch({&prefix, 1}).ok()) continue;
    for (const KnownChunk& known : cursor->find_all(chunk.score, chunk.bytes)) {
      const Extent range{known.offset, chunk.bytes};
      Result<Pack> pack = store->read_pack(known.pack, {&range, 1});
      if (!pack.ok()) continue;
      const Result<ByteSpan> bytes = pack->range(range.offset, range.bytes);
      if (bytes.ok()) return ByteVector(bytes->begin(), bytes->end());
    }
  }
  return Status::not_found("a chunk of a damaged pack is nowhere else", stores_.front()->path());
}

ChunkIndex::Cursor* ChunkFinder::cursor_of(const Store& store) {
  const auto [found, added] = opened_.try_emplace(&store);
  Opened& opened = found->second;
  if (added) {
    Result<std::unique_ptr<ChunkIndex>> index = ChunkIndex::open(store, {}, kIndexMemoryBytes);
    if (!index.ok()) return nullptr;
    opened.index = std::move(*index);
    opened.cursor.emplace(*opened.index);
  }
  return opened.cursor ? &*opened.cursor : nullptr;
}

}  // namespace varve
