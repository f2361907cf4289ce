#include "store/spread_writer.h"

#include "core/thread_pool.h"

namespace varve {

SpreadWriter::SpreadWriter(const Store& store, const WriterLease& lease, uint32_t ordinal, ArenaWriterOptions options)
    : store_(store), options_(options), by_place_(store.spread().places()) {
  for (uint32_t place = 0; place < by_place_.size(); ++place) ids_.push_back(lease.arena_id(ordinal, place));
}

Result<SpreadWriter::Open*> SpreadWriter::arena_of(const Score& score) {
  const uint32_t place = store_.spread().place_of(score);
  Open& open = by_place_[place];
  if (open.writer == nullptr) {
    VARVE_ASSIGN(open.writer, ArenaWriter::create(store_.backend(), store_.arena_path(ids_[place]),
                                                  arena_header(store_, ids_[place]), options_));
    open.ordinal = static_cast<uint32_t>(made_.size());
    made_.push_back(place);
  }
  return &open;
}

Result<SpreadWriter::Place> SpreadWriter::append_pack(const PackMeta& meta, ByteSpan body,
                                                      std::shared_ptr<const void> keeper) {
  VARVE_ASSIGN(Open* const open, arena_of(meta.score));
  VARVE_ASSIGN(const size_t ordinal, open->writer->append_pack(meta, body, std::move(keeper)));
  return Place{open->ordinal, static_cast<uint32_t>(ordinal)};
}

Status SpreadWriter::append_node(const Score& score, ByteSpan content) {
  VARVE_ASSIGN(Open* const open, arena_of(score));
  return open->writer->append_node(score, content).status();
}

Status SpreadWriter::append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body) {
  VARVE_ASSIGN(Open* const open, arena_of(entry.score));
  return open->writer->append_copy(kind, entry, meta, body);
}

Status SpreadWriter::seal() {
  // At the same time: each waits for its own disk.
  return parallel_for(made_.size(), made_.size(), [&](size_t i) -> Status {
    const uint32_t place = made_[i];
    return by_place_[place].writer->seal();
  });
}

std::vector<ArenaId> SpreadWriter::arenas() const {
  std::vector<ArenaId> arenas;
  for (const uint32_t place : made_) arenas.push_back(ids_[place]);
  return arenas;
}

uint64_t SpreadWriter::bytes() const {
  uint64_t bytes = 0;
  for (const Open& open : by_place_) bytes += open.writer == nullptr ? 0 : open.writer->bytes();
  return bytes;
}

}  // namespace varve
