#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "chunk/chunker.h"
#include "codec/codec.h"
#include "core/page_allocator.h"
#include "engine/scheme.h"
#include "engine/source.h"
#include "format/pack.h"
#include "hash/score.h"

namespace varve {

/// Reads streams of a source, gathering their extents. One thread.
class StreamGatherer {
 public:
  explicit StreamGatherer(Source& source) : source_(source) {}

  /// Fills `into` with the stream's bytes from `offset`.
  Status read(const Stream& stream, uint64_t offset, MutableByteSpan into);
  /// As many of the stream's bytes from `offset` as are together in memory (Source::view()), at most `bytes_max`.
  ByteSpan view(const Stream& stream, uint64_t offset, uint64_t bytes_max);

  /// How many bytes from `offset` of the stream are a hole of its (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(const Stream& stream, uint64_t offset);

 private:
  /// The extent that holds stream byte `offset`, and how far into it that is.
  std::pair<size_t, uint64_t> locate(const Stream& stream, uint64_t offset);

  Source& source_;
  // Streams are read from front to back: where the last look-up ended.
  const Stream* last_stream_ = nullptr;
  size_t last_extent_ = 0;
  uint64_t last_extent_at_ = 0;
};

/// A chunk that was read and cut.
struct BatchChunk {
  uint32_t stream = 0;  ///< the first, if it is of several
  uint32_t joined = 0;  ///< of how many streams that join it has all bytes, one after another (ChunkBatch::streams_of)
  size_t joined_begin = 0;
  uint64_t stream_offset = 0;
  uint64_t bytes = 0;
  size_t buffer_offset = 0;  ///< where its bytes are, unless it is a hole or viewed
  ByteSpan viewed;           ///< where they are in the source's own memory; empty: they were read
  /// The eight bytes that it consists of, over and over; set for holes by the reader, for constant chunks by
  /// score_batch().
  std::optional<uint64_t> pattern;
  Score score;  ///< of chunks without a pattern, by score_batch()
};

/// Some consecutive chunks in the order of a scheme.
struct ChunkBatch {
  explicit ChunkBatch(size_t bytes) : bytes_max(bytes) {}
  /// Where bytes are read to: not there until some are, since what is viewed needs none.
  MutableByteSpan room() {
    if (buffer.size() == 0) buffer = Buffer(bytes_max);
    return buffer;
  }
  size_t bytes_max;
  Buffer buffer;  ///< empty, or of as many
  std::vector<BatchChunk> chunks;
  std::vector<uint32_t> joined;  ///< streams of the chunks that have several
  ByteSpan bytes_of(const BatchChunk& chunk) const {
    return chunk.viewed.empty() ? ByteSpan(buffer).subspan(chunk.buffer_offset, chunk.bytes) : chunk.viewed;
  }
  /// Those whose bytes, or some of them, the chunk has.
  std::span<const uint32_t> streams_of(const BatchChunk& chunk) const {
    if (chunk.joined == 0) return {&chunk.stream, 1};
    return std::span(joined).subspan(chunk.joined_begin, chunk.joined);
  }
};

/// Finds the chunks that are a repeated pattern, and the scores of the others.
void score_batch(ChunkBatch& batch, const ScoreFunction& score);

/// The length of the chunk that a save cuts off `ahead`, the bytes of a stream after the last cut, of which the item
/// that is cut has `remaining`: whole elements, so that what is compressed together is aligned.
size_t next_chunk_bytes(const Chunker& chunker, const ElementType& type, ByteSpan ahead, uint64_t remaining);

/// Whole cells of noise are one chunk each, where chunks have a fixed size below this, but not in what moves unless a
/// program has compressed it: what is written of each smaller chunk would make the store larger than the bytes are, by
/// more than a thousandth. Of what is compressed smaller chunks would find no more, since a change alters all that
/// comes after it; other noise is rare.
inline constexpr uint64_t kNoiseChunkBytes = 64_KiB;
inline bool cuts_cells(const ChunkerOptions& chunker) {
  return chunker.kind == ChunkerKind::fixed && chunker.bytes_average < kNoiseChunkBytes;
}

/// Streams that join (Stream::joins) are at most so long, and the chunks that they share. From the least length on such
/// a chunk ends with a file whose name says so, one of three on average, or, as many may be called the same, its bytes,
/// one of eight: when files come or go, those that follow are soon in the chunks that they were in before.
inline constexpr uint64_t kJoinedFileBytesMax = 2_KiB, kJoinedChunkBytesMin = 5_KiB, kJoinedChunkBytesMax = 8_KiB;

/// Reads and cuts a group's streams in the order of the scheme. One thread.
class BatchReader {
 public:
  /// `cells`: whether cells of kNoiseChunkBytes are looked for. `by_content` cuts what moves (Stream::moves).
  BatchReader(const std::vector<Stream>& streams, Source& source, WorkOrder order, const Chunker& chunker,
              uint64_t hole_bytes_min, bool cells, const Chunker* by_content = nullptr)
      : streams_(streams),
        files_(source.files()),
        order_(std::move(order)),
        reader_(source),
        chunker_(chunker),
        by_content_(by_content),
        hole_bytes_min_(hole_bytes_min),
        cells_(cells),
        bytes_ahead_(bytes_ahead(chunker, cells, by_content)),
        is_compressed_(streams.size(), false) {}
  /// How much of a stream has to be seen for a cut.
  static size_t bytes_ahead(const Chunker& chunker, bool cells, const Chunker* by_content = nullptr) {
    return std::max<size_t>({chunker.bytes_ahead(), cells ? kNoiseChunkBytes : 0, kJoinedChunkBytesMax,
                             by_content == nullptr ? 0 : by_content->bytes_ahead()});
  }
  /// Fills the batch anew; it is left empty at the end of the work. Its buffer holds at least bytes_ahead() bytes.
  Status fill(ChunkBatch& batch);

