#include "engine/pack_builder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/file_system.h"
#include "core/work_meter.h"

namespace varve {

std::pair<size_t, uint64_t> StreamGatherer::locate(const Stream& stream, uint64_t offset) {
  if (last_stream_ != &stream || offset < last_extent_at_) {
    last_stream_ = &stream;
    last_extent_ = 0;
    last_extent_at_ = 0;
  }
  while (offset - last_extent_at_ >= stream.extents[last_extent_].bytes)
    last_extent_at_ += stream.extents[last_extent_++].bytes;
  return {last_extent_, offset - last_extent_at_};
}

Status StreamGatherer::read(const Stream& stream, uint64_t offset, MutableByteSpan into) {
  while (!into.empty()) {
    auto [index, skip] = locate(stream, offset);
    const Extent& extent = stream.extents[index];
    const size_t part = std::min<uint64_t>(into.size(), extent.bytes - skip);
    VARVE_TRY(source_.read(stream.file, extent.offset + skip, into.first(part)));
    into = into.subspan(part);
    offset += part;
  }
  return {};
}

ByteSpan StreamGatherer::view(const Stream& stream, uint64_t offset, uint64_t bytes_max) {
  const auto [index, skip] = locate(stream, offset);
  const Extent& extent = stream.extents[index];
  return source_.view(stream.file, extent.offset + skip, std::min(bytes_max, extent.bytes - skip));
}

Result<uint64_t> StreamGatherer::hole_bytes(const Stream& stream, uint64_t offset) {
  auto [index, skip] = locate(stream, offset);
  const Extent& extent = stream.extents[index];
  return source_.hole_bytes(stream.file, extent.offset + skip, extent.bytes - skip);
}

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
  uint64_t bytes_in_all = 0;
  for (const BatchChunk& chunk : batch.chunks) bytes_in_all += chunk.bytes;
  const WorkMeter::Timer timer(WorkKind::score, bytes_in_all);
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

namespace {
/// Whether a program's compressor begins its output so.
bool begins_compressed(ByteSpan bytes) {
  const auto begins = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && as_text(bytes.first(magic.size())) == magic;
  };
  const std::string_view magics[] = {"\x1f\x8b\x08",
                                     "PK\x03\x04",
                                     "\x28\xb5\x2f\xfd",
                                     "\xfd"
                                     "7zXZ",
                                     "BZh",
                                     "MATLAB 5.0 MAT"};
  if (std::any_of(std::begin(magics), std::end(magics), begins)) return true;
  // RFC 1950: deflate with a window of 32 KiB at most, and a check.
  constexpr std::byte method{8}, method_bits{0xf};
  return bytes.size() >= 2 && (bytes[0] & method_bits) == method && bytes[0] <= std::byte{0x78} &&
         (static_cast<unsigned>(bytes[0]) << 8 | static_cast<unsigned>(bytes[1])) % 31 == 0;
}

/// By how much of it the sum of the squared counts of noise's values exceeds what chance gives: of any bytes, and of
/// what a file's format has encoded, for some codecs (lz4, lzf) leave more.
constexpr double kNoiseExcess = 0.1, kEncodedExcess = 1;
/// Of a first look at few of any bytes.
constexpr double kFirstLookExcess = 0.25;

/// How often some bytes have each value.
class ValueCounts {
 public:
  void add(ByteSpan bytes) {
    for (const std::byte value : bytes) ++counts_[static_cast<uint8_t>(value)];
    count_ += bytes.size();
  }
  /// Whether all about as often as the others.
  bool are_even(double excess) const {
    uint64_t squares = 0;
    for (const uint64_t count : counts_) squares += count * count;
    const auto count = static_cast<double>(count_);
    return static_cast<double>(squares) <= (count + count * (count - 1) / 256) * (1 + excess);
  }

 private:
  std::array<uint32_t, 256> counts_{};
  uint64_t count_ = 0;
};

/// Whether some samples of the bytes have all values about as often as the others.
bool is_noise(ByteSpan cell, double excess) {
  constexpr size_t samples = 8, sample_bytes = 512;
  ValueCounts counts;
  for (size_t i = 0; i < samples; ++i) {
    counts.add(cell.subspan(i * (cell.size() / samples), sample_bytes));
    if (i == 0 && !counts.are_even(std::max(excess, kFirstLookExcess))) return false;
  }
  return counts.are_even(excess);
}
}  // namespace

