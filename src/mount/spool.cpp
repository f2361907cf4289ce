#include "mount/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "core/sync.h"
#include "hash/score.h"

namespace varve {

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
  VARVE_TRY(Store::sync_name(fs, path));
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

std::optional<SetRecord> Spool::read_attempt(const SpooledSet& set, const ScoreFunction& score) const {
  const Result<ByteVector> raw = read_file(fs_, set.attempt_path(), kSetRecordBytesMax);
  if (!raw.ok()) return std::nullopt;
  Result<SetRecord> record = decode_set_record(*raw, score);
  if (!record.ok()) return std::nullopt;
  return std::move(record).value();
}

Status Spool::remove_attempt(const SpooledSet& set) const {
  const Status removed = fs_.remove(set.attempt_path());
  return removed.code() == StatusCode::not_found ? Status() : removed;
}

}  // namespace varve
