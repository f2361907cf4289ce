#include "store/index_run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "store/store.h"

namespace varve {

PagedFile::PagedFile(std::unique_ptr<RangeReader> file, uint64_t bytes, std::string path,
                     std::shared_ptr<PageBudget> budget)
    : file_(std::move(file)),
      bytes_(bytes),
      path_(std::move(path)),
      budget_(std::move(budget)),
      pages_(new std::atomic<std::byte*>[bytes / kPageBytes + 1]()),
      looks_(new std::atomic<uint8_t>[bytes / kPageBytes + 1]()) {}

Result<std::unique_ptr<PagedFile>> PagedFile::open(Backend& backend, const std::string& path,
                                                   std::shared_ptr<PageBudget> budget) {
  VARVE_ASSIGN(std::unique_ptr<RangeReader> file, backend.open(path));
  VARVE_ASSIGN(const uint64_t bytes, file->size());
  return std::unique_ptr<PagedFile>(new PagedFile(std::move(file), bytes, backend.shown_path(path), std::move(budget)));
}

PagedFile::~PagedFile() {
  for (uint64_t number = 0; number <= bytes_ / kPageBytes; ++number) {
    const std::byte* const held = pages_[number].load(std::memory_order_relaxed);
    if (held == nullptr) continue;
    budget_->give_back(kPageBytes);
    delete[] held;
  }
}

Status PagedFile::read_once(uint64_t offset, MutableByteSpan into) const {
  Status read = read_exactly(*file_, offset, into, path_);
  if (read.ok()) return read;
  const MutexLock lock(mutex_);
  if (failure_.ok()) failure_ = read;
  return read;
}

Status PagedFile::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

const std::byte* PagedFile::page(uint64_t number, Hold hold) const {
  std::byte* held = pages_[number].load(std::memory_order_acquire);
  if (held != nullptr) return held;
  if (hold == Hold::always) {
    budget_->take_always(kPageBytes);
  } else {
    // About as many looks at a page find nothing in all saves of a run before its index runs are merged; who finds what
    // he looks for comes back hundreds of times.
    constexpr uint8_t kLooksBefore = 16;
    const uint8_t looks = looks_[number].load(std::memory_order_relaxed);
    if (looks < kLooksBefore) {
      looks_[number].store(looks + 1, std::memory_order_relaxed);
      return nullptr;
    }
    if (!budget_->take(kPageBytes)) return nullptr;
  }
  std::unique_ptr<std::byte[]> fresh(new (std::nothrow) std::byte[kPageBytes]);
  const uint64_t begin = number * kPageBytes;
  const MutableByteSpan bytes(fresh.get(), fresh ? std::min(kPageBytes, bytes_ - begin) : 0);
  // Of two that read it at the same time, the first one's stays.
  if (fresh && read_once(begin, bytes).ok() &&
      pages_[number].compare_exchange_strong(held, fresh.get(), std::memory_order_acq_rel)) {
    return fresh.release();
  }
  budget_->give_back(kPageBytes);
  return held;
}

bool PagedFile::read(uint64_t offset, MutableByteSpan into, Hold hold) const {
  while (!into.empty()) {
    const uint64_t skip = offset % kPageBytes;
    const size_t part = static_cast<size_t>(std::min<uint64_t>(into.size(), kPageBytes - skip));
    if (offset >= bytes_ || part > bytes_ - offset) return false;
    if (const std::byte* const held = page(offset / kPageBytes, hold)) {
      std::memcpy(into.data(), held + skip, part);
    } else if (!read_once(offset, into.first(part)).ok()) {
      return false;
    }
    into = into.subspan(part);
    offset += part;
  }
  return true;
}

namespace {
// FORMAT.md, "Index runs":
// header | arena ids | filter | bucket offsets u64 | prefixes u64 | places (arena u32, pack u32, chunk u32) | crc32c of
// all before
constexpr std::string_view kRunMagic = "VARVEIDX";
constexpr uint32_t kRunVersion = 1;
constexpr size_t kRunHeaderBytes = 64;
constexpr size_t kPlaceBytes = 12;
constexpr size_t kFilterBlockBytes = 64;
constexpr uint64_t kFilterKeysPerBlock = 40;  // 12.8 bits a key: one false positive in about 200
constexpr unsigned kFilterProbes = 6;
constexpr uint64_t kEntriesPerBucket = 16;
/// As many as a listing of their folder may have (PROTOCOL.md, "Limits").
constexpr uint64_t kArenasMax = 4'000'000;
/// Enough for the table of most runs.
constexpr size_t kFirstReadBytes = 64_KiB;
constexpr uint16_t kGone = 0xffff;
/// How many prefixes find() looks through at once.
constexpr uint64_t kEntriesReadMax = 64;
/// Of a run that is open alone.
constexpr uint64_t kHeldRunBytesMax = 256_MiB;

/// Bits of a key's filter block: the block from a multiplicative hash, the bits from six 9-bit fields of another.
uint64_t filter_block(uint64_t prefix, uint64_t block_count) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(prefix * 0x9e3779b97f4a7c15u) * block_count) >> 64);
}
template <class Visit>
void each_filter_bit(uint64_t prefix, const Visit& visit) {
  uint64_t bits = prefix * 0xd6e8feb86659fd93u;
  for (unsigned probe = 0; probe < kFilterProbes; ++probe, bits >>= 9) visit(static_cast<size_t>(bits & 511));
}

