#include "sim/disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "backend/put_aside.h"

namespace varve::sim {

namespace {
Status no_such_disk(const std::string& path) { return Status::not_found("no disk is there", path); }

class SimulatedFile final : public File {
 public:
  SimulatedFile(Disk& disk, std::string path, std::unique_ptr<File> file)
      : disk_(disk), path_(std::move(path)), file_(std::move(file)), generation_(disk.generation()) {}

  Result<size_t> read_at(uint64_t offset, MutableByteSpan into) override {
    VARVE_TRY(begin(Disk::Kind::read, "read"));
    return file_->read_at(offset, into);
  }
  Status write_at(uint64_t offset, ByteSpan from) override {
    VARVE_TRY(begin(Disk::Kind::write, "write"));
    VARVE_ASSIGN(const uint64_t bytes, file_->size());
    if (offset + from.size() > bytes) VARVE_TRY(disk_.take_room(offset + from.size() - bytes, path_));
    return disk_.end(Disk::Kind::write, "write", path_, file_->write_at(offset, from));
  }
  Status truncate(uint64_t bytes) override {
    VARVE_TRY(begin(Disk::Kind::write, "truncate"));
    VARVE_ASSIGN(const uint64_t before, file_->size());
    if (bytes > before) VARVE_TRY(disk_.take_room(bytes - before, path_));
    if (bytes < before) disk_.give_room(before - bytes);
    return disk_.end(Disk::Kind::write, "truncate", path_, file_->truncate(bytes));
  }
  Status sync() override {
    VARVE_TRY(begin(Disk::Kind::sync, "sync"));
    return disk_.end(Disk::Kind::sync, "sync", path_, file_->sync());
  }
  Result<uint64_t> size() override {
    VARVE_TRY(begin(Disk::Kind::look, "size"));
    return file_->size();
  }

 private:
  Status begin(Disk::Kind kind, const char* what) {
    Status begun = disk_.begin(kind, what, path_);
    // As the kernel drops dirty pages that it could not write: nothing since the last sync will ever be durable.
    if (kind == Disk::Kind::sync && !begun.ok()) {
      if (auto* const lossy = dynamic_cast<LossyFile*>(file_.get())) lossy->lose_unsynced();
    }
    VARVE_TRY(begun);
    if (generation_ != disk_.generation()) return Status::io_error("the server has forgotten the file", path_);
    return {};
  }

  Disk& disk_;
  const std::string path_;
  const std::unique_ptr<File> file_;
  const uint64_t generation_;
};
}  // namespace

Disk::Disk(Simulator& simulator, std::string name) : simulator_(simulator), name_(std::move(name)) {
  mount(std::make_unique<MemoryFileSystem>());
}

void Disk::mount(std::unique_ptr<MemoryFileSystem> files) {
  if (files_) past_.push_back(std::move(files_));
  files_ = std::move(files);
  files_->set_clock([this] {
    const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(simulator_.now().time_since_epoch());
    return (passed + calendar_error).count();
  });
  ++generation_;
  used_ = 0;
  count_used("/");
}

void Disk::lose_power(const CrashPolicy& policy) {
  mount(files_->after_crash(policy));
  ++machine_run_;
}

void Disk::replace() { mount(std::make_unique<MemoryFileSystem>()); }

void Disk::count_used(const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = files_->list(folder);
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = join_path(folder, entry.name);
    if (entry.is_directory) {
      count_used(path);
    } else {
      used_ += files_->stat(path).value().bytes;
    }
  }
}

Status Disk::begin(Kind kind, const char* what, const std::string& path) {
  Random& random = simulator_.random();
  // From microseconds to some milliseconds, more often short than long.
  const double seconds = 1e-6 * std::exp(random.unit() * 8) * slowness;
  simulator_.note_doing(fmt::format("{} {}", what, path));
  simulator_.spend(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
  if (kind == Kind::name) simulator_.hand_over_eagerly();
  if (away_until > simulator_.now()) {
    const Moment given_up = simulator_.now() + patience;
    while (away_until > simulator_.now() && simulator_.now() < given_up) {
      simulator_.spend(std::min(away_until, given_up) - simulator_.now());
    }
    if (away_until > simulator_.now()) {
      simulator_.tell(fmt::format("{:<8} {}:{} → cannot be reached", what, name_, path));
      return Status::io_error("the server cannot be reached", path);
    }
  }
  if (kind == Kind::read && failing_read > 0 && path.find("/arenas/") != std::string::npos && --failing_read == 0) {
    simulator_.tell(fmt::format("{:<8} {}:{} → input/output error, once", what, name_, path));
    return Status::io_error(what, path);
  }
  const double chance = kind == Kind::read    ? faults.read_error
                        : kind == Kind::sync  ? faults.sync_error
                        : kind == Kind::write ? faults.write_error
                                              : 0;
  if (chance > 0 && random.chance(chance)) {
    simulator_.tell(fmt::format("{:<8} {}:{} → input/output error", what, name_, path));
    return Status::io_error(what, path);
  }
  if (kind != Kind::look && kind != Kind::read) simulator_.tell(fmt::format("{:<8} {}:{}", what, name_, path));
  return {};
}

Status Disk::end(Kind, const char* what, const std::string& path, Status outcome) {
  if (!outcome.ok()) {
    simulator_.tell(fmt::format("{:<8} {}:{} → {}", what, name_, path, outcome.to_string()));
  } else if (faults.lost_reply > 0 && simulator_.random().chance(faults.lost_reply)) {
    simulator_.tell(fmt::format("{:<8} {}:{} → done, but the reply is lost", what, name_, path));
    return Status::io_error("the connection was lost", path);
  }
  return outcome;
}

Status Disk::take_room(uint64_t bytes, const std::string& path) {
  if (used_ + bytes > capacity || simulator_.current_process().machine == full_for) {
    simulator_.tell(fmt::format("write    {}:{} → no space", name_, path));
    return Status::from_errno(ENOSPC, "write", path);
  }
  used_ += bytes;
  return {};
}

// Files

namespace {
/// Of the calling process, and of all disks, since nobody says which one matters.
class SimulatedWatch final : public PowerWatch {
 public:
  explicit SimulatedWatch(const std::vector<Disk*>& disks) {
    for (Disk* const disk : disks) watched_.push_back({&disk->own_changes(), disk->machine_run()});
    for (const Watched& watched : watched_) watched.changes->begin_watch(watched.run);
  }
  ~SimulatedWatch() override {
    for (const Watched& watched : watched_) watched.changes->end_watch(watched.run);
  }
  SimulatedWatch(const SimulatedWatch&) = delete;
  SimulatedWatch& operator=(const SimulatedWatch&) = delete;

 private:
  struct Watched {
    NameChanges* changes = nullptr;
    UniqueId run;
  };
  std::vector<Watched> watched_;
};
}  // namespace

Result<std::unique_ptr<PowerWatch>> SimulatedFiles::watch_power() {
  return std::unique_ptr<PowerWatch>(std::make_unique<SimulatedWatch>(all_()));
}

Result<std::unique_ptr<File>> SimulatedFiles::open_read(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::look, "open", path));
  VARVE_ASSIGN(std::unique_ptr<File> file, disk->plain().open_read(path));
  return std::unique_ptr<File>(std::make_unique<SimulatedFile>(*disk, path, std::move(file)));
}