 private:
  Result<bool> take_hole(ChunkBatch& batch);
  /// Cuts chunks off `bytes`, which come next in the item's stream and were read to `begin` of the buffer, or are
  /// viewed.
  void cut(ChunkBatch& batch, ByteSpan bytes, std::optional<size_t> begin);
  /// Whether the last chunk of the batch has room for a stream that joins.
  bool takes(const ChunkBatch& batch, const Stream& stream) const;
  /// Puts all of the item's stream, which was read to `begin` of the buffer, into the last chunk, or begins one with
  /// it.
  void join(ChunkBatch& batch, size_t begin);
  /// The length of the next chunk of the item, off `bytes`.
  size_t next_cut(ByteSpan bytes);

  const std::vector<Stream>& streams_;
  const std::vector<SourceFile>& files_;
  WorkOrder order_;
  StreamGatherer reader_;
  const Chunker& chunker_;
  const Chunker* const by_content_;
  const uint64_t hole_bytes_min_;
  const bool cells_;
  const size_t bytes_ahead_;
  std::vector<bool> is_compressed_;  ///< by stream, from its begin on
  bool joint_ended_ = false;         ///< the last chunk that streams have joined takes no more
  std::optional<WorkItem> item_;     ///< in work; `begin` moves on
};

/// The chunks that a save has laid down so far. Bounded: when it is full, the older half of them is not found any more,
/// which costs space in the store, never data.
class FreshChunks {
 public:
  struct Place {
    uint32_t pack = 0;    ///< ordinal in the group's packs
    uint32_t offset = 0;  ///< at most kPackBytesMax
  };
  /// `expected`: how many there may be. Those that are found take no more than `found_bytes_max`; the rest of
  /// `memory_bytes` holds the prefixes of the others. Room for the index's entries of all of them is counted in.
  explicit FreshChunks(uint64_t memory_bytes, uint64_t expected = 0, uint64_t found_bytes_max = UINT64_MAX);
  std::optional<Place> find(const Score& score, size_t bytes) const;
  void insert(const Score& score, size_t bytes, const Place& place);
  /// The prefixes of the scores of all that was inserted, in that order, to `take`; false if there were too many.
  template <class Take>
  bool each_prefix(const Take& take) const {
    if (forgets_) return false;
    for (const Table<uint64_t>& prefixes : not_found_) std::for_each(prefixes.begin(), prefixes.end(), take);
    for (const Generation* generation : {&previous_, &current_}) generation->each_prefix(take);
    return true;
  }

 private:
  template <class T>
  using Table = std::vector<T, PageAllocator<T>>;

  /// Open addressing over what was laid down, in its order: a look-up that finds nothing, as most do, costs one access
  /// to memory.
  class Generation {
   public:
    /// Has room for so many to be found, without growing.
    void expect(uint64_t chunks);
    std::optional<Place> find(const Score& score, size_t bytes) const;
    void insert(const Score& score, size_t bytes, const Place& place);
    size_t size() const { return known_.size(); }
    template <class Take>
    void each_prefix(const Take& take) const {
      for (const Known& known : known_) take(known.score.prefix());
    }

   private:
    struct Known {
      Score score;
      uint32_t bytes = 0;  ///< at most kChunkBytesMax
    };
    /// Some that follow one another in a pack.
    struct Run {
      size_t begin = 0;  ///< in known_
      Place place;       ///< of the first one
    };
    /// An ordinal in known_, counted from 1, in as many bits as slots have numbers, and above it bits of the score's
    /// hash; 0: free.
    using Slot = uint32_t;