size_t BatchReader::next_cut(ByteSpan bytes) {
  const Stream& stream = streams_[item_->stream];
  const uint64_t remaining = item_->end - item_->begin;
  if (cells_ && item_->begin == 0) is_compressed_[item_->stream] = stream.encoded || begins_compressed(bytes);
  const bool by_content = stream.moves && by_content_ != nullptr && !is_compressed_[item_->stream];
  const bool is_cell = cells_ && !by_content && item_->begin % kNoiseChunkBytes == 0 && remaining >= kNoiseChunkBytes &&
                       kNoiseChunkBytes % stream.type.bytes == 0;
  if (is_cell && is_noise(bytes.first(kNoiseChunkBytes), stream.encoded ? kEncodedExcess : kNoiseExcess))
    return kNoiseChunkBytes;
  return next_chunk_bytes(by_content ? *by_content_ : chunker_, stream.type, bytes, remaining);
}

Status BatchReader::fill(ChunkBatch& batch) {
  batch.chunks.clear();
  batch.joined.clear();
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
    // Where a chunk of several ends, they say, and not the batch.
    if (stream.joins && batch.bytes_max - used < kJoinedChunkBytesMax && !takes(batch, stream)) return {};
    const uint64_t remaining = item_->end - item_->begin;
    const size_t want = std::min<uint64_t>(batch.bytes_max - used, remaining);
    if (want < remaining && (want < bytes_ahead_ || stream.joins)) return {};
    const uint64_t begin_before = item_->begin;
    if (const ByteSpan viewed = reader_.view(stream, item_->begin, want); viewed.size() == want) {
      cut(batch, viewed, std::nullopt);
      used += item_->begin - begin_before;
      if (item_->begin != item_->end && used + bytes_ahead_ > batch.bytes_max) return {};
      continue;
    }
    {
      const WorkMeter::Timer timer(WorkKind::read, want);
      VARVE_TRY(reader_.read(stream, item_->begin, batch.room().subspan(used, want)));
    }
    if (stream.joins && want == stream.bytes) {
      join(batch, used);
    } else {
      cut(batch, ByteSpan(batch.buffer).subspan(used, want), used);
    }
    used += item_->begin - begin_before;
    if (item_->begin != item_->end && used + bytes_ahead_ > batch.bytes_max) return {};
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

void BatchReader::cut(ChunkBatch& batch, ByteSpan bytes, std::optional<size_t> begin) {
  while (!bytes.empty()) {
    if (bytes.size() < item_->end - item_->begin && bytes.size() < bytes_ahead_) return;
    const size_t cut_bytes = next_cut(bytes);
    BatchChunk chunk;
    chunk.stream = item_->stream;
    chunk.stream_offset = item_->begin;
    chunk.bytes = cut_bytes;
    if (begin) {
      chunk.buffer_offset = *begin;
      *begin += cut_bytes;
    } else {
      chunk.viewed = bytes.first(cut_bytes);
    }
    batch.chunks.push_back(chunk);
    item_->begin += cut_bytes;
    bytes = bytes.subspan(cut_bytes);
  }
}

bool BatchReader::takes(const ChunkBatch& batch, const Stream& stream) const {
  if (batch.chunks.empty() || joint_ended_) return false;
  const BatchChunk& last = batch.chunks.back();
  return last.joined > 0 && streams_[last.stream].class_id == stream.class_id &&
         last.bytes + stream.bytes <= kJoinedChunkBytesMax;
}

void BatchReader::join(ChunkBatch& batch, size_t begin) {
  const Stream& stream = streams_[item_->stream];
  if (!takes(batch, stream)) {
    BatchChunk first;
    first.stream = item_->stream;
    first.joined_begin = batch.joined.size();
    first.buffer_offset = begin;
    batch.chunks.push_back(first);
  }
  BatchChunk& chunk = batch.chunks.back();
  chunk.bytes += stream.bytes;
  ++chunk.joined;
  batch.joined.push_back(item_->stream);
  item_->begin = item_->end;
  constexpr uint32_t one_name_of = 3, one_content_of = 8;
  joint_ended_ = chunk.bytes >= kJoinedChunkBytesMin &&
                 (crc32c(as_bytes(base_name(files_[stream.file].path))) % one_name_of == 0 ||
                  crc32c(ByteSpan(batch.buffer).subspan(begin, stream.bytes)) % one_content_of == 0);
}

namespace {
/// What an entry takes on average, with its share of the slots, and as one of the index (or while one generation is
/// copied into more room).
constexpr uint64_t kEntryBytes = 72;
/// The same of one that is not found any more.
constexpr uint64_t kPrefixBytes = 32;
constexpr size_t kSlotsMin = 1024;
}  // namespace

FreshChunks::FreshChunks(uint64_t memory_bytes, uint64_t expected, uint64_t found_bytes_max)
    : generation_entries_max_(
          std::clamp<uint64_t>(std::min(memory_bytes, found_bytes_max) / kEntryBytes / 2, 1024, UINT32_MAX / 2)),
      not_found_left_((memory_bytes - std::min(memory_bytes, found_bytes_max)) / kPrefixBytes) {
  current_.expect(std::min<uint64_t>(expected, generation_entries_max_));
}

std::optional<FreshChunks::Place> FreshChunks::find(const Score& score, size_t bytes) const {
  const std::optional<Place> place = current_.find(score, bytes);
  return place ? place : previous_.find(score, bytes);
}

void FreshChunks::insert(const Score& score, size_t bytes, const Place& place) {
  if (current_.size() >= generation_entries_max_) {
    forget_previous();
    previous_ = std::move(current_);
    current_ = {};
    current_.expect(generation_entries_max_);
  }
  current_.insert(score, bytes, place);
}

void FreshChunks::forget_previous() {
  if (previous_.size() == 0 || forgets_) return;
  if (previous_.size() > not_found_left_) {
    forgets_ = true;
    not_found_ = {};
    return;
  }
  not_found_left_ -= previous_.size();
  Table<uint64_t>& prefixes = not_found_.emplace_back();
  prefixes.reserve(previous_.size());
  previous_.each_prefix([&](uint64_t prefix) { prefixes.push_back(prefix); });
}

void FreshChunks::Generation::expect(uint64_t chunks) { make_room(std::bit_ceil(chunks + chunks / 2)); }

void FreshChunks::Generation::make_room(size_t slots) {
  slots_ = Table<Slot>(std::max(kSlotsMin, slots));
  known_.reserve(slots_.size() / 3 * 2);
  for (size_t i = 0; i < known_.size(); ++i) point(known_[i].score, i);
}

size_t FreshChunks::Generation::slot_of(const Score& score) const {
  const Slot tag = tag_of(score);
  size_t at = score.prefix() & mask();
  while (slots_[at] != 0 && ((slots_[at] & ~mask()) != tag || known_[place_in_known(slots_[at])].score != score))
    at = (at + 1) & mask();
  return at;
}

void FreshChunks::Generation::point(const Score& score, size_t place_in_known) {
  slots_[slot_of(score)] = tag_of(score) | static_cast<Slot>(place_in_known + 1);
}

std::optional<FreshChunks::Place> FreshChunks::Generation::find(const Score& score, size_t bytes) const {
  const Slot slot = slots_.empty() ? 0 : slots_[slot_of(score)];
  if (slot == 0 || known_[place_in_known(slot)].bytes != bytes) return std::nullopt;
  const size_t wanted = place_in_known(slot);
  const auto run = std::prev(std::upper_bound(runs_.begin(), runs_.end(), wanted,
                                              [](size_t place, const Run& each) { return place < each.begin; }));
  Place place = run->place;
  for (size_t i = run->begin; i < wanted; ++i) place.offset += known_[i].bytes;
  return place;
}

void FreshChunks::Generation::insert(const Score& score, size_t bytes, const Place& place) {
  if (3 * (known_.size() + 1) > 2 * slots_.size()) make_room(2 * slots_.size());
  if (runs_.empty() || runs_.back().place.pack != place.pack || run_end_ != place.offset)
    runs_.push_back({known_.size(), place});
  known_.push_back({score, static_cast<uint32_t>(bytes)});
  run_end_ = place.offset + static_cast<uint32_t>(bytes);
  point(score, known_.size() - 1);
}

void PackBuilder::expect(const Stream& stream, uint64_t bytes) {
  const uint64_t classes = stream.bundle.number > 0 ? stream.bundle.classes : 0;
  bytes_expected_ = classes > 0 ? std::min(bundle_pack_bytes(pack_bytes_, classes) + classes * 8_KiB, classes * bytes)
                                : std::min(pack_bytes_of(stream), bytes);
}

void PackBuilder::begin_part(const Stream& stream) {
  PackPart part;
  if (stream.bundle.reference) {
    const auto found = std::find(positions_.begin(), positions_.end(), *stream.bundle.reference);
    if (found != positions_.end()) part.reference = static_cast<uint32_t>(found - positions_.begin());
  }
  pending_.shape.parts.push_back(part);
  positions_.push_back(stream.bundle.position);
}

bool PackBuilder::accepts(const Stream& stream, uint64_t bytes) const {
  if (empty()) return true;
  if (stream.bundle.number > 0) {
    // The classes of a bundle come in its order; the first one again is for the next pack.
    return stream.bundle.number == bundle_.number && stream.bundle.position >= bundle_.position &&
           pending_.bytes().size() + bytes <= 2 * bundle_pack_bytes(pack_bytes_, stream.bundle.classes);
  }
  if (stream.laid_class() != class_id_ || stream.type != pending_.shape.type) return false;
  return !ends_before(stream) && pending_.bytes().size() + bytes <= pack_bytes_of(stream);
}

bool PackBuilder::ends_before(const Stream& stream) const {
  if (!is_by_rank_ || stream.rank == last_stream_->rank || stream.pack_bytes > 0) return false;
  // Skeletons of files are nearly the same for all ranks.
  if (stream.position == 0) return false;
  constexpr uint64_t few_ranks = 3;
  const uint64_t much = much_of_a_rank();
  return pending_.bytes().size() >= much && std::max(rank_bytes_, stream.bytes) * few_ranks >= much;
}

uint64_t PackBuilder::pack_bytes_of(const Stream& stream) const {
  if (stream.pack_bytes > 0) return stream.pack_bytes;
  const uint64_t rest = is_by_rank_ && stream.rank >= 0 && stream.bytes > pack_bytes_ ? stream.bytes % pack_bytes_ : 0;
  return rest > 0 && rest < much_of_a_rank() ? pack_bytes_ + much_of_a_rank() : pack_bytes_;
}

uint64_t PackBuilder::add(const Stream& stream, uint64_t stream_offset, ByteSpan bytes, const Score& score,
                          bool stays) {
  begin(stream);
  note_run(stream, stream_offset, bytes.size());
  return append_chunk(bytes, score, stays);
}

uint64_t PackBuilder::add(const std::vector<Stream>& streams, const ChunkBatch& batch, const BatchChunk& chunk) {
  const Stream& first = streams[chunk.stream];
  const ByteSpan bytes = batch.bytes_of(chunk);
  if (chunk.joined == 0) return add(first, chunk.stream_offset, bytes, chunk.score, /*stays=*/!chunk.viewed.empty());
  begin(first);
  for (const uint32_t stream : batch.streams_of(chunk)) note_run(streams[stream], 0, streams[stream].bytes);
  return append_chunk(bytes, chunk.score, /*stays=*/false);
}

void PackBuilder::begin(const Stream& stream) {
  if (!empty()) return;
  class_id_ = stream.laid_class();
  pending_.shape.type = stream.type;
  last_stream_ = nullptr;
  positions_.clear();
}

void PackBuilder::note_run(const Stream& stream, uint64_t stream_offset, uint64_t bytes) {
  if (last_stream_ == nullptr || last_stream_->rank != stream.rank) rank_bytes_ = 0;
  rank_bytes_ += bytes;
  const uint64_t element_bytes = stream.type.bytes;
  bundle_ = stream.bundle;
  if (bundle_.number > 0) {
    if (positions_.empty() || positions_.back() != bundle_.position) begin_part(stream);
    pending_.shape.parts.back().elements += bytes / element_bytes;
  }
  if (last_stream_ != &stream || run_end_ != stream_offset) {
    pending_.shape.runs.push_back({0, stream.dims, false});
    run_begin_ = stream_offset;
  }
  last_stream_ = &stream;
  run_end_ = stream_offset + bytes;
  Run& run = pending_.shape.runs.back();
  run.elements = (run_end_ - run_begin_) / element_bytes;
  const uint64_t array_elements = std::accumulate(run.dims.begin(), run.dims.end(), uint64_t{1}, std::multiplies<>());
  run.whole = run_begin_ == 0 && run_end_ == stream.bytes && run.elements == array_elements;
}

uint64_t PackBuilder::append_chunk(ByteSpan bytes, const Score& score, bool stays) {
  const uint64_t offset = pending_.bytes().size();
  append(bytes, stays);
  pending_.meta.chunks.push_back({static_cast<uint32_t>(bytes.size()), score});
  return offset;
}

void PackBuilder::append(ByteSpan bytes, bool stays) {
  const ByteSpan before = pending_.bytes();
  if (stays && (before.empty() || (pending_.raw.empty() && before.data() + before.size() == bytes.data()))) {
    pending_.viewed = {before.empty() ? bytes.data() : before.data(), before.size() + bytes.size()};
    return;
  }
  if (pending_.raw.empty()) {
    pending_.raw.reserve(std::max<size_t>(bytes_expected_, before.size() + bytes.size()));
    pending_.raw.assign(before.begin(), before.end());
    pending_.viewed = {};
  }
  pending_.raw.insert(pending_.raw.end(), bytes.begin(), bytes.end());
}

PendingPack PackBuilder::take(const std::string& class_key, const ScoreFunction& score) {
  PendingPack taken = std::move(pending_);
  pending_ = {};
  // What is alone has nothing to be predicted by.
  if (taken.shape.parts.size() == 1) taken.shape.parts.clear();
  taken.meta.class_key = class_key;
  taken.meta.score = pack_score(score, taken.meta.chunks);
  return taken;
}

}  // namespace varve
