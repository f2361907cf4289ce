#include "mount/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "core/file_system.h"
#include "core/sync.h"
#include "hash/score.h"

namespace varve {

namespace {
/// Lays the references of a stream over the extents that it fills, piece by piece.
class StreamLayer {
 public:
  StreamLayer(const Leaf& leaf, FileMap& map) : leaf_(leaf), map_(map) {}

  Status lay(const std::vector<Reference>& stream, const std::vector<Extent>& extents) {
    size_t ordinal = 0;
    uint64_t used = 0;  // of the reference
    for (const Extent& extent : extents) {
      for (uint64_t done = 0; done < extent.bytes;) {
        if (ordinal == stream.size()) return Status::corrupt("a stream is shorter than its layout says");
        const Reference& reference = stream[ordinal];
        const uint64_t part = std::min(extent.bytes - done, reference.bytes - used);
        add(reference, used, extent.offset + done, part);
        done += part;
        used += part;
        if (used == reference.bytes) {
          ++ordinal;
          used = 0;
        }
      }
    }
    return {};
  }

 private:
  void add(const Reference& reference, uint64_t used, uint64_t file_offset, uint64_t bytes) {
    if (bytes == 0) return;
    FileMap::Piece piece{file_offset, bytes, reference.offset, FileMap::kPattern, static_cast<uint32_t>(used % 8)};
    if (reference.pack != Reference::kPattern) {
      const auto [known, is_new] = packs_.try_emplace(reference.pack, static_cast<uint32_t>(map_.packs.size()));
      if (is_new) map_.packs.push_back(leaf_.packs[reference.pack]);
      piece.pack = known->second;
      piece.at = reference.offset + used;
      piece.skipped = 0;
    }
    map_.pieces.push_back(piece);
  }

  const Leaf& leaf_;
  FileMap& map_;
  std::unordered_map<uint32_t, uint32_t> packs_;  ///< ordinal in the leaf, in the map
};

bool continues(const FileMap::Piece& before, const FileMap::Piece& piece) {
  if (before.pack != piece.pack) return false;
  if (piece.pack != FileMap::kPattern) return before.at + before.bytes == piece.at;
  return before.at == piece.at && (before.skipped + before.bytes) % 8 == piece.skipped;
}
}  // namespace

size_t FileMap::piece_at(uint64_t offset) const {
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                      [](uint64_t at, const Piece& piece) { return at < piece.file_offset; });
  return static_cast<size_t>(after - pieces.begin()) - 1;
}

Result<FileMap> map_file(const Leaf& leaf, const TreeFile& file) {
  FileMap map;
  map.bytes = file.bytes;
  StreamLayer layer(leaf, map);
  for (size_t stream = 0; stream < file.streams.size(); ++stream)
    VARVE_TRY(layer.lay(file.streams[stream], stream_extents(file, stream)));
  std::sort(map.pieces.begin(), map.pieces.end(),
            [](const FileMap::Piece& a, const FileMap::Piece& b) { return a.file_offset < b.file_offset; });
  size_t kept = 0;
  uint64_t end = 0;
  for (const FileMap::Piece& piece : map.pieces) {
    if (piece.file_offset != end) return Status::corrupt("the streams of a file do not cover it", file.path);
    end += piece.bytes;
    if (kept > 0 && continues(map.pieces[kept - 1], piece)) {
      map.pieces[kept - 1].bytes += piece.bytes;
    } else {
      map.pieces[kept++] = piece;
    }
  }
  if (end != file.bytes) return Status::corrupt("the streams of a file do not cover it", file.path);
  map.pieces.resize(kept);
  map.pieces.shrink_to_fit();
  return map;
}

namespace {
constexpr uint64_t kJournalBytesMax = 1_GiB;
/// Of a journal so much more room than it takes is there: when something is lost, the disk may be full.
constexpr uint64_t kJournalRoomBytes = 4096;
/// The first line, which is written over where there is no room for another: something is lost, and nobody knows what;
/// or not. Journals of before have none: there, it takes the place of a line.
constexpr std::string_view kAnyLost = "!*\n", kNoneLost = ".*\n";
}  // namespace

