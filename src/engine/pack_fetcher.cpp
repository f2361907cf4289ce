#include "engine/pack_fetcher.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/sync.h"
#include "core/thread_pool.h"
#include "format/tree.h"
#include "store/needs.h"
#include "store/stored_copies.h"

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
    const Result<std::vector<StoredCopy>> places = find_pack_copies(*store, score, need.hint, true);
    if (!places.ok()) continue;
    for (const StoredCopy& place : *places) {
      Result<PackMeta> table = place.arena->read_pack_meta(place.ordinal);
      if (table.ok() && table->score == score) return table;
    }
  }
  return Status::not_found("a pack that is damaged is in no other place, nor what it should hold",
                           arena_name(*stores_.front(), need.hint));
}

Result<ByteVector> ChunkFinder::find_chunk(const ChunkEntry& chunk) {
  for (const Store* store : stores_) {
    ChunkIndex::Cursor* const cursor = cursor_of(*store);
    const uint64_t prefix = chunk.score.prefix();
    if (cursor == nullptr || !cursor->prefetch({&prefix, 1}).ok()) continue;
    for (const KnownChunk& known : cursor->find_all(chunk.score, chunk.bytes)) {
      const Extent range{known.offset, chunk.bytes};
      Result<Pack> pack = read_pack(*store, known.pack, {&range, 1});
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

PackShapes::PackShapes(const Leaf& leaf) {
  for (const TreeFile& file : leaf.files) {
    for (uint32_t stream = 0; stream < file.streams.size(); ++stream) {
      uint64_t at = 0;
      for (const Reference& reference : file.streams[stream]) {
        if (reference.pack != Reference::kPattern)
          pieces_[leaf.packs[reference.pack].score].push_back({reference.offset, reference.bytes, at, &file, stream});
        at += reference.bytes;
      }
    }
  }
  for (auto& [score, pieces] : pieces_) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  }
}

ElementType PackShapes::type_of(const Piece& piece) {
  if (piece.stream == 0) return {};
  const Variable& variable = piece.file->layout.variables[piece.stream - 1];
  return variable.encoded || variable.type.bytes > kTypedElementBytesMax ? ElementType{} : variable.type;
}

Run PackShapes::run_of(const Piece& piece, const ElementType& type) {
  Run run{piece.bytes / type.bytes, {}, false};
  if (piece.stream == 0) return run;
  const Variable& variable = piece.file->layout.variables[piece.stream - 1];
  const std::vector<uint64_t>& shape = variable.run_shape.empty() ? variable.shape : variable.run_shape;
  if (!variable.encoded) run.dims.assign(shape.rbegin(), shape.rend());
  std::erase(run.dims, uint64_t{1});
  const uint64_t elements = std::accumulate(run.dims.begin(), run.dims.end(), uint64_t{1}, std::multiplies<>());
  run.whole = piece.stream_offset == 0 && piece.bytes == variable.stored_bytes() && run.elements == elements;
  return run;
}

PackShape PackShapes::shape_of(const Score& pack, uint64_t raw_bytes) const {
  PackShape shape;
  const auto found = pieces_.find(pack);
  if (found != pieces_.end()) shape.type = type_of(found->second.front());
  const uint64_t element_bytes = shape.type.bytes;
  if (found == pieces_.end() || raw_bytes % element_bytes != 0) return {{}, {Run{raw_bytes, {}, false}}};
  uint64_t end = 0;
  auto fill_up_to = [&](uint64_t offset) {
    if (offset > end) shape.runs.push_back({(offset - end) / element_bytes, {}, false});
    end = offset;
  };
  for (const Piece& piece : found->second) {
    // A chunk that occurs twice is referred to twice; one place is enough.
    const bool fits = piece.offset >= end && piece.bytes <= raw_bytes - piece.offset && type_of(piece) == shape.type &&
                      piece.offset % element_bytes == 0 && piece.bytes % element_bytes == 0;
    if (!fits) continue;
    fill_up_to(piece.offset);
    shape.runs.push_back(run_of(piece, shape.type));
    end += piece.bytes;
  }
  fill_up_to(raw_bytes);
  return shape;
}

namespace {
class Search {
 public:
  Search(const SetNeeds& needs, bool read_packs) : needs_(needs), read_packs_(read_packs) {}

  Status look_in(const ArenaReader& arena, const ProgressSink& progress) {
    const ArenaIndex& index = arena.index();
    for (size_t i = 0; i < index.packs.size(); ++i) {
      if (progress.cancelled()) return Status::cancelled();
      const auto need = needs_.packs.find(index.packs[i].score);
      if (need == needs_.packs.end() || has_pack(need->first)) continue;
      if (!holds_ranges(arena, i, need->second.ranges)) continue;
      if (read_packs_ && !reads_ranges(arena, i, need->second.ranges)) continue;
      const MutexLock lock(mutex_);
      if (held_.packs.insert(need->first).second)
        held_.pack_bytes += kFrameHeaderBytes + index.packs[i].meta_bytes + index.packs[i].body_bytes;
    }
    for (size_t i = 0; i < index.nodes.size(); ++i) {
      const Score& score = index.nodes[i].score;
      if (!needs_.nodes.contains(score) || !arena.read_node(i).ok()) continue;
      const MutexLock lock(mutex_);
      held_.nodes.try_emplace(score, arena.id());
    }
    return {};
  }

  HeldFrames take() {
    const MutexLock lock(mutex_);
    return std::move(held_);
  }

 private:
  bool has_pack(const Score& score) {
    const MutexLock lock(mutex_);
    return held_.packs.contains(score);
  }

  const SetNeeds& needs_;
  const bool read_packs_;
  Mutex mutex_;  ///< not held while reading
  HeldFrames held_ VARVE_GUARDED_BY(mutex_);
};
}  // namespace

Result<HeldFrames> find_held(const Store& store, const std::set<ArenaId>& excluded, const SetNeeds& needs,
                             bool read_packs, size_t thread_count, ProgressSink& progress) {
  std::vector<Score> scores;
  for (const auto& [score, need] : needs.packs) scores.push_back(score);
  for (const auto& [score, hint] : needs.nodes) scores.push_back(score);
  // Each of them is opened by its name now; where it was seen before only tells that it is worth it.
  VARVE_ASSIGN(std::vector<ArenaId> arenas, store.directory().listing(store, scores));
  std::erase_if(arenas, [&](const ArenaId& id) { return excluded.contains(id); });
  Search search(needs, read_packs);
  const Status looked = parallel_for(arenas.size(), thread_count, [&](size_t i) -> Status {
    if (progress.cancelled()) return Status::cancelled();
    const Result<std::shared_ptr<ArenaReader>> arena = store.arena(arenas[i]);
    // What a damaged index leaves out is sent again: nothing new is to rest on such an arena.
    if (!arena.ok() || !(*arena)->index_status().ok()) return {};
    return search.look_in(**arena, progress);
  });
  VARVE_TRY(looked);
  return search.take();
}

namespace {
/// Beyond so many classes what trials have found is forgotten.
constexpr size_t kEncodersMax = 10'000;

Status located(const Status& wrong, const ArenaReader& arena) {
  if (!wrong.subject().empty() && wrong.subject().find(arena.path()) != std::string_view::npos) return wrong;
  return wrong.with_subject(arena.path());
}
}  // namespace

Result<FetchedPack> PackFetcher::fetch(const Score& score, const SetNeeds::PackNeed& need, const PackShape& shape) {
  for (const bool all : {false, true}) {
    VARVE_ASSIGN(const std::vector<StoredCopy> places, find_pack_copies(from_, score, need.hint, all));
    for (const StoredCopy& place : places) {
      if (!holds_ranges(*place.arena, place.ordinal, need.ranges)) continue;
      Result<FetchedPack> fetched = take_whole(place, score, shape);
      if (fetched.ok() || fetched.status().code() == StatusCode::resource_limit) return fetched;
    }
  }
  return put_together(score, need);
}

Result<FetchedPack> PackFetcher::take_whole(const StoredCopy& place, const Score& score, const PackShape& shape) {
  const ArenaReader& arena = *place.arena;
  FetchedPack fetched;
  VARVE_ASSIGN(fetched.frame, arena.read_raw(FrameKind::pack, place.ordinal));
  Result<PackMeta> meta = decode_pack_meta(fetched.frame.meta, from_.score());
  if (!meta.ok()) return located(meta.status(), arena);
  if (meta->score != score) return Status::corrupt("a pack is not what the arena's index says", arena.path());
  if (!meta->needs.empty())
    return Status::unsupported("a pack's decoding needs other packs", arena.path(), "use a newer Varve");
  const uint64_t raw_bytes = meta->raw_bytes();
  // By the pack's own table: the source's index goes no further than the source.
  fetched.entry = {score,
                   0,
                   static_cast<uint32_t>(fetched.frame.meta.size()),
                   fetched.frame.body.size(),
                   raw_bytes,
                   meta->chunks.size(),
                   raw_bytes - meta->held_bytes()};
  if (!check_chunks_ && !recode_) return fetched;
  // It lies in the frame, which is still wanted: the pack only borrows it.
  Result<Pack> pack = Pack::decode(std::move(*meta), Buffer(), fetched.frame.body, from_.score());
  // A codec that this build lacks: what its checksums say is all that can be known.
  if (pack.status().code() == StatusCode::unsupported) return fetched;
  if (!pack.ok()) return located(pack.status(), arena);
  if (const Status whole = pack->verify_all(); !whole.ok()) return located(whole, arena);
  fetched.checked = true;
  if (recode_) VARVE_TRY(recode(fetched, *pack, shape));
  return fetched;
}

Status PackFetcher::recode(FetchedPack& fetched, Pack& pack, const PackShape& shape) {
  const PackMeta& old = pack.meta();
  const bool thinned = !old.held_runs.empty();
  ByteVector copied;
  ByteSpan raw;
  if (thinned) {
    VARVE_ASSIGN(copied, bytes_of_chunks(pack, old.held()));
    raw = copied;
  } else if (!old.chunks.empty()) {
    VARVE_ASSIGN(raw, pack.range(0, old.raw_bytes()));
  }
  if (raw.empty()) return {};
  const PackShape& known = thinned ? flat_shape(old.class_key, raw.size()) : shape;
  VARVE_ASSIGN(EncodedBytes encoded, encoder_for(old.class_key)->encode(raw, known));
  if (encoded.recipe.size() + encoded.body.size() >= old.recipe.size() + fetched.frame.body.size()) return {};
  EncodedPack anew{old, std::move(encoded.body)};
  anew.meta.recipe = std::move(encoded.recipe);
  // What takes the place of a good copy is read once before it does.
  VARVE_ASSIGN(Pack again, Pack::decode(anew.meta, Buffer(), anew.body, from_.score()));
  const Status same = again.verify_all();
  if (!same.ok()) return Status::internal("a pack that was encoded anew does not decode", old.class_key);
  fetched.recoded_from_bytes = kFrameHeaderBytes + fetched.entry.meta_bytes + fetched.entry.body_bytes;
  fetched.anew = std::move(anew);
  fetched.frame = {};
  return {};
}

Result<FetchedPack> PackFetcher::put_together(const Score& score, const SetNeeds::PackNeed& need) {
  VARVE_ASSIGN(Pack pack, read_pack(from_, {score, need.hint}, need.ranges));
  FetchedPack fetched;
  VARVE_ASSIGN(fetched.anew, partial_pack(pack, need.ranges));
  fetched.checked = true;
  return fetched;
}

std::shared_ptr<Encoder> PackFetcher::encoder_for(const std::string& class_key) {
  const MutexLock lock(mutex_);
  if (encoders_.size() > kEncodersMax) encoders_.clear();
  std::shared_ptr<Encoder>& encoder = encoders_[class_key];
  if (encoder == nullptr) encoder = make_encoder(*recode_, contents_of_class(class_key), found_);
  return encoder;
}

}  // namespace varve
