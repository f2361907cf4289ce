#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "format/frame.h"
#include "layout/layout.h"

namespace varve {

/// One chunk of a pack: its length and the score of its raw bytes.
struct ChunkEntry {
  uint32_t bytes = 0;
  Score score;
};

inline constexpr size_t kPackNeedsMax = 16;
inline constexpr size_t kClassKeyBytesMax = 70'000;

/// What the meta part of a pack's frame says (FORMAT.md, "Pack"). The pack's score is the hash of its table of chunks,
/// so neither a change of codec nor the removal of dead chunks from the body changes it.
struct PackMeta {
  Score score;
  std::string class_key;  ///< of the similarity class; for people and statistics
  ByteVector recipe;      ///< of the codec chain (codec.h)
  /// Scores of packs whose raw bytes decoding needs. No codec of this version uses them; a pack that names any is
  /// `unsupported`.
  std::vector<Score> needs;
  std::vector<ChunkEntry> chunks;
  /// Alternating counts of chunks that the body holds and chunks that prune has left out, beginning with held ones.
  /// Empty: it holds all.
  std::vector<uint64_t> held_runs;

  /// Sum of the lengths of all chunks: the address space that references into the pack use.
  uint64_t raw_bytes() const;
  /// Sum of the lengths of the chunks that the body holds: what decoding gives.
  uint64_t held_bytes() const;
  /// Whether the body holds each chunk.
  std::vector<bool> held() const;
};

/// The score of a pack with this table.
Score pack_score(const ScoreFunction& score, const std::vector<ChunkEntry>& chunks);

void encode_pack_meta(const PackMeta& meta, size_t score_bytes, ByteVector& out);
/// Checks lengths, limits and the score against the table.
Result<PackMeta> decode_pack_meta(ByteSpan raw, const ScoreFunction& score);

/// A decoded pack: its chunks at the offsets that references use. Chunks that prune left out are missing. Bytes leave
/// it only after their chunk was checked against its score. One thread at a time.
class Pack {
 public:
  /// Decodes `body`, which lies in `storage`; corrupt if it does not decode to the declared size. `room`: memory that
  /// outlives the pack, in which it may lie if that is exactly as large as what it holds.
  static Result<Pack> decode(PackMeta meta, Buffer storage, ByteSpan body, const ScoreFunction& score,
                             MutableByteSpan room = {});

  const PackMeta& meta() const { return meta_; }
  /// The bytes [offset, offset + bytes) of the pack, verified; corrupt if they leave it, or a chunk among them is
  /// missing or damaged. Valid as long as the pack.
  Result<ByteSpan> range(uint64_t offset, uint64_t bytes);
  /// Checks all chunks of `ranges` as range() does, which then has nothing left to check: faster than one by one.
  Status verify(std::span<const Extent> ranges);
  /// Checks all chunks that the pack holds.
  Status verify_all();
  /// Where the chunks lie that are there and whole: sorted, neighbours joined.
  std::vector<Extent> whole_extents();
  /// The pack with all chunks that are whole in one of two copies; these have the same score.
  static Pack united(Pack& one, Pack& other);

 private:
  explicit Pack(const ScoreFunction& score) : score_(score) {}
  /// The chunks [first, end) that the bytes [offset, offset + bytes) touch; corrupt if these leave the pack.
  struct Chunks {
    size_t first = 0;
    size_t end = 0;
  };
  Result<Chunks> chunks_of(uint64_t offset, uint64_t bytes) const;
  Status outside() const;
  /// Checks those of them that were not checked yet; corrupt if one is missing.
  Status verify_chunks(std::span<const Chunks> runs);
  bool is_whole(size_t chunk);

  struct ChunkPlace {
    uint64_t pack_offset;
    uint64_t raw_offset;  ///< kMissing if the body does not hold it
    bool verified;
  };
  static constexpr uint64_t kMissing = UINT64_MAX;
  ScoreFunction score_;
  PackMeta meta_;
  Buffer storage_;
  ByteSpan raw_;  ///< of the chunks that the body holds; in storage_, or in the room that was given
  std::vector<ChunkPlace> places_;
};

}  // namespace varve