Result<std::unique_ptr<File>> SimulatedFiles::create(const std::string& path, CreateOptions options) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::name, "create", path));
  VARVE_TRY(disk->take_room(0, path));
  Result<std::unique_ptr<File>> file = disk->plain().create(path, options);
  VARVE_TRY(disk->end(Disk::Kind::name, "create", path, file.status()));
  disk->note_change(path);
  return std::unique_ptr<File>(std::make_unique<SimulatedFile>(*disk, path, *std::move(file)));
}

Status SimulatedFiles::create_directory(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::name, "mkdir", path));
  VARVE_TRY(disk->end(Disk::Kind::name, "mkdir", path, disk->plain().create_directory(path)));
  disk->note_change(path);
  return {};
}

Status SimulatedFiles::rename(const std::string& from, const std::string& to) {
  Disk* const disk = find(to);
  if (disk == nullptr) return no_such_disk(to);
  VARVE_TRY(disk->begin(Disk::Kind::name, "rename", from + " → " + to));
  if (PutAside::parse(to)) disk->before_removal();
  const Result<FileStatus> replaced = disk->plain().stat(to);
  const Status renamed = disk->plain().rename(from, to);
  if (renamed.ok() && replaced.ok()) disk->give_room(replaced->bytes);
  VARVE_TRY(disk->end(Disk::Kind::name, "rename", to, renamed));
  disk->note_change(from);
  disk->note_change(to);
  return {};
}

Status SimulatedFiles::rename_no_replace(const std::string& from, const std::string& to) {
  Disk* const disk = find(to);
  if (disk == nullptr) return no_such_disk(to);
  VARVE_TRY(disk->begin(Disk::Kind::name, "rename", from + " → " + to));
  VARVE_TRY(disk->end(Disk::Kind::name, "rename", to, disk->plain().rename_no_replace(from, to)));
  disk->note_change(from);
  disk->note_change(to);
  return {};
}

Status SimulatedFiles::remove(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::name, "remove", path));
  disk->before_removal();
  const Result<FileStatus> there = disk->plain().stat(path);
  const Status removed = disk->plain().remove(path);
  if (removed.ok() && there.ok()) disk->give_room(there->bytes);
  VARVE_TRY(disk->end(Disk::Kind::name, "remove", path, removed));
  disk->note_change(path);
  return {};
}

Status SimulatedFiles::remove_directory(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::name, "rmdir", path));
  VARVE_TRY(disk->end(Disk::Kind::name, "rmdir", path, disk->plain().remove_directory(path)));
  disk->note_change(path);
  return {};
}

Status SimulatedFiles::sync_directory(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::sync, "syncdir", path));
  // As service/remote_file_system.cpp does it.
  NameChanges& changes = disk->own_changes();
  const uint64_t changes_before = changes.count();
  Status synced = changes.check_sync(path, disk->machine_run());
  if (synced.ok()) synced = disk->plain().sync_directory(path);
  VARVE_TRY(disk->end(Disk::Kind::sync, "syncdir", path, synced));
  changes.forget_synced(path, changes_before);
  return {};
}

Status SimulatedFiles::touch(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::look, "touch", path));
  return disk->plain().touch(path);
}

Result<std::vector<DirectoryEntry>> SimulatedFiles::list(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::look, "list", path));
  return disk->plain().list(path);
}

Result<FileStatus> SimulatedFiles::stat(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  VARVE_TRY(disk->begin(Disk::Kind::look, "stat", path));
  return disk->plain().stat(path);
}

Result<uint64_t> SimulatedFiles::free_bytes(const std::string& path) {
  Disk* const disk = find(path);
  if (disk == nullptr) return no_such_disk(path);
  return disk->capacity - std::min(disk->capacity, disk->used_bytes());
}

}  // namespace varve::sim