uint32_t bucket_bits_for(uint64_t entry_count) {
  return static_cast<uint32_t>(std::bit_width(entry_count / kEntriesPerBucket));
}
uint64_t bucket_of(uint64_t prefix, uint32_t bits) { return bits == 0 ? 0 : prefix >> (64 - bits); }

struct RunSizes {
  uint64_t arenas_at, filter_at, buckets_at, prefixes_at, places_at, crc_at, total;
};
RunSizes run_sizes(uint64_t arena_count, uint64_t entry_count, uint32_t bucket_bits, uint64_t filter_blocks) {
  RunSizes s{};
  s.arenas_at = kRunHeaderBytes;
  s.filter_at = s.arenas_at + 16 * arena_count;
  s.buckets_at = s.filter_at + kFilterBlockBytes * filter_blocks;
  s.prefixes_at = s.buckets_at + 8 * ((uint64_t{1} << bucket_bits) + 1);
  s.places_at = s.prefixes_at + 8 * entry_count;
  s.crc_at = s.places_at + kPlaceBytes * entry_count;
  s.total = s.crc_at + 4;
  return s;
}

void put_scope(ByteWriter& w, const RunScope& scope) {
  switch (scope.kind) {
    case RunScope::Kind::all:
      w.le16(0);
      w.le16(0);
      return;
    case RunScope::Kind::place:
      w.le16(static_cast<uint16_t>(scope.place + 1));
      w.le16(static_cast<uint16_t>(scope.places));
      return;
    case RunScope::Kind::gone:
      w.le16(kGone);
      w.le16(0);
      return;
  }
}

std::optional<RunScope> scope_of(uint16_t place, uint16_t places) {
  if (place == 0 && places == 0) return RunScope::all();
  if (place == kGone && places == 0) return RunScope::gone();
  if (place == 0 || place > places || places < 2 || places > kSpreadPlacesMax) return std::nullopt;
  return RunScope::of_place(place - 1u, places);
}

struct RunHeader {
  uint32_t bucket_bits = 0;
  uint64_t arena_count = 0, entry_count = 0, filter_blocks = 0;
  RunScope scope;
  RunSizes sizes() const { return run_sizes(arena_count, entry_count, bucket_bits, filter_blocks); }
};