    size_t mask() const { return slots_.size() - 1; }
    Slot tag_of(const Score& score) const { return static_cast<Slot>((score.prefix() >> 32) & ~mask()); }
    /// Of what is taken.
    size_t place_in_known(Slot slot) const { return (slot & mask()) - 1; }
    /// The slot of a score: its own, or the free one where it belongs.
    size_t slot_of(const Score& score) const;
    /// Has the score found there from now on.
    void point(const Score& score, size_t place_in_known);
    void make_room(size_t slots);

    Table<Known> known_;
    std::vector<Run> runs_;
    uint32_t run_end_ = 0;  ///< where the last run ends in its pack
    Table<Slot> slots_;     ///< a power of two, at most two thirds of them taken
  };
  /// What is in the older generation is not found from now on.
  void forget_previous();

  const size_t generation_entries_max_;
  Generation current_, previous_;
  std::vector<Table<uint64_t>> not_found_;  ///< prefixes, by generation
  uint64_t not_found_left_;                 ///< how many more of them there may be
  bool forgets_ = false;
};

/// New chunks on their way into one pack, as they are handed to a codec chain.
struct PendingPack {
  /// Its bytes, wherever they are.
  ByteSpan bytes() const { return viewed.empty() ? ByteSpan(raw) : viewed; }

  ByteVector raw;   ///< copied, or
  ByteSpan viewed;  ///< in the source's own memory, all together
  PackShape shape;
  PackMeta meta;  ///< without the recipe
};

/// Packs of such a part of their size end with what a rank has of a variable, unless that is little; and they are
/// larger by as much where less would be left.
inline constexpr uint64_t kPacksOfMuchOfARank = 16;

/// Gathers the new chunks of one similarity class, or of the classes of a bundle, into packs.
class PackBuilder {
 public:
  /// In the order of a block scheme, packs are of many ranks.
  PackBuilder(uint64_t pack_bytes, Scheme scheme) : pack_bytes_(pack_bytes), is_by_rank_(!takes_blocks(scheme)) {}

  bool empty() const { return pending_.meta.chunks.empty(); }
  /// Has room ready for a pack that begins with this stream, of whose class no more than so many bytes will come.
  void expect(const Stream& stream, uint64_t bytes);
  /// Whether a chunk of this stream may join what is there.
  bool accepts(const Stream& stream, uint64_t bytes) const;
  /// Adds a chunk of a stream that is there until the pack is taken; returns its offset in the pack. `stays`: its bytes
  /// are where they are until the pack is written, and are copied only where they do not follow the last ones.
  uint64_t add(const Stream& stream, uint64_t stream_offset, ByteSpan bytes, const Score& score, bool stays = false);
  /// The same of a chunk of a batch, of whatever streams it is; what is viewed stays.
  uint64_t add(const std::vector<Stream>& streams, const ChunkBatch& batch, const BatchChunk& chunk);
  /// The pack, with its score; the builder is then empty.
  PendingPack take(const std::string& class_key, const ScoreFunction& score);

 private:
  void begin(const Stream& stream);
  /// Returns its offset in the pack.
  uint64_t append_chunk(ByteSpan bytes, const Score& score, bool stays);
  void append(ByteSpan bytes, bool stays);
  /// Packs of what a rank has are a little larger where too little would be left for one of its own.
  uint64_t pack_bytes_of(const Stream& stream) const;
  uint64_t much_of_a_rank() const { return pack_bytes_ / kPacksOfMuchOfARank; }
  /// Whether the pack ends with what a rank has of a variable: if it has much, of few ranks, so that who reads one rank
  /// alone does not read many others.
  bool ends_before(const Stream& stream) const;

  /// Begins another part of a bundle's pack.
  void begin_part(const Stream& stream);
  /// Says where the bytes that come next are from.
  void note_run(const Stream& stream, uint64_t stream_offset, uint64_t bytes);

  const uint64_t pack_bytes_;
  const bool is_by_rank_;
  uint64_t bytes_expected_ = 0;
  PendingPack pending_;
  uint32_t class_id_ = 0;
  Stream::Bundle bundle_;            ///< of what was added last
  std::vector<uint32_t> positions_;  ///< in the bundle, of the parts
  const Stream* last_stream_ = nullptr;
  uint64_t rank_bytes_ = 0;               ///< in the pack, of the last stream's rank
  uint64_t run_begin_ = 0, run_end_ = 0;  ///< of the last run, in its stream
};

}  // namespace varve