Result<WriterJournal> WriterJournal::open(const std::string& path) {
  WriterJournal journal;
  journal.path_ = path;
  const Result<ByteVector> text = read_file(posix_file_system(), path, kJournalBytesMax);
  if (text.ok()) {
    journal.read(as_text(*text));
  } else if (text.status().code() != StatusCode::not_found) {
    return text.status();
  }
  journal.descriptor_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!journal.descriptor_.valid()) return Status::from_errno(errno, "open", path);
  journal.reserve_room();
  if (journal.bytes_ == 0) journal.has_head_ = journal.append(kNoneLost).ok();
  return journal;
}

void WriterJournal::read(std::string_view text) {
  bytes_ = text.size();
  has_head_ = text.starts_with(kAnyLost) || text.starts_with(kNoneLost);
  any_may_be_lost_ = text.starts_with(kAnyLost.substr(0, 2));
  may_lack_lines_ = !has_head_ && (any_may_be_lost_ || text.starts_with(kNoneLost.substr(0, 2)));
  while (!text.empty()) {
    const size_t line_end = text.find('\n');
    const std::string_view line = text.substr(0, line_end);
    uint64_t file = 0;
    if (line.size() > 1 && std::from_chars(line.data() + 1, line.data() + line.size(), file).ec == std::errc()) {
      if (line[0] == '+') left_open_.insert(file);
      if (line[0] == '-') left_open_.erase(file);
      if (line[0] == '!') lost_.insert(file);
      if (line[0] == '.') lost_.erase(file);
    }
    text = line_end == std::string_view::npos ? std::string_view() : text.substr(line_end + 1);
  }
}

/// Some file systems cannot; then a line may find none.
void WriterJournal::reserve_room() {
  const auto begin = static_cast<off_t>(bytes_);
  if (::fallocate(descriptor_.get(), FALLOC_FL_KEEP_SIZE, begin, kJournalRoomBytes) == 0)
    reserved_bytes_ = bytes_ + kJournalRoomBytes;
}

Status WriterJournal::append(char sign, uint64_t file) { return append(sign + std::to_string(file) + "\n"); }

Status WriterJournal::append(std::string_view line) {
  ssize_t written = 0;
  do {
    written = ::write(descriptor_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    bytes_ += line.size();
    if (reserved_bytes_ > 0 && bytes_ + kJournalRoomBytes / 2 > reserved_bytes_) reserve_room();
    return {};
  }
  const Status failed = Status::from_errno(written < 0 ? errno : ENOSPC, "write", path_);
  // The next line would be taken for the rest of a torn one. Where it cannot be taken back, there is no next line.
  if (written > 0) {
    const off_t end = ::lseek(descriptor_.get(), 0, SEEK_END);
    if (end < written || ::ftruncate(descriptor_.get(), end - written) != 0) descriptor_.reset();
  }
  return failed;
}

Status WriterJournal::begin(uint64_t file) {
  VARVE_TRY(append('+', file));
  ++writing_;
  return {};
}

void WriterJournal::end(uint64_t file) {
  append('-', file).ignore("the next mount takes the file for one that was being written");
  --writing_;
  // Nobody writes, so that the lines cancel each other: a job of many files shall not make it grow for ever.
  if (writing_ > 0 || !left_open_.empty() || !lost_.empty() || any_may_be_lost_) return;
  const size_t head_bytes = has_head_ ? kNoneLost.size() : 0;
  if (may_lack_lines_ || ::ftruncate(descriptor_.get(), static_cast<off_t>(head_bytes)) != 0) return;
  bytes_ = head_bytes;
  reserve_room();
}

void WriterJournal::lose(uint64_t file) {
  if (!lost_.insert(file).second) return;
  if (append('!', file).ok()) return;
  any_may_be_lost_ = true;
  replace_head(kAnyLost);
}

void WriterJournal::forget_lost(uint64_t file, bool was_last) {
  if (lost_.erase(file) > 0) append('.', file).ignore("the next file of that number counts as one that has lost some");
  if (!was_last || !any_may_be_lost_) return;
  any_may_be_lost_ = false;
  replace_head(kNoneLost);
}

/// Which takes no room, but where a file system copies what is written over.
void WriterJournal::replace_head(std::string_view head) {
  const UniqueFd over(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));  // the other one appends
  const size_t bytes = has_head_ ? head.size() : 2;
  if (!over.valid() || ::pwrite(over.get(), head.data(), bytes, 0) < 0) return;
}