/// `first`: what the file begins with, all of it or kRunHeaderBytes at least.
Result<RunHeader> parse_header(ByteSpan first, uint64_t file_bytes, const UniqueId& store, const std::string& path) {
  const Status damaged = Status::corrupt("an index run is damaged", path);
  if (first.size() < kRunHeaderBytes || as_text(first.first(8)) != kRunMagic ||
      load_le<uint32_t>(first.data() + 8) != kRunVersion ||
      load_le<uint32_t>(first.data() + 60) != crc32c(first.first(60)) ||
      !std::equal(store.bytes.begin(), store.bytes.end(), first.begin() + 40)) {
    return damaged;
  }
  RunHeader header;
  header.bucket_bits = load_le<uint32_t>(first.data() + 12);
  header.arena_count = load_le<uint64_t>(first.data() + 16);
  header.entry_count = load_le<uint64_t>(first.data() + 24);
  header.filter_blocks = load_le<uint64_t>(first.data() + 32);
  const std::optional<RunScope> scope =
      scope_of(load_le<uint16_t>(first.data() + 56), load_le<uint16_t>(first.data() + 58));
  if (!scope || header.bucket_bits > 40 || header.arena_count > file_bytes / 16 || header.arena_count > kArenasMax ||
      header.entry_count > file_bytes / 20 || header.filter_blocks == 0 ||
      header.filter_blocks > file_bytes / kFilterBlockBytes || header.sizes().total != file_bytes) {
    return damaged;
  }
  header.scope = *scope;
  return header;
}

std::vector<ArenaId> parse_arenas(ByteSpan raw) {
  std::vector<ArenaId> arenas(raw.size() / 16);
  for (size_t i = 0; i < arenas.size(); ++i) {
    std::copy_n(raw.begin() + static_cast<ptrdiff_t>(16 * i), 16, arenas[i].bytes.begin());
  }
  return arenas;
}
}  // namespace

Result<RunTable> read_run_table(Backend& backend, const std::string& path, const UniqueId& store) {
  VARVE_ASSIGN(const std::unique_ptr<RangeReader> file, backend.open(path));
  VARVE_ASSIGN(const uint64_t file_bytes, file->size());
  ByteVector raw(static_cast<size_t>(std::min<uint64_t>(file_bytes, kFirstReadBytes)));
  VARVE_TRY(read_exactly(*file, 0, raw, path));
  VARVE_ASSIGN(const RunHeader header, parse_header(raw, file_bytes, store, path));
  const auto table_bytes = static_cast<size_t>(header.sizes().filter_at);
  const size_t there = std::min(raw.size(), table_bytes);
  raw.resize(table_bytes);
  VARVE_TRY(read_exactly(*file, there, MutableByteSpan(raw).subspan(there), path));
  return RunTable{parse_arenas(ByteSpan(raw).subspan(kRunHeaderBytes)), header.scope, header.entry_count};
}

Result<std::unique_ptr<ChunkIndexRun>> ChunkIndexRun::open(Backend& backend, const std::string& path,
                                                           const UniqueId& store, std::shared_ptr<PageBudget> budget) {
  if (!budget) budget = std::make_shared<PageBudget>(kHeldRunBytesMax);
  VARVE_ASSIGN(std::unique_ptr<PagedFile> file, PagedFile::open(backend, path, std::move(budget)));
  std::unique_ptr<ChunkIndexRun> run(new ChunkIndexRun(backend.shown_path(path), std::move(file)));
  VARVE_TRY(run->parse(store));
  return run;
}

Status ChunkIndexRun::parse(const UniqueId& store) {
  ByteVector raw(static_cast<size_t>(std::min<uint64_t>(file_->bytes(), kRunHeaderBytes)));
  VARVE_TRY(file_->read_once(0, raw));
  VARVE_ASSIGN(const RunHeader header, parse_header(raw, file_->bytes(), store, path_));
  const RunSizes sizes = header.sizes();
  raw.resize(static_cast<size_t>(sizes.filter_at - sizes.arenas_at));
  VARVE_TRY(file_->read_once(sizes.arenas_at, raw));
  table_ = {parse_arenas(raw), header.scope, header.entry_count};
  bucket_bits_ = header.bucket_bits;
  filter_blocks_ = header.filter_blocks;
  filter_at_ = sizes.filter_at;
  buckets_at_ = sizes.buckets_at;
  prefixes_at_ = sizes.prefixes_at;
  places_at_ = sizes.places_at;
  return {};
}

