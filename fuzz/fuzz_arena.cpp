// Any bytes are an arena that can be read in part or a Status: frames, index, packs and nodes, with the checksums and
// names that are there, and with right ones, so that what lies behind them is reached.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "backend/folder_backend.h"
#include "core/memory_file_system.h"
#include "fuzz_layout.h"
#include "store/arena_reader.h"

using namespace varve;

namespace {

const ScoreFunction kScore = ScoreFunction::preferred();
constexpr const char* kPath = "/arena";
/// Frames of each kind that are read, as an index may name one large frame many times; and bytes to decode.
constexpr size_t kFramesReadMax = 64;
constexpr uint64_t kDecodedBytesMax = 1_MiB;

void seal(MutableByteSpan structure) {
  store_le<uint32_t>(structure.data() + structure.size() - 4, crc32c(structure.first(structure.size() - 4)));
}

/// Puts right what a frame at `offset` says of its place and its checksums; returns its bytes, if it is one.
std::optional<FrameHeader> repair_frame(MutableByteSpan raw, uint64_t offset, uint64_t arena_tag) {
  const MutableByteSpan header = raw.subspan(offset, kFrameHeaderBytes);
  store_le<uint64_t>(header.data() + 8, arena_tag);
  store_le<uint64_t>(header.data() + 16, offset);
  seal(header);
  const Result<FrameHeader> frame = decode_frame_header(header, arena_tag, offset);
  if (!frame.ok() || frame->frame_bytes() > raw.size() - offset) return std::nullopt;
  const ByteSpan rest = ByteSpan(raw).subspan(offset + kFrameHeaderBytes);
  FrameHeader repaired = *frame;
  repaired.meta_crc = crc32c(rest.first(frame->meta_bytes));
  repaired.body_crc = crc32c(rest.subspan(frame->meta_bytes, frame->body_bytes));
  encode_frame_header(repaired, header.data());
  return repaired;
}

/// FORMAT.md, "Arena header", "Frame", "Arena footer".
void repair(MutableByteSpan raw, const ArenaId& arena, const UniqueId& store) {
  if (raw.size() < kArenaHeaderBytes + kArenaFooterBytes) return;
  std::copy(arena.bytes.begin(), arena.bytes.end(), raw.begin() + 16);
  std::copy(store.bytes.begin(), store.bytes.end(), raw.begin() + 32);
  seal(raw.first(kArenaHeaderBytes));
  const MutableByteSpan footer = raw.last(kArenaFooterBytes);
  store_le<uint64_t>(footer.data() + 8, arena.tag());
  store_le<uint64_t>(footer.data() + 24, raw.size());
  uint64_t offset = kArenaHeaderBytes;
  while (offset + kFrameHeaderBytes <= raw.size()) {
    const ByteSpan magic = as_bytes("VFRM");
    const auto found = std::search(raw.begin() + static_cast<ptrdiff_t>(offset), raw.end(), magic.begin(), magic.end());
    offset = static_cast<uint64_t>(found - raw.begin());
    if (raw.size() - offset < kFrameHeaderBytes) break;
    const std::optional<FrameHeader> frame = repair_frame(raw, offset, arena.tag());
    if (frame && frame->kind == FrameKind::index) store_le<uint64_t>(footer.data() + 16, offset);
    offset += frame ? frame->frame_bytes() : 1;
  }
  seal(footer);
}

void read_whole(const ArenaReader& reader) {
  const ArenaIndex& index = reader.index();
  for (size_t i = 0; i < std::min(index.packs.size(), kFramesReadMax); ++i) {
    const Result<PackMeta> meta = reader.read_pack_meta(i);
    if (!meta.ok() || meta->held_bytes() > kDecodedBytesMax) continue;
    if (meta->score != index.packs[i].score) std::abort();
    Result<Pack> pack = reader.read_pack(i);
    if (!pack.ok()) continue;
    (void)pack->verify_all().ok();
    (void)pack->whole_extents();
  }
  for (size_t i = 0; i < std::min(index.nodes.size(), kFramesReadMax); ++i) {
    const Result<ByteVector> content = reader.read_node(i);
    if (content.ok() && kScore(*content) != index.nodes[i].score) std::abort();
  }
}

void read_arena(ByteSpan raw, const ArenaId& arena, const UniqueId& store) {
  MemoryFileSystem fs;
  if (!fs.create(kPath).value()->write_at(0, raw).ok()) std::abort();
  FolderBackend folder(fs, parent_path(kPath));
  const auto reader = ArenaReader::open(folder, kPath, arena, store, kScore);
  if (!reader.ok()) return;
  read_whole(**reader);
  for (bool deep : {false, true}) (*reader)->verify(deep, [](const Status&, std::optional<Score>) {});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const ByteSpan raw = fuzz_bytes(data, size);
  ArenaId arena;
  UniqueId store;
  if (raw.size() >= kArenaHeaderBytes) {
    std::copy_n(raw.begin() + 16, 16, arena.bytes.begin());
    std::copy_n(raw.begin() + 32, 16, store.bytes.begin());
  }
  read_arena(raw, arena, store);
  ByteVector repaired(raw.begin(), raw.end());
  repair(repaired, arena, store);
  read_arena(repaired, arena, store);
  return 0;
}