namespace {
constexpr std::string_view kMagic = "VARVEOPN";
constexpr uint16_t kVersion = 1;
constexpr uint64_t kRecordBytesMax = 4096;
constexpr const char* kLockName = "lock";

// The record: magic | version u16 | job, name and boot as texts | unfinished u8 | crc32c u32 of what comes before.
ByteVector encode_record(const OpenSetRecord& record) {
  ByteVector out;
  ByteWriter writer(out);
  writer.bytes(as_bytes(kMagic));
  writer.le16(kVersion);
  for (const std::string* text : {&record.job, &record.name, &record.boot}) writer.text(*text);
  writer.u8(record.unfinished ? 1 : 0);
  const uint32_t crc = crc32c(out);
  writer.le32(crc);
  return out;
}

Result<OpenSetRecord> decode_record(ByteSpan raw, const std::string& path) {
  const Status damaged = Status::corrupt("the record of an open set is damaged", path);
  if (raw.size() < kMagic.size() + 6 || as_text(raw.first(kMagic.size())) != kMagic) return damaged;
  if (crc32c(raw.first(raw.size() - 4)) != load_le<uint32_t>(raw.data() + raw.size() - 4)) return damaged;
  ByteReader reader(raw.subspan(kMagic.size()));
  VARVE_ASSIGN(const uint16_t version, reader.le16());
  if (version != kVersion) return Status::unsupported("an open set was made by another version", path);
  OpenSetRecord record;
  for (std::string* text : {&record.job, &record.name, &record.boot}) {
    VARVE_ASSIGN(const std::string_view value, reader.text());
    *text = value;
  }
  VARVE_ASSIGN(const uint8_t unfinished, reader.u8());
  record.unfinished = unfinished != 0;
  return record;
}

/// Removes a folder with all that is in it, whatever its modes are.
void remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::recursive_directory_iterator below(path, error), end;
  ::chmod(path.c_str(), S_IRWXU);
  for (; !error && below != end; below.increment(error)) {
    if (below->is_directory(error) && !below->is_symlink(error)) ::chmod(below->path().c_str(), S_IRWXU);
  }
  std::filesystem::remove_all(path, error);
}
}  // namespace

Result<std::string> boot_of_machine() {
  // Not read_file(): what the kernel makes up has no size.
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!(file >> boot) || boot.empty()) {
    return Status::io_error("the kernel does not say which run of the machine this is",
                            "/proc/sys/kernel/random/boot_id");
  }
  return boot;
}

Result<std::unique_ptr<Spool>> Spool::open(FileSystem& fs, const std::string& path, SpoolOptions options) {
  // The folders above are the user's; who may not see a program's checkpoints shall not see them here either.
  std::error_code error;
  const bool is_new = std::filesystem::create_directories(path, error);
  if (error) return Status::from_errno(error.value(), "make the spool folder", path);
  if (is_new && ::chmod(path.c_str(), S_IRWXU) != 0) return Status::from_errno(errno, "set the mode of", path);
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, fs.list(path));
  const bool is_spool =
      std::any_of(entries.begin(), entries.end(), [](const DirectoryEntry& entry) { return entry.name == kLockName; });
  if (!entries.empty() && !is_spool)
    return Status::invalid_argument("this folder is not empty, and no spool", path, "name a new one with --spool");
  std::unique_ptr<Spool> spool(new Spool(fs, path, std::move(options)));
  VARVE_TRY(spool->lock());
  VARVE_TRY(spool->check_store());
  VARVE_TRY(fs.create_directory(spool->jobs_path()));
  VARVE_TRY(fs.create_directory(spool->trash_path()));
  VARVE_TRY(fs.sync_directory(path));
  VARVE_TRY(settle_root(fs, path));
  return spool;
}

