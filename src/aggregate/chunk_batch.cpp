#include "aggregate/chunk_batch.h"

#include <algorithm>
#include <cstring>

namespace varve {

namespace {
/// Holes take no room in a batch's buffer: this bounds how many of them it describes.
constexpr size_t kBatchChunksMax = 65'536;

/// The eight bytes of which `bytes` consist, the last repetition possibly cut off.
std::optional<uint64_t> repeated_pattern(ByteSpan bytes) {
  if (bytes.size() < 16 || std::memcmp(bytes.data(), bytes.data() + 8, bytes.size() - 8) != 0) return std::nullopt;
  return load_le<uint64_t>(bytes.data());
}
}  // namespace

void score_batch(ChunkBatch& batch, const ScoreFunction& score) {
  std::vector<BatchChunk*> chunks;
  std::vector<ByteSpan> inputs;
  for (BatchChunk& chunk : batch.chunks) {
    if (chunk.pattern) continue;
    const ByteSpan bytes = batch.bytes_of(chunk);
    chunk.pattern = repeated_pattern(bytes);
    if (chunk.pattern) continue;
    chunks.push_back(&chunk);
    inputs.push_back(bytes);
  }
  std::vector<Score> scores(inputs.size());
  score.many(inputs, scores);
  for (size_t i = 0; i < chunks.size(); ++i) chunks[i]->score = scores[i];
}

size_t next_chunk_bytes(const Chunker& chunker, const ElementType& type, ByteSpan ahead, uint64_t remaining) {
  const size_t bytes = chunker.next(ahead, remaining);
  return bytes > type.bytes && bytes < remaining ? bytes - bytes % type.bytes : bytes;
}

Status BatchReader::fill(ChunkBatch& batch) {
  batch.chunks.clear();
  size_t used = 0;
  while (batch.chunks.size() < kBatchChunksMax) {
    if (!item_ || item_->begin == item_->end) {
      item_ = order_.next();
      if (!item_) return {};
    }
    const Stream& stream = streams_[item_->stream];
    if (files_[stream.file].sparse) {
      VARVE_ASSIGN(bool was_hole, take_hole(batch));
      if (was_hole) continue;
    }
    const uint64_t remaining = item_->end - item_->begin;
    const size_t want = std::min<uint64_t>(batch.buffer.size() - used, remaining);
    if (want < remaining && want < chunker_.bytes_ahead()) return {};
    VARVE_TRY(reader_.read(stream, item_->begin, MutableByteSpan(batch.buffer).subspan(used, want)));
    const uint64_t begin_before = item_->begin;
    cut(batch, used, used + want);
    used += item_->begin - begin_before;
    if (item_->begin != item_->end && used + chunker_.bytes_ahead() > batch.buffer.size()) return {};
  }
  return {};
}

Result<bool> BatchReader::take_hole(ChunkBatch& batch) {
  VARVE_ASSIGN(uint64_t hole, reader_.hole_bytes(streams_[item_->stream], item_->begin));
  const uint64_t remaining = item_->end - item_->begin;
  uint64_t bytes = std::min(hole, remaining);
  // Whole multiples, so that the chunks after the hole are cut where they would be without it.
  if (bytes < remaining) bytes -= bytes % hole_bytes_min_;
  if (bytes < hole_bytes_min_) return false;
  BatchChunk chunk;
  chunk.stream = item_->stream;
  chunk.stream_offset = item_->begin;
  chunk.bytes = bytes;
  chunk.pattern = 0;
  batch.chunks.push_back(chunk);
  item_->begin += bytes;
  return true;
}

void BatchReader::cut(ChunkBatch& batch, size_t begin, size_t end) {
  const ElementType type = streams_[item_->stream].type;
  const size_t ahead_bytes = chunker_.bytes_ahead();
  while (begin < end) {
    const uint64_t remaining = item_->end - item_->begin;
    const ByteSpan ahead = ByteSpan(batch.buffer).subspan(begin, end - begin);
    if (ahead.size() < remaining && ahead.size() < ahead_bytes) return;
    const size_t bytes = next_chunk_bytes(chunker_, type, ahead, remaining);
    BatchChunk chunk;
    chunk.stream = item_->stream;
    chunk.stream_offset = item_->begin;
    chunk.bytes = bytes;
    chunk.buffer_offset = begin;
    batch.chunks.push_back(chunk);
    item_->begin += bytes;
    begin += bytes;
  }
}

}  // namespace varve
