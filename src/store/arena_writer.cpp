#include "store/arena_writer.h"

#include <algorithm>
#include <cstring>

#include "core/guarded.h"
#include "core/sync.h"
#include "core/work_meter.h"

namespace varve {

namespace {
Status no_buffer(const std::string& path) {
  return Status::resource_limit("no memory for the arena's write buffers", path);
}
}  // namespace

Result<std::unique_ptr<ArenaWriter>> ArenaWriter::create(Backend& backend, const std::string& path,
                                                         const ArenaHeader& header, ArenaWriterOptions options) {
  std::unique_ptr<ArenaWriter> writer(new ArenaWriter(path, header, options));
  VARVE_TRY(writer->start(backend));
  return writer;
}

Status ArenaWriter::start(Backend& backend) {
  VARVE_TRY(make_buffer());
  VARVE_ASSIGN(object_, backend.put(path_, {.direct = options_.direct}));
  ByteVector raw;
  encode_arena_header(header_, raw);
  return put(raw);
}

Status ArenaWriter::make_buffer() {
  filling_ = {};
  filling_.block = AlignedBlock(options_.buffer_bytes);
  if (filling_.block.empty()) return no_buffer(path_);
  ++buffer_count_;
  return {};
}

ArenaWriter::~ArenaWriter() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  has_pending_.notify_all();
  for (Thread& writer : writers_) writer.join();
}

Result<size_t> ArenaWriter::append_pack(const PackMeta& meta, ByteSpan body, std::shared_ptr<const void> keeper) {
  ByteVector raw_meta;
  encode_pack_meta(meta, header_.score_bytes, raw_meta);
  VARVE_ASSIGN(uint64_t offset, append_frame(FrameKind::pack, raw_meta, body, keeper));
  index_.packs.push_back({meta.score, offset, static_cast<uint32_t>(raw_meta.size()), body.size(), meta.raw_bytes(),
                          meta.chunks.size(), meta.raw_bytes() - meta.held_bytes()});
  return index_.packs.size() - 1;
}

Result<size_t> ArenaWriter::append_node(const Score& score, ByteSpan content) {
  VARVE_ASSIGN(CodecChain chain, CodecChain::parse("zstd:3"));
  PackShape shape{ElementType{}, {Run{content.size(), {}, false}}};
  VARVE_ASSIGN(EncodedBytes encoded, encode_chain(chain, content, shape));
  // FORMAT.md, "Node": score | raw bytes | recipe
  ByteVector meta;
  ByteWriter w(meta);
  write_score(w, score, header_.score_bytes);
  w.varint(content.size());
  w.varint(encoded.recipe.size());
  w.bytes(encoded.recipe);
  VARVE_ASSIGN(uint64_t offset, append_frame(FrameKind::node, meta, encoded.body));
  index_.nodes.push_back(
      {score, offset, static_cast<uint32_t>(meta.size()), encoded.body.size(), content.size(), 0, 0});
  return index_.nodes.size() - 1;
}

Status ArenaWriter::append_copy(FrameKind kind, const FrameEntry& entry, ByteSpan meta, ByteSpan body) {
  VARVE_ASSIGN(uint64_t offset, append_frame(kind, meta, body));
  FrameEntry copy = entry;
  copy.offset = offset;
  copy.meta_bytes = static_cast<uint32_t>(meta.size());
  copy.body_bytes = body.size();
  (kind == FrameKind::pack ? index_.packs : index_.nodes).push_back(copy);
  return {};
}

Result<uint64_t> ArenaWriter::append_frame(FrameKind kind, ByteSpan meta, ByteSpan body,
                                           const std::shared_ptr<const void>& keeper) {
  if (meta.size() > kFrameMetaBytesMax || body.size() > kFrameBodyBytesMax) {
    return Status::resource_limit("a frame is larger than the format allows", path_);
  }
  FrameHeader header;
  header.kind = kind;
  header.arena_tag = header_.arena.tag();
  header.offset = next_offset_;
  header.meta_bytes = static_cast<uint32_t>(meta.size());
  header.body_bytes = body.size();
  header.meta_crc = crc32c(meta);
  header.body_crc = crc32c(body);
  std::byte raw[kFrameHeaderBytes];
  encode_frame_header(header, raw);
  VARVE_TRY(put(raw));
  VARVE_TRY(put(meta));
  VARVE_TRY(put(body, keeper));
  return header.offset;
}

