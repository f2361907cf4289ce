#include "store/arena_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace varve {

namespace {
/// Nodes are metadata: a declared size beyond this is hostile.
constexpr uint64_t kNodeBytesMax = kPackBytesMax;
constexpr uint64_t kAlignedReadBytesMin = 32_KiB;

Result<ByteVector> decode_node(ByteSpan meta, ByteSpan body, const ScoreFunction& score, Score& named) {
  ByteReader reader(meta);
  VARVE_ASSIGN(named, read_score(reader, score.score_bytes()));
  VARVE_ASSIGN(uint64_t raw_bytes, reader.varint());
  VARVE_ASSIGN(uint64_t recipe_bytes, reader.varint());
  VARVE_ASSIGN(ByteSpan recipe, reader.bytes(recipe_bytes));
  if (raw_bytes > kNodeBytesMax || !reader.at_end()) return Status::corrupt("a node's meta part is malformed");
  ByteVector content(raw_bytes);
  VARVE_TRY(decode_chain(recipe, body, content));
  if (score(content) != named) return Status::corrupt("a node does not match its score");
  return content;
}
}  // namespace

Status ArenaFrames::at(const Status& status, uint64_t offset) const {
  return status.with_subject(fmt::format("{} at byte {}", path_, offset));
}

Result<FrameHeader> ArenaFrames::read_header(uint64_t offset) const {
  if (offset > bytes_ || bytes_ - offset < kFrameHeaderBytes)
    return at(Status::corrupt("a frame lies past the arena's end"), offset);
  std::byte raw[kFrameHeaderBytes];
  VARVE_TRY(read_exactly(*file_, offset, raw, path_));
  Result<FrameHeader> header = decode_frame_header(raw, arena_.tag(), offset);
  if (!header.ok()) return at(header.status(), offset);
  if (header->frame_bytes() > bytes_ - offset)
    return at(Status::corrupt("a frame reaches past the arena's end"), offset);
  return header;
}

Result<ArenaFrames::Raw> ArenaFrames::read(FrameKind kind, const FrameEntry& entry, Part part,
                                           MutableByteSpan room) const {
  const uint64_t head_bytes = kFrameHeaderBytes + entry.meta_bytes;
  const uint64_t bytes = head_bytes + (part == Part::meta ? 0 : entry.body_bytes);
  if (entry.offset > bytes_ || bytes_ - entry.offset < bytes)
    return at(Status::corrupt("a frame lies past the arena's end"), entry.offset);
  Raw frame;
  ByteSpan head;
  if (part != Part::meta && !room.empty() && room.size() == entry.body_bytes) {
    frame.storage = Buffer(head_bytes);
    const std::array<MutableByteSpan, 2> parts{frame.storage, room};
    VARVE_ASSIGN(const size_t got, file_->read_parts(entry.offset, parts));
    if (got < bytes) return at(Status::corrupt("the arena is shorter than it was"), entry.offset);
    head = frame.storage;
    frame.body = room;
  } else {
    // Header, meta part and body with one read, of whole blocks if it is large (File::read_at).
    const uint64_t block = bytes >= kAlignedReadBytesMin ? kDirectAlignment : 1;
    const uint64_t begin = entry.offset / block * block;
    const uint64_t window_bytes = (entry.offset + bytes - begin + block - 1) / block * block;
    frame.storage = Buffer(window_bytes + block);
    const auto misaligned = reinterpret_cast<uintptr_t>(frame.storage.data()) % block;
    const MutableByteSpan window(frame.storage.data() + (misaligned == 0 ? 0 : block - misaligned), window_bytes);
    VARVE_ASSIGN(const size_t got, file_->read_at(begin, window));
    if (got < entry.offset + bytes - begin)
      return at(Status::corrupt("the arena is shorter than it was"), entry.offset);
    const ByteSpan raw = ByteSpan(window).subspan(entry.offset - begin, bytes);
    head = raw.first(head_bytes);
    frame.body = raw.subspan(head_bytes);
  }

  Result<FrameHeader> header = decode_frame_header(head, arena_.tag(), entry.offset);
  if (!header.ok()) return at(header.status(), entry.offset);
  if (header->kind != kind || header->meta_bytes != entry.meta_bytes || header->body_bytes != entry.body_bytes) {
    return at(Status::corrupt("a frame is not what the arena's index says"), entry.offset);
  }
  frame.meta = head.subspan(kFrameHeaderBytes);
  if (crc32c(frame.meta) != header->meta_crc)
    return at(Status::corrupt("a frame's meta part does not match its checksum"), entry.offset);
  frame.body_crc = header->body_crc;
  if (part == Part::all) VARVE_TRY(check_body(frame, entry));
  return frame;
}