namespace {
ChunkIndexEntry entry_of(uint64_t prefix, const std::byte* place) {
  return {prefix, load_le<uint32_t>(place), load_le<uint32_t>(place + 4), load_le<uint32_t>(place + 8)};
}
}  // namespace

Result<std::vector<ChunkIndexEntry>> ChunkIndexRun::entries(uint64_t first, uint64_t count) const {
  ByteVector prefixes(static_cast<size_t>(8 * count)), places(static_cast<size_t>(kPlaceBytes * count));
  VARVE_TRY(file_->read_once(prefixes_at_ + 8 * first, prefixes));
  VARVE_TRY(file_->read_once(places_at_ + kPlaceBytes * first, places));
  std::vector<ChunkIndexEntry> entries;
  entries.reserve(static_cast<size_t>(count));
  for (size_t i = 0; i < count; ++i)
    entries.push_back(entry_of(load_le<uint64_t>(prefixes.data() + 8 * i), places.data() + kPlaceBytes * i));
  return entries;
}

bool ChunkIndexRun::may_have(uint64_t prefix) const {
  std::byte block[kFilterBlockBytes];
  const uint64_t at = filter_at_ + kFilterBlockBytes * filter_block(prefix, filter_blocks_);
  if (!file_->read(at, block, PagedFile::Hold::always)) return false;
  bool maybe = true;
  each_filter_bit(prefix, [&](size_t bit) { maybe &= (static_cast<unsigned>(block[bit / 8]) >> (bit % 8) & 1u) != 0; });
  return maybe;
}

void ChunkIndexRun::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  if (!may_have(prefix)) return;
  std::byte bounds[16];
  if (!file_->read(buckets_at_ + 8 * bucket_of(prefix, bucket_bits_), bounds, PagedFile::Hold::always)) return;
  uint64_t begin = load_le<uint64_t>(bounds), end = load_le<uint64_t>(bounds + 8);
  if (begin > end || end > entry_count()) return;  // damaged: find nothing
  std::byte raw[8 * kEntriesReadMax];
  while (end - begin > kEntriesReadMax) {  // a bucket has some sixteen
    const uint64_t middle = begin + (end - begin) / 2;
    if (!file_->read(prefixes_at_ + 8 * middle, MutableByteSpan(raw, 8))) return;
    if (load_le<uint64_t>(raw) < prefix) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  for (; begin < entry_count(); begin = end) {
    end = std::min(begin + kEntriesReadMax, entry_count());
    if (!file_->read(prefixes_at_ + 8 * begin, MutableByteSpan(raw, static_cast<size_t>(8 * (end - begin))))) return;
    for (uint64_t at = begin; at < end; ++at) {
      const auto found_prefix = load_le<uint64_t>(raw + 8 * (at - begin));
      if (found_prefix < prefix) continue;
      std::byte place[kPlaceBytes];
      if (found_prefix > prefix || !file_->read(places_at_ + kPlaceBytes * at, place)) return;
      const ChunkIndexEntry found = entry_of(prefix, place);
      if (found.arena < arenas().size()) candidates.push_back({arenas()[found.arena], found.pack, found.chunk});
    }
  }
}

void ChunkIndexRun::prefetch(uint64_t prefix) const {
  file_->prefetch(filter_at_ + kFilterBlockBytes * filter_block(prefix, filter_blocks_));
}

