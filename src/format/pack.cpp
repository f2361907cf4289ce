#include "format/pack.h"

#include <algorithm>
#include <array>
#include <span>

namespace varve {

uint64_t PackMeta::raw_bytes() const {
  uint64_t sum = 0;
  for (const ChunkEntry& chunk : chunks) sum += chunk.bytes;
  return sum;
}

std::vector<bool> PackMeta::held() const {
  std::vector<bool> flags(chunks.size(), held_runs.empty());
  size_t at = 0;
  for (size_t i = 0; i < held_runs.size(); ++i) {
    for (uint64_t k = 0; k < held_runs[i]; ++k, ++at) flags[at] = i % 2 == 0;
  }
  return flags;
}

uint64_t PackMeta::held_bytes() const {
  std::vector<bool> flags = held();
  uint64_t sum = 0;
  for (size_t i = 0; i < chunks.size(); ++i) sum += flags[i] ? chunks[i].bytes : 0;
  return sum;
}

Score pack_score(const ScoreFunction& score, const std::vector<ChunkEntry>& chunks) {
  ByteVector table;
  table.reserve(4 + chunks.size() * (4 + score.score_bytes()));
  ByteWriter w(table);
  w.bytes(as_bytes("VPAK"));
  for (const ChunkEntry& chunk : chunks) {
    w.le32(chunk.bytes);
    write_score(w, chunk.score, score.score_bytes());
  }
  return score(table);
}

void encode_pack_meta(const PackMeta& meta, size_t score_bytes, ByteVector& out) {
  ByteWriter w(out);
  write_score(w, meta.score, score_bytes);
  w.text(meta.class_key);
  w.varint(meta.recipe.size());
  w.bytes(meta.recipe);
  w.varint(meta.needs.size());
  for (const Score& need : meta.needs) write_score(w, need, score_bytes);
  w.varint(meta.held_runs.size());
  for (uint64_t run : meta.held_runs) w.varint(run);
  w.varint(meta.chunks.size());
  for (size_t i = 0; i < meta.chunks.size();) {
    size_t end = i;
    while (end < meta.chunks.size() && meta.chunks[end].bytes == meta.chunks[i].bytes) ++end;
    w.varint(meta.chunks[i].bytes);
    w.varint(end - i);
    i = end;
  }
  for (const ChunkEntry& chunk : meta.chunks) write_score(w, chunk.score, score_bytes);
}

namespace {
Status read_chunk_lengths(ByteReader& reader, std::vector<ChunkEntry>& chunks) {
  uint64_t raw_bytes = 0;
  for (size_t at = 0; at < chunks.size();) {
    VARVE_ASSIGN(uint64_t bytes, reader.varint());
    VARVE_ASSIGN(uint64_t repeat, reader.varint());
    if (bytes == 0 || bytes > kPackBytesMax || repeat == 0 || repeat > chunks.size() - at) {
      return Status::corrupt("a pack's table of chunks is malformed");
    }
    raw_bytes += bytes * repeat;
    if (raw_bytes > kPackBytesMax) return Status::corrupt("a pack declares more bytes than the format allows");
    for (uint64_t k = 0; k < repeat; ++k) chunks[at++].bytes = static_cast<uint32_t>(bytes);
  }
  return {};
}
}  // namespace

Result<PackMeta> decode_pack_meta(ByteSpan raw, const ScoreFunction& score) {
  const size_t score_bytes = score.score_bytes();
  ByteReader reader(raw);
  PackMeta meta;
  VARVE_ASSIGN(meta.score, read_score(reader, score_bytes));
  VARVE_ASSIGN(std::string_view key, reader.text());
  if (key.size() > kClassKeyBytesMax) return Status::corrupt("a pack's class has a name that is too long");
  meta.class_key = key;
  VARVE_ASSIGN(uint64_t recipe_bytes, reader.varint());
  VARVE_ASSIGN(ByteSpan recipe, reader.bytes(recipe_bytes));
  meta.recipe.assign(recipe.begin(), recipe.end());
  VARVE_ASSIGN(uint64_t need_count, reader.count(score_bytes));
  if (need_count > kPackNeedsMax) return Status::corrupt("a pack names too many others");
  for (uint64_t i = 0; i < need_count; ++i) {
    VARVE_ASSIGN(Score need, read_score(reader, score_bytes));
    meta.needs.push_back(need);
  }
  VARVE_ASSIGN(uint64_t run_count, reader.count());
  uint64_t covered = 0;
  for (uint64_t i = 0; i < run_count; ++i) {
    VARVE_ASSIGN(uint64_t run, reader.varint());
    if (run > kPackBytesMax) return Status::corrupt("a pack's list of held chunks is malformed");
    covered += run;
    meta.held_runs.push_back(run);
  }
  VARVE_ASSIGN(uint64_t chunk_count, reader.count(score_bytes));
  if (run_count > 0 && covered != chunk_count) return Status::corrupt("a pack's list of held chunks is malformed");
  meta.chunks.resize(chunk_count);
  VARVE_TRY(read_chunk_lengths(reader, meta.chunks));
  for (ChunkEntry& chunk : meta.chunks) {
    VARVE_ASSIGN(chunk.score, read_score(reader, score_bytes));
  }
  if (!reader.at_end()) return Status::corrupt("a pack's meta part is longer than its fields");
  if (pack_score(score, meta.chunks) != meta.score)
    return Status::corrupt("a pack's table of chunks does not match its score");
  return meta;
}

Result<Pack> Pack::decode(PackMeta meta, Buffer storage, ByteSpan body, const ScoreFunction& score,
                          MutableByteSpan room) {
  if (!meta.needs.empty()) {
    return Status::unsupported("a pack's decoding needs other packs", meta.class_key, "use a newer Varve");
  }
  Pack pack(score);
  const uint64_t held_bytes = meta.held_bytes();
  if (recipe_is_store(meta.recipe)) {
    if (body.size() != held_bytes) return Status::corrupt("a pack's body is not as long as its chunks", meta.class_key);
    pack.storage_ = std::move(storage);
    pack.raw_ = body;
  } else {
    if (room.size() != held_bytes) {
      pack.storage_ = Buffer(held_bytes);
      room = pack.storage_;
    }
    VARVE_TRY(decode_chain(meta.recipe, body, room));
    pack.raw_ = room;
  }
  std::vector<bool> held = meta.held();
  pack.places_.reserve(meta.chunks.size());
  uint64_t pack_offset = 0, raw_offset = 0;
  for (size_t i = 0; i < meta.chunks.size(); ++i) {
    pack.places_.push_back({pack_offset, held[i] ? raw_offset : kMissing, false});
    pack_offset += meta.chunks[i].bytes;
    if (held[i]) raw_offset += meta.chunks[i].bytes;
  }
  pack.meta_ = std::move(meta);
  return pack;
}

Status Pack::verify_chunks(std::span<const Chunks> runs) {
  constexpr size_t kTogether = 16;  // as many as a score function may like to have at once
  std::array<size_t, kTogether> indices;
  std::array<ByteSpan, kTogether> inputs;
  std::array<Score, kTogether> scores;
  size_t count = 0;
  auto check = [&]() -> Status {
    score_.many(std::span(inputs).first(count), scores);
    for (size_t k = 0; k < count; ++k) {
      if (scores[k] != meta_.chunks[indices[k]].score)
        return Status::corrupt("a chunk does not match its score", meta_.class_key);
      places_[indices[k]].verified = true;
    }
    count = 0;
    return {};
  };
  for (const Chunks& run : runs) {
    for (size_t i = run.first; i < run.end; ++i) {
      const bool is_next = count > 0 && indices[count - 1] == i;  // several runs may lie in one chunk
      if (places_[i].verified || is_next) continue;
      if (places_[i].raw_offset == kMissing)
        return Status::corrupt("a chunk that is referred to was left out of its pack", meta_.class_key);
      indices[count] = i;
      inputs[count++] = raw_.subspan(places_[i].raw_offset, meta_.chunks[i].bytes);
      if (count == kTogether) VARVE_TRY(check());
    }
  }
  return check();
}

Status Pack::outside() const { return Status::corrupt("a reference points outside its pack", meta_.class_key); }

Result<Pack::Chunks> Pack::chunks_of(uint64_t offset, uint64_t bytes) const {
  auto after = std::upper_bound(places_.begin(), places_.end(), offset,
                                [](uint64_t value, const ChunkPlace& place) { return value < place.pack_offset; });
  if (bytes == 0 || after == places_.begin()) return outside();
  Chunks found;
  found.first = found.end = static_cast<size_t>(after - places_.begin()) - 1;
  uint64_t covered_to = places_[found.first].pack_offset;
  for (; covered_to - offset < bytes || covered_to <= offset; ++found.end) {
    if (found.end == places_.size()) return outside();
    covered_to += meta_.chunks[found.end].bytes;
  }
  return found;
}

Status Pack::verify(std::span<const Extent> ranges) {
  std::vector<Chunks> runs;
  runs.reserve(ranges.size());
  for (const Extent& range : ranges) {
    VARVE_ASSIGN(const Chunks chunks, chunks_of(range.offset, range.bytes));
    runs.push_back(chunks);
  }
  return verify_chunks(runs);
}

Result<ByteSpan> Pack::range(uint64_t offset, uint64_t bytes) {
  VARVE_ASSIGN(const Chunks chunks, chunks_of(offset, bytes));
  VARVE_TRY(verify_chunks({&chunks, 1}));
  uint64_t raw_next = places_[chunks.first].raw_offset;
  for (size_t i = chunks.first; i < chunks.end; ++i) {
    // Chunks that are neighbours in the pack may have lost a dead one between them in the body, never when all are
    // held.
    if (places_[i].raw_offset != raw_next) return outside();
    raw_next += meta_.chunks[i].bytes;
  }
  return raw_.subspan(places_[chunks.first].raw_offset + (offset - places_[chunks.first].pack_offset), bytes);
}

Status Pack::verify_all() {
  std::vector<Chunks> runs;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].raw_offset != kMissing) runs.push_back({i, i + 1});
  }
  return verify_chunks(runs);
}