Status ArenaFrames::check_body(const Raw& frame, const FrameEntry& entry) const {
  if (crc32c(frame.body) == frame.body_crc) return {};
  return at(Status::corrupt("a frame's body does not match its checksum"), entry.offset);
}

Result<std::shared_ptr<ArenaReader>> ArenaReader::open(Backend& backend, const std::string& path, const ArenaId& id,
                                                       const UniqueId& store, const ScoreFunction& score) {
  VARVE_ASSIGN(std::unique_ptr<RangeReader> file, backend.open(path));
  const std::string shown = backend.shown_path(path);  // only now is it certain
  VARVE_ASSIGN(const uint64_t bytes, file->size());
  std::shared_ptr<ArenaReader> reader(new ArenaReader({shown, id, std::move(file), bytes}, score));
  const ArenaFrames& frames = reader->frames_;
  ByteVector raw(kArenaHeaderBytes);
  VARVE_TRY(read_exactly(frames.file(), 0, raw, shown));
  Result<ArenaHeader> header = decode_arena_header(raw);
  if (!header.ok()) {
    // Frames name their arena, so that a damaged header costs nothing but this note; another format version does.
    if (header.status().code() == StatusCode::unsupported) return frames.at(header.status(), 0);
    reader->index_status_ = frames.at(header.status(), 0);
  } else if (header->arena != id || header->store != store) {
    return Status::corrupt("this arena belongs to another name or store", shown,
                           "put the arena back where it came from");
  } else if (header->algorithm != score.algorithm() || header->score_bytes != score.score_bytes()) {
    return Status::corrupt("this arena's scores are of another kind than the store's", shown);
  }
  if (Status loaded = reader->load_index(); !loaded.ok()) {
    if (reader->index_status_.ok()) reader->index_status_ = loaded;
    VARVE_TRY(reader->scan_frames());
  }
  reader->build_maps();
  return reader;
}

Status ArenaReader::load_index() {
  if (frames_.bytes() < kArenaHeaderBytes + kFrameHeaderBytes + kArenaFooterBytes)
    return Status::corrupt("the arena is cut off", path());
  const uint64_t footer_offset = frames_.bytes() - kArenaFooterBytes;
  ByteVector raw(kArenaFooterBytes);
  VARVE_TRY(read_exactly(frames_.file(), footer_offset, raw, path()));
  Result<ArenaFooter> footer = decode_arena_footer(raw);
  if (!footer.ok()) return frames_.at(footer.status(), footer_offset);
  if (footer->arena_tag != id().tag() || footer->arena_bytes != frames_.bytes() ||
      footer->index_offset > footer_offset) {
    return frames_.at(Status::corrupt("the arena's footer belongs to another arena or size"), footer_offset);
  }
  VARVE_ASSIGN(FrameHeader header, frames_.read_header(footer->index_offset));
  if (header.kind != FrameKind::index || header.offset + header.frame_bytes() != footer_offset ||
      header.meta_bytes != 0) {
    return frames_.at(Status::corrupt("the arena's footer does not point at its index"), footer->index_offset);
  }
  ByteVector body(header.body_bytes);
  VARVE_TRY(read_exactly(frames_.file(), header.offset + kFrameHeaderBytes, body, path()));
  if (crc32c(body) != header.body_crc)
    return frames_.at(Status::corrupt("the arena's index does not match its checksum"), header.offset);
  Result<ArenaIndex> index = decode_arena_index(body, score_.score_bytes());
  if (!index.ok()) return frames_.at(index.status(), header.offset);
  index_ = std::move(*index);
  return {};
}