Status ChunkIndexRun::verify() const {
  ByteVector window(static_cast<size_t>(std::min<uint64_t>(file_->bytes(), 1_MiB)));
  uint32_t crc = 0;
  const uint64_t crc_at = file_->bytes() - 4;
  for (uint64_t at = 0; at < crc_at; at += window.size()) {
    const MutableByteSpan part(window.data(), static_cast<size_t>(std::min<uint64_t>(window.size(), crc_at - at)));
    VARVE_TRY(file_->read_once(at, part));
    crc = crc32c(part, crc);
  }
  std::byte expected[4];
  VARVE_TRY(file_->read_once(crc_at, expected));
  if (crc == load_le<uint32_t>(expected)) return {};
  return Status::corrupt("an index run does not match its checksum", path_);
}

namespace {
/// Collects writes to one place of a file into large ones.
class SectionWriter {
 public:
  SectionWriter(ObjectWriter& file, uint64_t offset) : file_(file), offset_(offset) {}
  Status put(ByteSpan bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return buffer_.size() >= 256_KiB ? flush() : Status();
  }
  Status flush() {
    VARVE_TRY(file_.write_at(offset_, buffer_));
    offset_ += buffer_.size();
    buffer_.clear();
    return {};
  }

 private:
  ObjectWriter& file_;
  uint64_t offset_;
  ByteVector buffer_;
};

Result<uint32_t> crc_of(ObjectWriter& written, uint64_t bytes, const std::string& path) {
  ByteVector window(std::min<uint64_t>(bytes, 1_MiB));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < bytes; at += window.size()) {
    MutableByteSpan part(window.data(), std::min<uint64_t>(window.size(), bytes - at));
    VARVE_ASSIGN(const size_t got, written.read_at(at, part));
    if (got != part.size()) return Status::io_error("what was just written cannot be read", path);
    crc = crc32c(part, crc);
  }
  return crc;
}
}  // namespace

Status write_index_run(Backend& backend, const std::string& path, const UniqueId& store, const RunTable& table,
                       const std::function<Result<ChunkIndexEntry>()>& next) {
  const std::vector<ArenaId>& arenas = table.arenas;
  const uint64_t entry_count = table.entry_count;
  const uint32_t bucket_bits = bucket_bits_for(entry_count);
  const uint64_t filter_blocks = entry_count / kFilterKeysPerBlock + 1;
  const RunSizes sizes = run_sizes(arenas.size(), entry_count, bucket_bits, filter_blocks);
  VARVE_ASSIGN(const std::unique_ptr<ObjectWriter> file, backend.put(path, {.durable = false}));

  ByteVector head;
  ByteWriter w(head);
  w.bytes(as_bytes(kRunMagic));
  w.le32(kRunVersion);
  w.le32(bucket_bits);
  w.le64(arenas.size());
  w.le64(entry_count);
  w.le64(filter_blocks);
  w.bytes(store.bytes);
  put_scope(w, table.scope);
  const uint32_t header_crc = crc32c(head);
  w.le32(header_crc);
  for (const ArenaId& arena : arenas) w.bytes(arena.bytes);
  VARVE_TRY(file->write_at(0, head));

  ByteVector filter(filter_blocks * kFilterBlockBytes);
  SectionWriter buckets(*file, sizes.buckets_at), prefixes(*file, sizes.prefixes_at), places(*file, sizes.places_at);
  uint64_t next_bucket = 0;
  std::byte raw[kPlaceBytes];
  auto open_buckets_to = [&](uint64_t bucket, uint64_t position) -> Status {
    for (; next_bucket <= bucket; ++next_bucket) {
      store_le<uint64_t>(raw, position);
      VARVE_TRY(buckets.put(ByteSpan(raw, 8)));
    }
    return {};
  };
  for (uint64_t i = 0; i < entry_count; ++i) {
    VARVE_ASSIGN(const ChunkIndexEntry entry, next());
    VARVE_TRY(open_buckets_to(bucket_of(entry.prefix, bucket_bits), i));
    std::byte* block = filter.data() + kFilterBlockBytes * filter_block(entry.prefix, filter_blocks);
    each_filter_bit(entry.prefix, [&](size_t bit) { block[bit / 8] |= std::byte{1} << (bit % 8); });
    store_le<uint64_t>(raw, entry.prefix);
    VARVE_TRY(prefixes.put(ByteSpan(raw, 8)));
    store_le<uint32_t>(raw, entry.arena);
    store_le<uint32_t>(raw + 4, entry.pack);
    store_le<uint32_t>(raw + 8, entry.chunk);
    VARVE_TRY(places.put(raw));
  }
  VARVE_TRY(open_buckets_to(uint64_t{1} << bucket_bits, entry_count));
  for (SectionWriter* section : {&buckets, &prefixes, &places}) VARVE_TRY(section->flush());
  VARVE_TRY(file->write_at(sizes.filter_at, filter));
  VARVE_ASSIGN(const uint32_t crc, crc_of(*file, sizes.crc_at, path));
  store_le<uint32_t>(raw, crc);
  VARVE_TRY(file->write_at(sizes.crc_at, ByteSpan(raw, 4)));
  return file->seal(sizes.crc_at + 4);
}

