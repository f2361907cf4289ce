#pragma once

#include <optional>
#include <vector>

#include "aggregate/stream_gatherer.h"
#include "aggregate/work_order.h"
#include "chunk/chunker.h"
#include "hash/score.h"

namespace varve {

/// A chunk that was read and cut.
struct BatchChunk {
  uint32_t stream = 0;
  uint64_t stream_offset = 0;
  uint64_t bytes = 0;
  size_t buffer_offset = 0;  ///< where its bytes are, unless it is a hole
  /// The eight bytes that it consists of, over and over; set for holes by the reader, for constant chunks by
  /// score_batch().
  std::optional<uint64_t> pattern;
  Score score;  ///< of chunks without a pattern, by score_batch()
};

/// Some consecutive chunks in the order of a scheme.
struct ChunkBatch {
  explicit ChunkBatch(size_t buffer_bytes) : buffer(buffer_bytes) {}
  Buffer buffer;
  std::vector<BatchChunk> chunks;
  ByteSpan bytes_of(const BatchChunk& chunk) const {
    return ByteSpan(buffer).subspan(chunk.buffer_offset, chunk.bytes);
  }
};

/// Finds the chunks that are a repeated pattern, and the scores of the others.
void score_batch(ChunkBatch& batch, const ScoreFunction& score);

/// The length of the chunk that a save cuts off `ahead`, the bytes of a stream after the last cut, of which the item
/// that is cut has `remaining`: whole elements, so that what is compressed together is aligned.
size_t next_chunk_bytes(const Chunker& chunker, const ElementType& type, ByteSpan ahead, uint64_t remaining);

/// Reads and cuts a group's streams in the order of the scheme. One thread.
class BatchReader {
 public:
  BatchReader(const std::vector<Stream>& streams, Source& source, WorkOrder order, const Chunker& chunker,
              uint64_t hole_bytes_min)
      : streams_(streams),
        files_(source.files()),
        order_(std::move(order)),
        reader_(source),
        chunker_(chunker),
        hole_bytes_min_(hole_bytes_min) {}
  /// Fills the batch anew; it is left empty at the end of the work. Its buffer holds at least chunker.bytes_ahead()
  /// bytes.
  Status fill(ChunkBatch& batch);

 private:
  Result<bool> take_hole(ChunkBatch& batch);
  void cut(ChunkBatch& batch, size_t begin, size_t end);

  const std::vector<Stream>& streams_;
  const std::vector<SourceFile>& files_;
  WorkOrder order_;
  StreamGatherer reader_;
  const Chunker& chunker_;
  const uint64_t hole_bytes_min_;
  std::optional<WorkItem> item_;  ///< in work; `begin` moves on
};

}  // namespace varve
