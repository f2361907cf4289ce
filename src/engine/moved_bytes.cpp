#include "engine/moved_bytes.h"

#include <algorithm>
#include <bit>

#include "engine/pack_builder.h"

namespace varve {

namespace {
constexpr uint64_t kMovedLookedAtMax = 32_MiB;
/// Smaller classes are not looked at.
constexpr uint64_t kMovedClassBytesMin = 64_KiB;
/// What has to be found again by content alone, of all that was looked at.
constexpr double kMovedShareMin = 0.05;
/// For the chunks of what is looked at.
constexpr uint64_t kChunksMemoryBytes = 8_MiB;

bool may_be_cut_by_content(const SaveOptions& options) {
  const CodecPolicy& codec = options.codec;
  return options.scheme == Scheme::aware && options.pace == nullptr && codec.kind == CodecPolicy::Kind::automatic &&
         codec.effort == Effort::best && cuts_cells(options.chunker);
}

/// The first of the streams, as if they ended where no more is looked at.
std::vector<Stream> beginning_of(const ClassStreams& streams) {
  std::vector<Stream> beginning;
  uint64_t left = kMovedLookedAtMax;
  for (const Stream* stream : streams) {
    if (left == 0) break;
    beginning.push_back(*stream);
    beginning.back().bytes = std::min(stream->bytes, left);
    left -= beginning.back().bytes;
  }
  return beginning;
}

/// How many bytes of the streams are in chunks that were there before.
Result<uint64_t> known_bytes(Source& source, const SaveOptions& options, const Chunker& fixed,
                             const Chunker& by_content, const std::vector<Stream>& streams) {
  const uint64_t chunk_bytes = options.chunker.bytes_average;
  BatchReader reader(streams, source, WorkOrder(streams, Scheme::agnostic, chunk_bytes), fixed, chunk_bytes,
                     /*cells=*/true, &by_content);
  ChunkBatch batch(std::max<size_t>(512_KiB, 8 * BatchReader::bytes_ahead(fixed, /*cells=*/true, &by_content)));
  FreshChunks chunks(kChunksMemoryBytes);
  const ScoreFunction score = ScoreFunction::preferred();
  uint64_t known = 0;
  while (true) {
    VARVE_TRY(reader.fill(batch));
    if (batch.chunks.empty()) return known;
    score_batch(batch, score);
    for (const BatchChunk& chunk : batch.chunks) {
      if (chunk.pattern) continue;
      if (chunks.find(chunk.score, chunk.bytes)) {
        known += chunk.bytes;
      } else {
        chunks.insert(chunk.score, chunk.bytes, {});
      }
    }
  }
}
}  // namespace

Result<std::unique_ptr<Chunker>> make_chunker_by_content(const ChunkerOptions& fixed) {
  const uint32_t average = std::max(std::bit_floor(fixed.bytes_average), kChunkBytesMin);
  return make_chunker({.kind = ChunkerKind::gear, .bytes_average = average});
}

Status find_moved_bytes(Source& source, const SaveOptions& options, GroupStreams& group) {
  if (!may_be_cut_by_content(options)) return {};
  ClassStreams all;
  for (const ClassStreams& streams : streams_by_class(group)) {
    if (streams.front()->type == ElementType{} && class_bytes(streams) >= kMovedClassBytesMin)
      all.insert(all.end(), streams.begin(), streams.end());
  }
  if (all.empty()) return {};
  VARVE_ASSIGN(const std::unique_ptr<Chunker> fixed, make_chunker(options.chunker));
  VARVE_ASSIGN(const std::unique_ptr<Chunker> by_content, make_chunker_by_content(options.chunker));
  std::vector<Stream> streams = beginning_of(all);
  VARVE_ASSIGN(const uint64_t known_in_place, known_bytes(source, options, *fixed, *by_content, streams));
  for (Stream& stream : streams) stream.moves = true;
  VARVE_ASSIGN(const uint64_t known_by_content, known_bytes(source, options, *fixed, *by_content, streams));
  const auto looked_at = static_cast<double>(std::min(class_bytes(all), kMovedLookedAtMax));
  if (static_cast<double>(known_by_content) < static_cast<double>(known_in_place) + kMovedShareMin * looked_at)
    return {};
  for (Stream* stream : all) stream->moves = true;
  return {};
}

}  // namespace varve