Status ArenaReader::scan_frames() {
  index_ = {};
  const auto note_unread = [this](const Status& failure) {
    if (!failure.ok() && failure.code() != StatusCode::corrupt && unread_status_.ok()) unread_status_ = failure;
  };
  constexpr size_t window_bytes = 64_KiB;
  ByteVector window(window_bytes);
  uint64_t offset = kArenaHeaderBytes;
  while (offset + kFrameHeaderBytes <= frames_.bytes()) {
    Result<FrameHeader> header = frames_.read_header(offset);
    note_unread(header.status());
    if (header.ok() && header->kind != FrameKind::index) {
      FrameEntry entry{{}, offset, header->meta_bytes, header->body_bytes, 0, 0, 0};
      Result<RawFrame> parts = frames_.read(header->kind, entry, ArenaFrames::Part::meta);
      note_unread(parts.status());
      if (parts.ok()) {
        ByteReader fields(parts->meta);
        VARVE_ASSIGN(entry.score, read_score(fields, score_.score_bytes()));
        if (header->kind == FrameKind::pack) {
          if (Result<PackMeta> meta = decode_pack_meta(parts->meta, score_); meta.ok()) {
            entry.raw_bytes = meta->raw_bytes();
            entry.chunk_count = meta->chunks.size();
            entry.missing_bytes = entry.raw_bytes - meta->held_bytes();
          }
        }
        (header->kind == FrameKind::pack ? index_.packs : index_.nodes).push_back(entry);
      }
    }
    if (header.ok()) {
      offset += header->frame_bytes();
      continue;
    }
    // Lost the thread: the next frame is where its magic number, its own offset and its checksum agree.
    VARVE_ASSIGN(size_t got, frames_.file().read_at(offset + 1, window));
    auto begin = window.begin(), end = window.begin() + static_cast<ptrdiff_t>(got);
    auto found = std::search(begin, end, as_bytes("VFRM").begin(), as_bytes("VFRM").end());
    offset += 1 + (found != end ? static_cast<uint64_t>(found - begin) : got > 3 ? got - 3 : got);
    if (got < 4) break;
  }
  return {};
}

void ArenaReader::build_maps() {
  for (size_t i = 0; i < index_.packs.size(); ++i) packs_.emplace(index_.packs[i].score, i);
  for (size_t i = 0; i < index_.nodes.size(); ++i) nodes_.emplace(index_.nodes[i].score, i);
}