Status ArenaWriter::put(ByteSpan bytes, const std::shared_ptr<const void>& keeper) {
  if (filling_.block.empty()) return no_buffer(path_);
  next_offset_ += bytes.size();
  while (!bytes.empty()) {
    size_t part = std::min<size_t>(bytes.size(), options_.buffer_bytes - filling_.used);
    if (keeper) {
      filling_.late.push_back({filling_.used, bytes.first(part), keeper});
    } else {
      std::memcpy(filling_.block.data() + filling_.used, bytes.data(), part);
    }
    filling_.used += part;
    bytes = bytes.subspan(part);
    if (filling_.used == options_.buffer_bytes) VARVE_TRY(flush_buffer());
  }
  return {};
}

Status ArenaWriter::flush_buffer() {
  if (options_.background) start_writers();
  const uint64_t next_offset = filling_.offset + filling_.used;
  const Status written = hand_out();
  if (filling_.block.empty()) VARVE_TRY(take_buffer());
  filling_.offset = next_offset;
  filling_.used = 0;
  return written;
}

/// Writes the buffer, or has it written if there are threads for that: then it is gone.
Status ArenaWriter::hand_out() {
  // A write that bypasses the cache is a whole number of blocks; seal() cuts off what the last one has too much.
  const size_t whole = (filling_.used + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  std::memset(filling_.block.data() + filling_.used, 0, whole - filling_.used);
  if (writers_.empty()) return write(filling_, whole, 1);
  filling_.used = whole;
  const MutexLock lock(mutex_);
  pending_.push_back(std::move(filling_));
  filling_ = {};
  has_pending_.notify_one();
  return write_status_;
}

/// Small arenas need one or two: more are made only while those are being written.
Status ArenaWriter::take_buffer() {
  {
    const MutexLock lock(mutex_);
    const bool may_make = buffer_count_ < std::max(2u, options_.buffer_count);
    while (idle_.empty() && !may_make) has_written_.wait(mutex_);
    if (!idle_.empty()) {
      filling_ = std::move(idle_.back());
      idle_.pop_back();
      return {};
    }
  }
  return make_buffer();
}

/// `writing`: how many threads do, with this one.
Status ArenaWriter::write(Buffer& buffer, size_t bytes, size_t writing) {
  for (const LateBytes& late : buffer.late)
    std::memcpy(buffer.block.data() + late.at, late.bytes.data(), late.bytes.size());
  buffer.late.clear();
  const WorkMeter::Timer timer(WorkKind::write, bytes, writing);
  return object_->write_at(buffer.offset, buffer.block.first(bytes));
}

/// As many as can write at once, with the first buffers; none if the system refuses, and the caller writes.
void ArenaWriter::start_writers() {
  if (writers_.size() >= object_->writes_at_once()) return;
  writers_.reserve(object_->writes_at_once());
  Result<Thread> started = start_thread([this, meter = WorkMeter::current()] {
    const WorkMeter::Scope metered(meter);
    run_writer();
  });
  if (started.ok()) writers_.push_back(std::move(*started));
}

Status ArenaWriter::wait_for_writers() {
  const MutexLock lock(mutex_);
  while (!pending_.empty() || writing_ > 0) has_written_.wait(mutex_);
  return write_status_;
}

void ArenaWriter::run_writer() {
  MutexLock lock(mutex_);
  while (true) {
    while (pending_.empty() && !stopping_) has_pending_.wait(mutex_);
    if (pending_.empty()) return;
    Buffer buffer = std::move(pending_.front());
    pending_.pop_front();
    const size_t writing = ++writing_;
    const bool given_up = stopping_ || !write_status_.ok();
    lock.unlock();
    Status status;
    if (given_up) {
      buffer.late.clear();
    } else {
      status = write(buffer, buffer.used, writing);
    }
    lock.lock();
    if (write_status_.ok()) write_status_ = std::move(status);
    --writing_;
    idle_.push_back(std::move(buffer));
    has_written_.notify_one();
  }
}

Status ArenaWriter::seal() {
  ByteVector body;
  encode_arena_index(index_, header_.score_bytes, body);
  VARVE_ASSIGN(uint64_t index_offset, append_frame(FrameKind::index, {}, body));
  ByteVector footer;
  encode_arena_footer({header_.arena.tag(), index_offset, next_offset_ + kArenaFooterBytes}, footer);
  VARVE_TRY(put(footer));
  if (filling_.used > 0) VARVE_TRY(hand_out());
  VARVE_TRY(wait_for_writers());
  const WorkMeter::Timer timer(WorkKind::sync, 0);
  return object_->seal(next_offset_);
}

}  // namespace varve
