#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "core/unique_id.h"
#include "hash/score.h"

namespace varve {

using ArenaId = UniqueId;

inline constexpr uint16_t kArenaFormatVersion = 1;
inline constexpr size_t kArenaHeaderBytes = 64;
inline constexpr size_t kFrameHeaderBytes = 48;
inline constexpr size_t kArenaFooterBytes = 40;
/// Limits on what a frame may declare (FORMAT.md, "Limits").
inline constexpr uint64_t kFrameMetaBytesMax = 256_MiB;
inline constexpr uint64_t kFrameBodyBytesMax = 256_MiB;

/// FORMAT.md, "Arena header".
struct ArenaHeader {
  ArenaId arena;
  UniqueId store;
  ScoreAlgorithm algorithm = ScoreAlgorithm::blake3;
  uint8_t score_bytes = 32;
};
void encode_arena_header(const ArenaHeader& header, ByteVector& out);
Result<ArenaHeader> decode_arena_header(ByteSpan raw);

enum class FrameKind : uint8_t { pack = 1, node = 2, index = 3 };

/// FORMAT.md, "Frame". Each says in which arena and where it lies, so that misplaced and stale blocks are noticed.
struct FrameHeader {
  FrameKind kind = FrameKind::pack;
  uint64_t arena_tag = 0;  ///< ArenaId::tag()
  uint64_t offset = 0;     ///< of this header, from the start of the arena
  uint32_t meta_bytes = 0;
  uint64_t body_bytes = 0;
  uint32_t meta_crc = 0;
  uint32_t body_crc = 0;

  uint64_t frame_bytes() const { return kFrameHeaderBytes + meta_bytes + body_bytes; }
};
void encode_frame_header(const FrameHeader& header, std::byte* out);
/// corrupt unless the header is whole and belongs at `offset` of the arena with that tag.
Result<FrameHeader> decode_frame_header(ByteSpan raw, uint64_t arena_tag, uint64_t offset);

/// FORMAT.md, "Arena footer".
struct ArenaFooter {
  uint64_t arena_tag = 0;
  uint64_t index_offset = 0;
  uint64_t arena_bytes = 0;
};
void encode_arena_footer(const ArenaFooter& footer, ByteVector& out);
Result<ArenaFooter> decode_arena_footer(ByteSpan raw);

/// Where a pack or a node lies in its arena, as listed in the arena's index.
struct FrameEntry {
  Score score;
  uint64_t offset = 0;
  uint32_t meta_bytes = 0;
  uint64_t body_bytes = 0;
  uint64_t raw_bytes = 0;      ///< after decoding
  uint64_t chunk_count = 0;    ///< packs only
  uint64_t missing_bytes = 0;  ///< packs only: raw bytes of chunks that prune has left out
};

/// FORMAT.md, "Arena index".
struct ArenaIndex {
  std::vector<FrameEntry> packs;  ///< in the order of their offsets
  std::vector<FrameEntry> nodes;
};
void encode_arena_index(const ArenaIndex& index, size_t score_bytes, ByteVector& out);
Result<ArenaIndex> decode_arena_index(ByteSpan raw, size_t score_bytes);

void write_score(ByteWriter& out, const Score& score, size_t score_bytes);
Result<Score> read_score(ByteReader& in, size_t score_bytes);

}  // namespace varve