std::optional<size_t> ArenaReader::find_pack(const Score& score) const {
  auto found = packs_.find(score);
  return found == packs_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<size_t> ArenaReader::find_node(const Score& score) const {
  auto found = nodes_.find(score);
  return found == nodes_.end() ? std::nullopt : std::optional(found->second);
}

Result<ArenaReader::RawFrame> ArenaReader::read_raw(FrameKind kind, size_t ordinal) const {
  return frames_.read(kind, (kind == FrameKind::pack ? index_.packs : index_.nodes)[ordinal], ArenaFrames::Part::all);
}

Result<PackMeta> ArenaReader::read_pack_meta(size_t ordinal) const {
  const FrameEntry& entry = index_.packs[ordinal];
  VARVE_ASSIGN(RawFrame parts, frames_.read(FrameKind::pack, entry, ArenaFrames::Part::meta));
  Result<PackMeta> meta = decode_pack_meta(parts.meta, score_);
  if (!meta.ok()) return frames_.at(meta.status(), entry.offset);
  if (meta->score != entry.score)
    return frames_.at(Status::corrupt("a pack is not what the arena's index says"), entry.offset);
  return meta;
}

Result<Pack> ArenaReader::read_pack(size_t ordinal, MutableByteSpan room) const {
  const FrameEntry& entry = index_.packs[ordinal];
  VARVE_ASSIGN(RawFrame parts, frames_.read(FrameKind::pack, entry, ArenaFrames::Part::unchecked_body, room));
  Result<PackMeta> meta = decode_pack_meta(parts.meta, score_);
  if (!meta.ok()) return frames_.at(meta.status(), entry.offset);
  if (meta->score != entry.score)
    return frames_.at(Status::corrupt("a pack is not what the arena's index says"), entry.offset);
  // Where the body is the chunks themselves, these are checked one by one before they are used, and only these.
  if (!recipe_is_store(meta->recipe)) {
    VARVE_TRY(frames_.check_body(parts, entry));
    // What is as long encoded as it is raw lies where it would be decoded to.
    if (parts.body.data() == room.data()) room = {};
  }
  Result<Pack> pack = Pack::decode(std::move(*meta), std::move(parts.storage), parts.body, score_, room);
  if (!pack.ok()) return frames_.at(pack.status(), entry.offset);
  return pack;
}

void ArenaReader::will_read_pack(size_t ordinal) const {
  const FrameEntry& entry = index_.packs[ordinal];
  frames_.file().will_need(entry.offset, kFrameHeaderBytes + entry.meta_bytes + entry.body_bytes);
}

Result<ByteVector> ArenaReader::read_node(size_t ordinal) const {
  const FrameEntry& entry = index_.nodes[ordinal];
  VARVE_ASSIGN(RawFrame parts, read_raw(FrameKind::node, ordinal));
  Score named;
  Result<ByteVector> content = decode_node(parts.meta, parts.body, score_, named);
  if (!content.ok()) return frames_.at(content.status(), entry.offset);
  if (named != entry.score)
    return frames_.at(Status::corrupt("a node is not what the arena's index says"), entry.offset);
  return content;
}

Status ArenaReader::verify_frame(const FrameHeader& header, bool deep, std::optional<Score>& known) const {
  FrameEntry entry{{}, header.offset, header.meta_bytes, header.body_bytes, 0, 0, 0};
  VARVE_ASSIGN(RawFrame parts, frames_.read(header.kind, entry, ArenaFrames::Part::meta));
  ByteReader fields(parts.meta);
  VARVE_ASSIGN(known, read_score(fields, score_.score_bytes()));
  if (deep) {
    VARVE_ASSIGN(parts, frames_.read(header.kind, entry, ArenaFrames::Part::all));
  }
  if (header.kind == FrameKind::pack) {
    VARVE_ASSIGN(PackMeta meta, decode_pack_meta(parts.meta, score_));
    if (!find_pack(*known)) return Status::corrupt("a pack is missing from the arena's index");
    if (!deep) return {};
    VARVE_ASSIGN(Pack pack, Pack::decode(std::move(meta), std::move(parts.storage), parts.body, score_));
    return pack.verify_all();
  }
  if (!find_node(*known)) return Status::corrupt("a node is missing from the arena's index");
  if (!deep) return {};
  Score named;
  return decode_node(parts.meta, parts.body, score_, named).status();
}

void ArenaReader::verify(bool deep, const std::function<void(const Status&, std::optional<Score>)>& damaged,
                         ProgressSink& progress) const {
  if (!index_status_.ok()) damaged(index_status_, std::nullopt);
  // What the index lists must be there; what is there is then checked in the order of the file.
  std::vector<std::pair<uint64_t, Score>> listed;
  for (const FrameEntry& entry : index_.packs) listed.emplace_back(entry.offset, entry.score);
  for (const FrameEntry& entry : index_.nodes) listed.emplace_back(entry.offset, entry.score);
  std::sort(listed.begin(), listed.end());
  size_t next_listed = 0;
  uint64_t offset = kArenaHeaderBytes, told = 0;
  while (offset + kArenaFooterBytes < frames_.bytes() && !progress.cancelled()) {
    progress.advance(offset - told);
    told = offset;
    Result<FrameHeader> header = frames_.read_header(offset);
    if (next_listed < listed.size() && listed[next_listed].first == offset) ++next_listed;
    if (!header.ok()) {
      std::optional<Score> known;
      if (next_listed > 0 && listed[next_listed - 1].first == offset) known = listed[next_listed - 1].second;
      damaged(header.status(), known);
      if (next_listed == listed.size()) break;  // only the index is left, and load_index() has judged that
      offset = listed[next_listed].first;
      continue;
    }
    if (header->kind != FrameKind::index) {
      std::optional<Score> known;
      if (next_listed > 0 && listed[next_listed - 1].first == offset) known = listed[next_listed - 1].second;
      std::optional<Score> named;
      Status status = verify_frame(*header, deep, named);
      if (!status.ok()) damaged(status.subject().empty() ? frames_.at(status, offset) : status, known ? known : named);
    }
    offset += header->frame_bytes();
  }
  if (!progress.cancelled()) progress.advance(frames_.bytes() - told);
}

}  // namespace varve