Status Spool::lock() {
  const std::string path = join_path(path_, kLockName);
  lock_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return Status::from_errno(errno, "open", path);
  const auto until = MonotonicClock::now() + std::chrono::duration<double>(options_.lock_seconds);
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Status::from_errno(errno, "lock", path);
    if (MonotonicClock::now() >= until) {
      return Status::busy("another mount has the spool folder", path_,
                          "end it with `varve unmount`, or name another folder with --spool");
    }
    sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

Status Spool::check_store() const {
  const std::string path = join_path(path_, "store"), own = options_.store.hex();
  const Result<ByteVector> noted = read_file(fs_, path, own.size() + 1);
  if (noted.status().code() == StatusCode::not_found) return write_file_durably(fs_, path, as_bytes(own));
  VARVE_TRY(noted.status());
  if (as_text(*noted) == own) return {};
  return Status::invalid_argument("the spool folder holds the open sets of another store", path_,
                                  "name another folder with --spool");
}

Result<std::vector<std::string>> Spool::jobs() const {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, fs_.list(jobs_path()));
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) {
    if (entry.is_directory && check_job_name(entry.name).ok()) names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status Spool::make_job(const std::string& job) const {
  VARVE_TRY(check_job_name(job));
  VARVE_TRY(fs_.create_directory(job_path(job)));
  const Status synced = fs_.sync_directory(jobs_path());
  // So that the next one makes it anew: of the same one a second sync would prove nothing.
  if (!synced.ok()) fs_.remove_directory(job_path(job)).ignore("it has sets, and so was made durable before");
  return synced;
}

Status Spool::remove_job(const std::string& job) const {
  const Status removed = fs_.remove_directory(job_path(job));
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

Result<std::vector<SpooledSet>> Spool::sets(const std::string& job,
                                            const std::function<void(const Status&)>& bad) const {
  VARVE_ASSIGN(const std::vector<DirectoryEntry> entries, fs_.list(job_path(job)));
  std::vector<SpooledSet> sets;
  for (const DirectoryEntry& entry : entries) {
    if (!entry.is_directory) continue;
    SpooledSet set{join_path(job_path(job), entry.name), {}};
    const Result<ByteVector> raw = read_file(fs_, set.record_path(), kRecordBytesMax);
    const Result<OpenSetRecord> record = raw.ok() ? decode_record(*raw, set.record_path()) : raw.status();
    if (!record.ok()) {
      // A set that was being made when everything ended has nothing in it yet.
      const Result<std::vector<DirectoryEntry>> files = fs_.list(set.files_path());
      const bool is_empty = files.ok() ? files->empty() : files.status().code() == StatusCode::not_found;
      if (raw.status().code() == StatusCode::not_found && is_empty && discard(set).ok()) continue;
      bad(record.status());
      continue;
    }
    set.record = *record;
    set.record.job = job;
    sets.push_back(std::move(set));
  }
  return sets;
}

Result<SpooledSet> Spool::make_set(const std::string& job, const std::string& name) const {
  VARVE_TRY(make_job(job));
  VARVE_ASSIGN(const UniqueId id, UniqueId::random());
  SpooledSet set{join_path(job_path(job), id.hex()), {job, name, options_.boot, false}};
  VARVE_TRY(fs_.create_directory(set.path));
  VARVE_TRY(fs_.create_directory(set.files_path()));
  VARVE_TRY(write_record(set));
  VARVE_TRY(fs_.sync_directory(job_path(job)));
  return set;
}

Status Spool::write_record(const SpooledSet& set) const {
  return write_file_durably(fs_, set.record_path(), encode_record(set.record));
}

Status Spool::discard(const SpooledSet& set) const {
  return fs_.rename(set.path, join_path(trash_path(), base_name(set.path)));
}

void Spool::empty_trash() const {
  const Result<std::vector<DirectoryEntry>> entries = fs_.list(trash_path());
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) remove_tree(join_path(trash_path(), entry.name));
}

Status Spool::write_attempt(const SpooledSet& set, const SetRecord& record, const ScoreFunction& score) const {
  return write_file_durably(fs_, set.attempt_path(), encode_set_record(record, score));
}

Result<std::optional<SetRecord>> Spool::read_attempt(const SpooledSet& set, const ScoreFunction& score) const {
  const Result<ByteVector> raw = read_file(fs_, set.attempt_path(), kSetRecordBytesMax);
  if (raw.status().code() == StatusCode::not_found) return std::optional<SetRecord>();
  VARVE_TRY(raw.status());
  Result<SetRecord> record = decode_set_record(*raw, score);
  // One that was not written to its end says nothing yet.
  return record.ok() ? std::optional(std::move(*record)) : std::nullopt;
}

bool Spool::may_have_attempt(const SpooledSet& set) const {
  return fs_.stat(set.attempt_path()).status().code() != StatusCode::not_found;
}

Status Spool::remove_attempt(const SpooledSet& set) const {
  const Status removed = fs_.remove(set.attempt_path());
  if (removed.code() == StatusCode::not_found) return {};
  VARVE_TRY(removed);
  const Status synced = fs_.sync_directory(set.path);
  // So that the next one removes something anew: of the same removal a second sync would prove nothing.
  if (!synced.ok()) fs_.create(set.attempt_path()).status().ignore("an empty one says nothing");
  return synced;
}

}  // namespace varve
