#include "store/writer_lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "core/process.h"
#include "store/set_part.h"

namespace varve {

namespace {
constexpr std::chrono::seconds kHeartbeat(5);
/// What a lease says of its writer until the record takes its place.
std::string lease_text(uint32_t process) { return fmt::format("{} {}\n", process, host_name()); }
}  // namespace

Result<std::unique_ptr<WriterLease>> WriterLease::acquire(const Store& store, std::optional<UniqueId> id) {
  if (!id) {
    VARVE_ASSIGN(id, UniqueId::random());
  }
  VARVE_TRY(store.make_durable());
  std::unique_ptr<WriterLease> lease(new WriterLease(store, *id));
  VARVE_ASSIGN(lease->power_, store.fs().watch_power());
  lease->path_ = join_path(store.writers_path(), id->hex());
  Result<std::unique_ptr<File>> file = store.fs().create(lease->path_);
  if (!file.ok()) {
    if (file.status().code() != StatusCode::permission_denied) return file.status();
    return file.status().with_hint("the store is not writable by this user");
  }
  lease->file_ = std::move(*file);
  VARVE_TRY(lease->file_->write_at(0, as_bytes(lease_text(own_process_number()))));
  VARVE_ASSIGN(lease->heart_, start_thread([raw = lease.get()] { raw->beat(); }));
  // Only now: a prune that marks an arena after this sees the lease and waits for it.
  VARVE_ASSIGN(lease->condemned_, store.list_condemned());
  // What was open may have been removed before the lease was there, and must not be found by its old reader.
  store.drop_arena_cache();
  return lease;
}

WriterLease::~WriterLease() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ended_.notify_all();
  if (heart_.joinable()) heart_.join();
  file_.reset();
  if (!committed_) store_.fs().remove(path_).ignore("prune removes the leases of dead writers");
}

bool WriterLease::owns(const std::string& lease_name, const ArenaId& arena) {
  Result<UniqueId> writer = UniqueId::parse(lease_name);
  return writer.ok() && std::equal(writer->bytes.begin() + 4, writer->bytes.end(), arena.bytes.begin() + 4);
}

bool WriterLease::known_dead(const Store& store, const std::string& lease_name) {
  Result<ByteVector> raw = read_file(store.fs(), join_path(store.writers_path(), lease_name), 4096);
  if (!raw.ok()) return false;
  const std::string text(as_text(*raw));
  uint32_t process = 0;
  std::from_chars(text.data(), text.data() + text.size(), process);
  return process > 0 && text == lease_text(process) && is_process_gone(process);
}

void WriterLease::beat() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kHeartbeat, [this] { return ending_; })) {
    store_.fs().touch(path_).ignore("a lost lease is noticed at the commit");
  }
}

Status WriterLease::lost_status(const SetName& set) {
  return Status::busy("a prune took this writer for dead before it could commit", set.to_string(), "save again");
}

bool WriterLease::lost() const {
  return !committed_ && store_.fs().stat(path_).status().code() == StatusCode::not_found;
}

Status WriterLease::commit(const SetRecord& record, IfExists if_exists) {
  VARVE_TRY(prepare(record));
  return commit_prepared(record.name, if_exists);
}

Status WriterLease::prepare(const SetRecord& record) {
  VARVE_TRY(store_.fs().sync_directory(store_.arenas_path()));  // whatever the record names must be durable before it
  const ByteVector raw = encode_set_record(record, store_.score());
  if (raw.size() > kSetRecordBytesMax) {
    return Status::resource_limit("the set has more groups than a record can hold", record.name.to_string(),
                                  "lay more ranks together (--group-size)");
  }
  VARVE_TRY(file_->truncate(0));
  VARVE_TRY(file_->write_at(0, raw));
  return file_->sync();
}

Status WriterLease::commit_prepared(const SetName& name, IfExists if_exists) {
  const Catalog catalog(store_);
  FileSystem& fs = store_.fs();
  const std::string job_path = catalog.job_path(name.job);
  const std::string record_path = catalog.record_path(name);
  Status renamed;
  for (int attempt = 0; attempt < 3; ++attempt) {
    VARVE_TRY(fs.create_directory(job_path));
    VARVE_TRY(fs.sync_directory(store_.sets_path()));
    renamed = if_exists == IfExists::replace ? fs.rename(path_, record_path)
                                             : fs.rename_no_replace(path_, record_path);  // the commit point
    // Missing is either the lease, or the job's folder: a drop of its last set may have tidied that away just now.
    if (renamed.code() != StatusCode::not_found || !fs.stat(path_).ok()) break;
  }
  if (renamed.code() == StatusCode::already_exists) {
    return Status::already_exists("the set is in the store already", name.to_string(),
                                  "choose another step with --step, or `varve drop` the old set first");
  }
  if (renamed.code() == StatusCode::not_found) {
    return lost_status(name);
  }
  VARVE_TRY(renamed);
  committed_ = true;
  Status durable = fs.sync_directory(job_path);
  // The job's own name once more: a drop may have tidied it away, and another save made it anew, since it was synced.
  if (durable.ok()) durable = fs.sync_directory(store_.sets_path());
  return durable.with_context("the set is in the catalog, but might not survive a power cut");
}

Status WriterLease::publish_part(const PartName& name, const SetRecord& record) {
  FileSystem& fs = store_.fs();
  VARVE_TRY(prepare(record));
  // Stores have this folder from their first part on.
  VARVE_TRY(fs.create_directory(store_.parts_path()));
  VARVE_TRY(fs.sync_directory(store_.path()));
  const Status renamed = fs.rename_no_replace(path_, join_path(store_.parts_path(), name.file_name()));
  if (renamed.code() == StatusCode::already_exists) {
    return Status::already_exists("this part of the set is in the store already", name.to_string());
  }
  if (renamed.code() == StatusCode::not_found) return lost_status(name.set);
  VARVE_TRY(renamed);
  committed_ = true;
  return fs.sync_directory(store_.parts_path())
      .with_context("a part of a set was published, but might not survive a power cut");
}

}  // namespace varve