namespace {
constexpr uint64_t kEntriesRead = 8192;
}  // namespace

Result<MergedRuns> MergedRuns::open(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
                                    const std::function<bool(const ArenaId&)>& is_there) {
  MergedRuns merged(scope);
  for (std::shared_ptr<const ChunkIndexRun>& run : runs) merged.runs_.push_back({.run = std::move(run)});
  VARVE_TRY(merged.begin(is_there));
  return merged;
}

Status MergedRuns::begin(const std::function<bool(const ArenaId&)>& is_there) {
  std::set<ArenaId> taken;
  for (Reading& reading : runs_) {
    for (const ArenaId& id : reading.run->arenas()) {
      const bool keep = is_there(id) && taken.insert(id).second;
      reading.ordinals.push_back(keep ? static_cast<uint32_t>(arenas_.size()) : kDropped);
      if (keep) arenas_.push_back(id);
    }
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    Reading& reading = runs_[i];
    for (;; ++reading.at) {
      VARVE_ASSIGN(const bool more, fill(reading));
      if (!more) break;
      entry_count_ += kept(reading) ? 1 : 0;
    }
    reading.entries.clear();
    reading.first = reading.at = 0;
    VARVE_TRY(advance(i));
  }
  return {};
}

bool MergedRuns::kept(const Reading& reading) const {
  const ChunkIndexEntry& entry = reading.entry();
  if (entry.arena >= reading.ordinals.size() || reading.ordinals[entry.arena] == kDropped) return false;
  return scope_.kind != RunScope::Kind::place ||
         ArenaSpread(scope_.places).place_of_prefix(entry.prefix) == scope_.place;
}

Result<bool> MergedRuns::fill(Reading& reading) {
  if (reading.at < reading.entries.size()) return true;
  reading.first += reading.entries.size();
  reading.at = 0;
  VARVE_ASSIGN(reading.entries,
               reading.run->entries(reading.first, std::min(kEntriesRead, reading.run->entry_count() - reading.first)));
  return !reading.entries.empty();
}

Status MergedRuns::advance(size_t run) {
  Reading& reading = runs_[run];
  for (;; ++reading.at) {
    VARVE_ASSIGN(const bool more, fill(reading));
    if (!more) return {};
    if (kept(reading)) break;
  }
  heads_.emplace(reading.entry().prefix, run);
  return {};
}

Result<ChunkIndexEntry> MergedRuns::next() {
  if (heads_.empty()) return Status::corrupt("an index run changed while it was merged");
  const size_t run = heads_.top().second;
  heads_.pop();
  Reading& reading = runs_[run];
  ChunkIndexEntry entry = reading.entry();
  entry.arena = reading.ordinals[entry.arena];
  ++reading.at;
  VARVE_TRY(advance(run));
  return entry;
}

}  // namespace varve
