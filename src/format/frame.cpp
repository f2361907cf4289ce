#include "format/frame.h"

#include <algorithm>

namespace varve {

namespace {
constexpr char kArenaMagic[9] = "VARVEARN";
constexpr char kFooterMagic[9] = "VARVEEND";
constexpr uint32_t kFrameMagic = 0x4d524656;  // "VFRM"

/// The last four bytes of every fixed structure are the CRC of those before.
void append_crc(ByteVector& out, size_t begin) {
  uint32_t crc = crc32c(ByteSpan(out).subspan(begin));
  ByteWriter(out).le32(crc);
}
bool crc_matches(ByteSpan structure) {
  return load_le<uint32_t>(structure.data() + structure.size() - 4) == crc32c(structure.first(structure.size() - 4));
}
}  // namespace

void write_score(ByteWriter& out, const Score& score, size_t score_bytes) {
  out.bytes(ByteSpan(score.bytes).first(score_bytes));
}

Result<Score> read_score(ByteReader& in, size_t score_bytes) {
  VARVE_ASSIGN(ByteSpan raw, in.bytes(score_bytes));
  Score score;
  std::copy(raw.begin(), raw.end(), score.bytes.begin());
  return score;
}

void encode_arena_header(const ArenaHeader& header, ByteVector& out) {
  size_t begin = out.size();
  ByteWriter w(out);
  w.bytes(as_bytes(std::string_view(kArenaMagic, 8)));
  w.le16(kArenaFormatVersion);
  w.u8(static_cast<uint8_t>(header.algorithm));
  w.u8(header.score_bytes);
  w.le32(0);
  w.bytes(header.arena.bytes);
  w.bytes(header.store.bytes);
  w.le64(0);
  w.le32(0);
  append_crc(out, begin);
}

Result<ArenaHeader> decode_arena_header(ByteSpan raw) {
  if (raw.size() != kArenaHeaderBytes || as_text(raw.first(8)) != std::string_view(kArenaMagic, 8)) {
    return Status::corrupt("not an arena: wrong magic number");
  }
  if (!crc_matches(raw)) return Status::corrupt("the arena's header does not match its checksum");
  uint16_t version = load_le<uint16_t>(raw.data() + 8);
  if (version != kArenaFormatVersion) {
    return Status::unsupported("this arena has format version " + std::to_string(version) +
                                   ", this Varve reads version " + std::to_string(kArenaFormatVersion),
                               {}, "use a newer Varve");
  }
  ArenaHeader header;
  header.algorithm = static_cast<ScoreAlgorithm>(raw[10]);
  header.score_bytes = static_cast<uint8_t>(raw[11]);
  std::copy_n(raw.begin() + 16, 16, header.arena.bytes.begin());
  std::copy_n(raw.begin() + 32, 16, header.store.bytes.begin());
  return header;
}

void encode_frame_header(const FrameHeader& header, std::byte* out) {
  store_le<uint32_t>(out, kFrameMagic);
  store_le<uint32_t>(out + 4, static_cast<uint32_t>(header.kind));  // kind u8 and three reserved zero bytes
  store_le<uint64_t>(out + 8, header.arena_tag);
  store_le<uint64_t>(out + 16, header.offset);
  store_le<uint32_t>(out + 24, header.meta_bytes);
  store_le<uint32_t>(out + 28, header.body_crc);
  store_le<uint64_t>(out + 32, header.body_bytes);
  store_le<uint32_t>(out + 40, header.meta_crc);
  store_le<uint32_t>(out + 44, crc32c(ByteSpan(out, 44)));
}

Result<FrameHeader> decode_frame_header(ByteSpan raw, uint64_t arena_tag, uint64_t offset) {
  if (raw.size() < kFrameHeaderBytes) return Status::corrupt("the arena ends inside a frame header");
  raw = raw.first(kFrameHeaderBytes);
  if (load_le<uint32_t>(raw.data()) != kFrameMagic || !crc_matches(raw)) {
    return Status::corrupt("a frame header is damaged");
  }
  FrameHeader header;
  uint32_t kind = load_le<uint32_t>(raw.data() + 4);
  if (kind < 1 || kind > 3) return Status::corrupt("a frame is of unknown kind");
  header.kind = static_cast<FrameKind>(kind);
  header.arena_tag = load_le<uint64_t>(raw.data() + 8);
  header.offset = load_le<uint64_t>(raw.data() + 16);
  header.meta_bytes = load_le<uint32_t>(raw.data() + 24);
  header.body_crc = load_le<uint32_t>(raw.data() + 28);
  header.body_bytes = load_le<uint64_t>(raw.data() + 32);
  header.meta_crc = load_le<uint32_t>(raw.data() + 40);
  if (header.arena_tag != arena_tag || header.offset != offset) {
    return Status::corrupt("a frame lies where it does not belong (misplaced or stale block)");
  }
  if (header.meta_bytes > kFrameMetaBytesMax || header.body_bytes > kFrameBodyBytesMax) {
    return Status::corrupt("a frame declares more bytes than the format allows");
  }
  return header;
}

void encode_arena_footer(const ArenaFooter& footer, ByteVector& out) {
  size_t begin = out.size();
  ByteWriter w(out);
  w.bytes(as_bytes(std::string_view(kFooterMagic, 8)));
  w.le64(footer.arena_tag);
  w.le64(footer.index_offset);
  w.le64(footer.arena_bytes);
  w.le32(0);
  append_crc(out, begin);
}

Result<ArenaFooter> decode_arena_footer(ByteSpan raw) {
  if (raw.size() != kArenaFooterBytes || as_text(raw.first(8)) != std::string_view(kFooterMagic, 8) ||
      !crc_matches(raw)) {
    return Status::corrupt("the arena has no valid footer (cut off or damaged)");
  }
  return ArenaFooter{load_le<uint64_t>(raw.data() + 8), load_le<uint64_t>(raw.data() + 16),
                     load_le<uint64_t>(raw.data() + 24)};
}

namespace {
void encode_entries(const std::vector<FrameEntry>& entries, size_t score_bytes, ByteWriter& w) {
  w.varint(entries.size());
  uint64_t previous = 0;
  for (const FrameEntry& entry : entries) {
    write_score(w, entry.score, score_bytes);
    w.varint(entry.offset - previous);
    w.varint(entry.meta_bytes);
    w.varint(entry.body_bytes);
    w.varint(entry.raw_bytes);
    w.varint(entry.chunk_count);
    w.varint(entry.missing_bytes);
    previous = entry.offset;
  }
}

Result<std::vector<FrameEntry>> decode_entries(ByteReader& reader, size_t score_bytes) {
  VARVE_ASSIGN(uint64_t count, reader.count(score_bytes + 6));
  std::vector<FrameEntry> entries(count);
  uint64_t previous = 0;
  for (FrameEntry& entry : entries) {
    VARVE_ASSIGN(entry.score, read_score(reader, score_bytes));
    VARVE_ASSIGN(uint64_t step, reader.varint());
    VARVE_ASSIGN(uint64_t meta_bytes, reader.varint());
    VARVE_ASSIGN(entry.body_bytes, reader.varint());
    VARVE_ASSIGN(entry.raw_bytes, reader.varint());
    VARVE_ASSIGN(entry.chunk_count, reader.varint());
    VARVE_ASSIGN(entry.missing_bytes, reader.varint());
    if (meta_bytes > kFrameMetaBytesMax || entry.body_bytes > kFrameBodyBytesMax || step > UINT64_MAX - previous) {
      return Status::corrupt("the arena's index declares a frame beyond the limits");
    }
    entry.meta_bytes = static_cast<uint32_t>(meta_bytes);
    entry.offset = previous + step;
    previous = entry.offset;
  }
  return entries;
}
}  // namespace

void encode_arena_index(const ArenaIndex& index, size_t score_bytes, ByteVector& out) {
  ByteWriter w(out);
  encode_entries(index.packs, score_bytes, w);
  encode_entries(index.nodes, score_bytes, w);
}

Result<ArenaIndex> decode_arena_index(ByteSpan raw, size_t score_bytes) {
  ByteReader reader(raw);
  ArenaIndex index;
  VARVE_ASSIGN(index.packs, decode_entries(reader, score_bytes));
  VARVE_ASSIGN(index.nodes, decode_entries(reader, score_bytes));
  if (!reader.at_end()) return Status::corrupt("the arena's index is longer than its entries");
  return index;
}

}  // namespace varve