bool Pack::is_whole(size_t chunk) {
  const Chunks alone{chunk, chunk + 1};
  return verify_chunks({&alone, 1}).ok();
}

std::vector<Extent> Pack::whole_extents() {
  std::vector<Extent> extents;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!is_whole(i)) continue;
    const uint64_t offset = places_[i].pack_offset;
    if (extents.empty() || extents.back().offset + extents.back().bytes != offset) extents.push_back({offset, 0});
    extents.back().bytes += meta_.chunks[i].bytes;
  }
  return extents;
}

Pack Pack::united(Pack& one, Pack& other) {
  Pack pack(one.score_);
  pack.meta_ = one.meta_;
  pack.storage_ = Buffer(one.meta_.raw_bytes());
  pack.raw_ = pack.storage_;
  for (size_t i = 0; i < one.places_.size(); ++i) {
    const uint64_t offset = one.places_[i].pack_offset;
    Pack& source = one.is_whole(i) ? one : other;
    const bool whole = source.is_whole(i);
    if (whole) {
      const ByteSpan chunk = source.raw_.subspan(source.places_[i].raw_offset, one.meta_.chunks[i].bytes);
      std::copy(chunk.begin(), chunk.end(), pack.storage_.data() + offset);
    }
    pack.places_.push_back({offset, whole ? offset : kMissing, whole});
  }
  return pack;
}

}  // namespace varve
