#include "engine/restore_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <optional>
#include <thread>

#include "core/file_system.h"
#include "core/process.h"
#include "store/store.h"

namespace varve {

namespace {
/// Each may have two descriptors.
constexpr size_t kTargetFilesMax = 2048;
constexpr size_t kOpenFilesShare = 8;
constexpr mode_t kFolderModeWhileRestoring = 0700;
constexpr mode_t kNoteMode = 0644;
constexpr size_t kNoteBytesMax = 4096;
/// As many files and folders are made durable one by one; from then on, the file system writes out all it has, which
/// others may have left to it, too.
constexpr uint64_t kSyncedSinglyMax = 512;

/// Whether syncfs() makes durable all that was written to the file system, and says so if that fails: local ones do,
/// from Linux 5.8 on.
bool can_sync_file_system(int fd) {
  struct statfs status {};
  utsname system{};
  if (::fstatfs(fd, &status) != 0 || ::uname(&system) != 0) return false;
  unsigned major = 0, minor = 0;
  if (std::sscanf(system.release, "%u.%u", &major, &minor) != 2 || std::pair(major, minor) < std::pair(5u, 8u))
    return false;
  switch (static_cast<unsigned long>(status.f_type)) {
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case TMPFS_MAGIC: return true;
    default: return false;
  }
}

/// Opens a folder below `root` without leaving it or following links.
int open_beneath(int root, const std::string& path) {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  long fd = ::syscall(SYS_openat2, root, path.c_str(), &how, sizeof how);
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  // Kernels before 5.6, and sandboxes that do not know the call: component by component. `path` has no ".."
  // (path_is_safe).
  UniqueFd at(::openat(root, ".", flags));
  for (size_t begin = 0; at.valid() && begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    at.reset(::openat(at.get(), path.substr(begin, end - begin).c_str(), flags | O_NOFOLLOW));
    begin = end + 1;
  }
  return at.release();
}

std::string staged_name(uint32_t number) { return std::to_string(number); }

/// Removes a staging folder, which is open as `staging`, in `folder`, which is open as `root`, with all that is in it.
void remove_staging(int root, int staging, const std::string& folder, const std::string& name) {
  const Result<std::vector<DirectoryEntry>> files = posix_file_system().list(join_path(folder, name));
  if (!files.ok()) return;
  for (const DirectoryEntry& file : *files) ::unlinkat(staging, file.name.c_str(), 0);
  ::unlinkat(root, name.c_str(), AT_REMOVEDIR);
}

/// The same, if no process holds it.
void remove_left_over(int root, const std::string& folder, const std::string& name) {
  const UniqueFd staging(::openat(root, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!staging.valid() || ::flock(staging.get(), LOCK_EX | LOCK_NB) != 0) return;
  remove_staging(root, staging.get(), folder, name);
}

void remove_left_overs(int root, const std::string& folder) {
  const Result<std::vector<DirectoryEntry>> entries = posix_file_system().list(folder);
  if (!entries.ok()) return;
  for (const DirectoryEntry& entry : *entries) {
    if (is_restore_staging(entry.name)) remove_left_over(root, folder, entry.name);
  }
}
}  // namespace

RestoreTarget::RestoreTarget(std::string folder, bool overwrite)
    : folder_(std::move(folder)),
      overwrite_(overwrite),
      open_files_max_(descriptors_for(kTargetFilesMax, kOpenFilesShare)) {}

std::string RestoreTarget::describe(const std::string& path) const { return join_path(folder_, path); }

Result<std::unique_ptr<RestoreTarget>> RestoreTarget::open(const std::string& folder, bool overwrite) {
  std::unique_ptr<RestoreTarget> target(new RestoreTarget(folder, overwrite));
  std::error_code error;
  for (std::string path = folder; !std::filesystem::exists(path, error) && !error && path != parent_path(path);
       path = parent_path(path)) {
    target->made_.push_back(path);
  }
  target->created_ = target->is_empty_ = std::filesystem::create_directories(folder, error);
  if (error == std::errc::not_a_directory || error == std::errc::file_exists)
    return Status::invalid_argument("not a folder", folder);
  if (error) return Status::from_errno(error.value(), "create folder", folder);
  target->root_.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!target->root_.valid()) return Status::from_errno(errno, "open folder", folder);
  target->can_sync_all_ = can_sync_file_system(target->root_.get());
  remove_left_overs(target->root_.get(), folder);
  VARVE_TRY(target->make_staging());
  return target;
}

Status RestoreTarget::make_staging() {
  while (true) {
    VARVE_ASSIGN(const UniqueId id, UniqueId::random());
    staging_name_ = restore_staging_name(id);
    if (::mkdirat(root_.get(), staging_name_.c_str(), 0700) != 0)
      return Status::from_errno(errno, "create a folder in", folder_);
    staging_.reset(::openat(root_.get(), staging_name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!staging_.valid() && errno != ENOENT) return Status::from_errno(errno, "open folder", staging_name_);
    if (!staging_.valid()) continue;  // another restore took it for one that was left, as it may until it is locked
    // Not every file system has locks: there, what is left stays.
    (void)::flock(staging_.get(), LOCK_EX);
    struct stat status {};
    if (::fstat(staging_.get(), &status) != 0) return Status::from_errno(errno, "look at", staging_name_);
    if (status.st_nlink > 0) return {};
  }
}

RestoreTarget::~RestoreTarget() {
  open_.clear();
  if (staging_.valid()) {
    remove_staging(root_.get(), staging_.get(), folder_, staging_name_);
  } else if (root_.valid() && !staging_name_.empty()) {
    ::unlinkat(root_.get(), staging_name_.c_str(), AT_REMOVEDIR);
  }
  if (created_ && !published_) ::rmdir(folder_.c_str());
}

Status RestoreTarget::check_free(const TreeFile& file, bool parent_comes) const {
  if (is_empty_) return {};
  const std::string parent = parent_path(file.path);
  UniqueFd at(parent == "." ? ::dup(root_.get()) : open_beneath(root_.get(), parent));
  if (!at.valid()) {
    if (errno == ENOENT) return {};
    if (errno == ELOOP || errno == EXDEV) {
      return Status(StatusCode::permission_denied, "a symbolic link lies in the way; nothing is written through it",
                    describe(parent));
    }
    return Status::from_errno(errno, "open folder", describe(parent));
  }
  if (!parent_comes && ::faccessat(at.get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return Status::from_errno(errno, "write to the folder", describe(parent));
  struct stat status {};
  if (::fstatat(at.get(), base_name(file.path).c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? Status() : Status::from_errno(errno, "look at", describe(file.path));
  }
  if (S_ISDIR(status.st_mode) != (file.type == FileType::directory)) {
    return Status::already_exists("something of another kind is there already", describe(file.path),
                                  "restore into an empty folder");
  }
  if (S_ISDIR(status.st_mode) && ::geteuid() != 0 && ::geteuid() != status.st_uid) {
    return Status(StatusCode::permission_denied, "the folder belongs to another user: its mode cannot be set",
                  describe(file.path), "restore into another folder");
  }
  if (S_ISDIR(status.st_mode) || overwrite_) return {};
  return Status::already_exists("the file is there already", describe(file.path), Remedy::overwrite);
}

Result<UniqueFd> RestoreTarget::create_staged(uint32_t number) const {
  const std::string name = staged_name(number);
  // A small file may be staged twice, where what is beside it in its pack is damaged.
  UniqueFd fd(::openat(staging_.get(), name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Status::from_errno(errno, "create a file in", describe(staging_name_));
  return fd;
}

Status RestoreTarget::stage_whole(uint32_t number, ByteSpan contents, const TreeFile& file, bool sync) {
  VARVE_ASSIGN(const UniqueFd fd, create_staged(number));
  VARVE_TRY(write_at(fd.get(), 0, contents));
  const bool later = sync && can_sync_all_ && ++small_count_ > kSyncedSinglyMax;
  return describe_staged(fd.get(), file, sync && !later);
}

Status RestoreTarget::make_staged_durable() {
  return can_sync_all_ && (small_count_ > kSyncedSinglyMax || any_closed_early_) ? sync_all() : Status();
}

/// Fails also for what could not be written since the folder was opened.
Status RestoreTarget::sync_all() const {
  return ::syncfs(root_.get()) == 0 ? Status() : Status::from_errno(errno, "make durable", folder_);
}

Status RestoreTarget::stage(uint32_t number, uint64_t bytes, bool dense) {
  VARVE_ASSIGN(UniqueFd fd, create_staged(number));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Status::from_errno(errno, "set the size of a file in", describe(staging_name_));
  // Packs fill the file in no order: without this, its blocks would be scattered over the disk. Not every file system
  // can.
  if (dense && ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0 && errno == ENOSPC) {
    return Status::from_errno(errno, "allocate space in", describe(staging_name_));
  }
  auto staged_file = std::make_shared<StagedFile>();
  staged_file->fd = std::move(fd);
  const MutexLock lock(mutex_);
  keep_open(number, std::move(staged_file));
  return {};
}

void RestoreTarget::keep_open(uint32_t number, std::shared_ptr<StagedFile> file) {
  if (open_.size() >= open_files_max_) {
    open_.erase(recently_used_.back());
    recently_used_.pop_back();
    any_closed_early_ = true;
  }
  recently_used_.push_front(number);
  open_.emplace(number, OpenFile{std::move(file), recently_used_.begin()});
}

Result<std::shared_ptr<RestoreTarget::StagedFile>> RestoreTarget::staged(uint32_t number, bool direct) {
  const MutexLock lock(mutex_);
  std::shared_ptr<StagedFile> file;
  if (auto found = open_.find(number); found != open_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    file = found->second.file;
  } else {
    file = std::make_shared<StagedFile>();
    file->fd.reset(::openat(staging_.get(), staged_name(number).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!file->fd.valid()) return Status::from_errno(errno, "open a file in", describe(staging_name_));
    keep_open(number, file);
  }
  if (direct && !file->direct_tried) {
    file->direct_tried = true;
    file->direct.reset(
        ::openat(staging_.get(), staged_name(number).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW));
  }
  return file;
}

Status RestoreTarget::write(uint32_t number, uint64_t offset, ByteSpan bytes) {
  VARVE_ASSIGN(const std::shared_ptr<StagedFile> file, staged(number));
  return write_at(file->fd.get(), offset, bytes);
}

Status RestoreTarget::write_at(int fd, uint64_t offset, ByteSpan bytes) const {
  while (!bytes.empty()) {
    ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::from_errno(errno, "write", describe(staging_name_));
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status RestoreTarget::write_direct(uint32_t number, uint64_t offset, ByteSpan bytes) {
  VARVE_ASSIGN(std::shared_ptr<StagedFile> file, staged(number, true));
  if (!file->direct.valid()) return write(number, offset, bytes);
  ssize_t written = ::pwrite(file->direct.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  if (written == static_cast<ssize_t>(bytes.size())) return {};
  if (written < 0 && errno != EINVAL && errno != EINTR)
    return Status::from_errno(errno, "write", describe(staging_name_));
  return write(number, offset, bytes);
}

void RestoreTarget::begin_writing_out(uint32_t number) {
  std::shared_ptr<StagedFile> file;
  {
    const MutexLock lock(mutex_);
    if (const auto found = open_.find(number); found != open_.end()) file = found->second.file;
  }
  // Not every file system can; what could not be written is for fsync() to say.
  if (file) (void)::sync_file_range(file->fd.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
}

Status RestoreTarget::finish(uint32_t number, const TreeFile& file, bool sync) {
  {
    VARVE_ASSIGN(const std::shared_ptr<StagedFile> staged_file, staged(number));
    VARVE_TRY(describe_staged(staged_file->fd.get(), file, sync));
  }
  const MutexLock lock(mutex_);
  if (auto found = open_.find(number); found != open_.end()) {
    recently_used_.erase(found->second.used);
    open_.erase(found);
  }
  return {};
}

Status RestoreTarget::describe_staged(int fd, const TreeFile& file, bool sync) const {
  const timespec times[2] = {{0, UTIME_OMIT},
                             {static_cast<time_t>(file.modified_s), static_cast<long>(file.modified_ns)}};
  if (::fchmod(fd, mode_for_anyone(file.mode)) != 0)
    return Status::from_errno(errno, "set the mode of", describe(file.path));
  if (::futimens(fd, times) != 0) return Status::from_errno(errno, "set the time of", describe(file.path));
  if (sync && ::fsync(fd) != 0) return Status::from_errno(errno, "make durable", describe(file.path));
  return {};
}

Result<int> RestoreTarget::parent_of(const std::string& path) {
  const std::string parent = parent_path(path);
  if (!last_parent_.fd.valid() || last_parent_.path != parent) {
    std::string name;
    VARVE_ASSIGN(last_parent_.fd, make_parent(path, name));
    last_parent_.path = parent;
  }
  return last_parent_.fd.get();
}

Result<UniqueFd> RestoreTarget::make_parent(const std::string& path, std::string& name) {
  const std::string parent = parent_path(path);
  name = base_name(path);
  if (parent == ".") return UniqueFd(::dup(root_.get()));
  UniqueFd at(open_beneath(root_.get(), parent));
  if (!at.valid() && errno == ENOENT) {
    std::string folder_name;
    VARVE_ASSIGN(UniqueFd above, make_parent(parent, folder_name));
    if (::mkdirat(above.get(), folder_name.c_str(), 0777) != 0 && errno != EEXIST)
      return Status::from_errno(errno, "create folder", describe(parent));
    changed_folders_.insert(parent_path(parent));
    at.reset(open_beneath(root_.get(), parent));
  }
  if (!at.valid()) return Status::from_errno(errno, "open folder", describe(parent));
  return at;
}

namespace {
/// Of a folder, and of nothing that a link of its name leads to. False: errno says why not.
bool set_folder_mode(int parent, const std::string& name, uint32_t mode) {
  // The folder may be one that nobody can open otherwise.
  const UniqueFd folder(::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return folder.valid() && ::chmod(fmt::format("/proc/self/fd/{}", folder.get()).c_str(), mode) == 0;
}
}  // namespace

Status RestoreTarget::publish(uint32_t number, const TreeFile& file) {
  const std::string name = base_name(file.path);
  VARVE_ASSIGN(const int parent, parent_of(file.path));
  switch (file.type) {
    case FileType::directory:
      if (::mkdirat(parent, name.c_str(), kFolderModeWhileRestoring) != 0 &&
          (errno != EEXIST || !set_folder_mode(parent, name, file.mode | kFolderModeWhileRestoring))) {
        return Status::from_errno(errno, "create folder", describe(file.path));
      }
      break;
    case FileType::symlink: {
      if (overwrite_ && ::unlinkat(parent, name.c_str(), 0) == 0) gave_names_ = true;
      if (::symlinkat(file.link_target.c_str(), parent, name.c_str()) != 0)
        return Status::from_errno(errno, "create symbolic link", describe(file.path));
      gave_names_ = true;
      const timespec times[2] = {{0, UTIME_OMIT},
                                 {static_cast<time_t>(file.modified_s), static_cast<long>(file.modified_ns)}};
      if (::utimensat(parent, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0)
        return Status::from_errno(errno, "set the time of", describe(file.path));
      break;
    }
    case FileType::regular: {
      const std::string from = staged_name(number);
      int renamed = overwrite_ ? ::renameat(staging_.get(), from.c_str(), parent, name.c_str())
                               : ::renameat2(staging_.get(), from.c_str(), parent, name.c_str(), RENAME_NOREPLACE);
      // Not every file system can refuse to replace.
      if (renamed != 0 && !overwrite_ && errno == EINVAL) {
        if (::faccessat(parent, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
          return Status::already_exists("the file is there already", describe(file.path), Remedy::overwrite);
        renamed = ::renameat(staging_.get(), from.c_str(), parent, name.c_str());
      }
      if (renamed != 0) return Status::from_errno(errno, "put in place", describe(file.path));
      break;
    }
  }
  changed_folders_.insert(parent_path(file.path));
  published_ = true;
  gave_names_ = gave_names_ || file.type != FileType::directory;
  return {};
}

Status RestoreTarget::lock_note(ProgressSink& progress) {
  bool waits = false;
  // Not every file system has locks: there, nobody waits for anybody.
  while (::flock(note_.get(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
    if (progress.cancelled()) return Status::cancelled();
    if (!waits) progress.phase("waiting for another restore into the same folder");
    waits = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return {};
}

Status RestoreTarget::begin_publishing(const std::string& set, const std::string& part, bool sync,
                                       ProgressSink& progress) {
  const std::string path = describe(std::string(kRestoringNote));
  struct stat status {};
  do {  // again if whoever had the lock has removed the note meanwhile
    note_.reset(::openat(root_.get(), kRestoringNote.data(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                         kNoteMode));
    if (!note_.valid()) return Status::from_errno(errno, "create", path);
    VARVE_TRY(lock_note(progress));
    if (::fstat(note_.get(), &status) != 0) return Status::from_errno(errno, "look at", path);
  } while (status.st_nlink == 0);
  if (!S_ISREG(status.st_mode)) return Status::already_exists("something that is no note lies there", path);
  const std::string told = (set + "\n" + part).substr(0, kNoteBytesMax);
  std::string left(kNoteBytesMax, '\0');
  const ssize_t got = ::pread(note_.get(), left.data(), left.size(), 0);
  if (got < 0) return Status::from_errno(errno, "read", path);
  left.resize(static_cast<size_t>(got));
  // One that was stopped before it had written its note had published nothing either.
  note_goes_ = left.empty() || left == told || (part.empty() && left.starts_with(set + "\n"));
  note_is_new_ = left.empty();
  if (!note_is_new_) return {};
  const bool written = ::pwrite(note_.get(), told.data(), told.size(), 0) == static_cast<ssize_t>(told.size());
  if (written && (!sync || (::fsync(note_.get()) == 0 && ::fsync(root_.get()) == 0))) return {};
  const Status failed = Status::from_errno(written || errno != 0 ? errno : ENOSPC, "write", path);
  ::unlinkat(root_.get(), kRestoringNote.data(), 0);
  return failed;
}

bool RestoreTarget::is_still_empty() {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_, error), end; is_empty_ && !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    is_empty_ = is_restore_staging(name) || name == kRestoringNote;
  }
  is_empty_ = is_empty_ && !error;
  return is_empty_;
}

Status RestoreTarget::end_publishing(bool sync) {
  if (note_goes_ && ::unlinkat(root_.get(), kRestoringNote.data(), 0) != 0 && errno != ENOENT)
    return Status::from_errno(errno, "remove", describe(std::string(kRestoringNote)));
  note_.reset();
  if (sync && note_goes_ && ::fsync(root_.get()) != 0) return Status::from_errno(errno, "make durable", folder_);
  return {};
}

void RestoreTarget::take_note_back() {
  if (note_is_new_) ::unlinkat(root_.get(), kRestoringNote.data(), 0);
  note_.reset();
}

Result<UniqueFd> RestoreTarget::open_folder(const std::string& path) const {
  UniqueFd fd(open_beneath(root_.get(), path));
  if (!fd.valid()) return Status::from_errno(errno, "open folder", describe(path));
  return fd;
}

Status RestoreTarget::finish_folders(const std::vector<const TreeFile*>& folders, bool sync) {
  const bool together = can_sync_all_ && folders.size() + changed_folders_.size() > kSyncedSinglyMax;
  if (sync) {
    for (const TreeFile* folder : folders) changed_folders_.erase(folder->path);  // they are synced below
    VARVE_TRY(sync_names(together));
  }
  std::vector<const TreeFile*> deepest_first = folders;
  std::sort(deepest_first.begin(), deepest_first.end(),
            [](const TreeFile* a, const TreeFile* b) { return a->path > b->path; });
  for (const TreeFile* folder : deepest_first) {
    VARVE_ASSIGN(UniqueFd fd, open_folder(folder->path));
    const timespec times[2] = {{0, UTIME_OMIT},
                               {static_cast<time_t>(folder->modified_s), static_cast<long>(folder->modified_ns)}};
    if (::fchmod(fd.get(), folder->mode) != 0)
      return Status::from_errno(errno, "set the mode of", describe(folder->path));
    if (::futimens(fd.get(), times) != 0) return Status::from_errno(errno, "set the time of", describe(folder->path));
    if (sync && !together && ::fsync(fd.get()) != 0)
      return Status::from_errno(errno, "make durable", describe(folder->path));
  }
  if (sync && together) VARVE_TRY(sync_all());
  published_ = true;  // an empty set is a set, too
  return {};
}

/// Before folders get their modes, which may not let us read them.
Status RestoreTarget::sync_names(bool together) {
  for (const std::string& path : changed_folders_) {
    if (together || path == ".") continue;
    VARVE_ASSIGN(const UniqueFd fd, open_folder(path));
    if (::fsync(fd.get()) != 0) return Status::from_errno(errno, "make durable", describe(path));
  }
  if (::fsync(root_.get()) != 0) return Status::from_errno(errno, "make durable", folder_);
  for (const std::string& path : made_) VARVE_TRY(settle_root(posix_file_system(), path));
  return {};
}

TileWriter::TileWriter(Write write, uint64_t memory_bytes)
    : write_(std::move(write)), tiles_max_(std::max<uint64_t>(memory_bytes / kTileBytes, 2)) {}

Status TileWriter::add(uint32_t number, uint64_t file_bytes, uint64_t offset, ByteSpan bytes) {
  while (!bytes.empty()) {
    const uint64_t tile_offset = offset / kTileBytes * kTileBytes;
    const uint64_t tile_bytes = std::min(kTileBytes, file_bytes - tile_offset);
    const size_t part = std::min<uint64_t>(bytes.size(), tile_offset + tile_bytes - offset);
    VARVE_TRY(add_to_tile({number, tile_offset}, tile_bytes, offset - tile_offset, bytes.first(part)));
    bytes = bytes.subspan(part);
    offset += part;
  }
  return {};
}

Status TileWriter::add_to_tile(const Key& key, uint64_t tile_bytes, uint64_t begin, ByteSpan bytes) {
  std::byte* memory = nullptr;
  std::optional<std::pair<Key, Tile>> evicted;
  {
    const MutexLock lock(mutex_);
    auto tile = tiles_.find(key);
    if (tile == tiles_.end()) {
      if (tiles_.size() >= tiles_max_) {
        auto oldest = std::find_if(oldest_first_.begin(), oldest_first_.end(),
                                   [&](const Key& k) VARVE_REQUIRES(mutex_) { return tiles_.at(k).copying == 0; });
        if (oldest != oldest_first_.end()) {
          const Key old_key = *oldest;
          evicted.emplace(old_key, take(tiles_.find(old_key)));
        }
      }
      // First what memory may be lacking for: others are to find no tile without any.
      AlignedBlock block;
      if (!spare_.empty()) {
        block = std::move(spare_.back());
        spare_.pop_back();
      } else {
        block = AlignedBlock(kTileBytes);
        if (block.empty()) throw std::bad_alloc();
      }
      const auto age = oldest_first_.insert(oldest_first_.end(), key);
      try {
        tile = tiles_.emplace(key, Tile{}).first;
      } catch (...) {
        oldest_first_.erase(age);
        throw;
      }
      tile->second.bytes = tile_bytes;
      tile->second.age = age;
      tile->second.memory = std::move(block);
    }
    ++tile->second.copying;
    memory = tile->second.memory.data();
  }
  if (evicted) VARVE_TRY(write_out(evicted->first, evicted->second));
  std::memcpy(memory + begin, bytes.data(), bytes.size());
  std::optional<Tile> whole;
  {
    const MutexLock lock(mutex_);
    auto tile = tiles_.find(key);
    --tile->second.copying;
    std::vector<Extent>& filled = tile->second.filled;
    if (!filled.empty() && filled.back().offset + filled.back().bytes == begin) {
      filled.back().bytes += bytes.size();
    } else {
      filled.push_back({begin, bytes.size()});
    }
    tile->second.filled_bytes += bytes.size();
    if (tile->second.filled_bytes == tile->second.bytes && tile->second.copying == 0) whole = take(tile);
  }
  return whole ? write_out(key, *whole) : Status();
}

TileWriter::Tile TileWriter::take(std::map<Key, Tile>::iterator tile) {
  oldest_first_.erase(tile->second.age);
  Tile taken = std::move(tile->second);
  tiles_.erase(tile);
  return taken;
}

Status TileWriter::write_out(const Key& key, Tile& tile) {
  Status status;
  if (tile.filled_bytes == tile.bytes) {
    status = write_(key.first, key.second, tile.memory.first(tile.bytes), tile.bytes == kTileBytes);
  } else {
    for (const Extent& range : tile.filled) {
      if (!status.ok()) break;
      status =
          write_(key.first, key.second + range.offset, ByteSpan(tile.memory.data() + range.offset, range.bytes), false);
    }
  }
  const MutexLock lock(mutex_);
  if (spare_.size() + tiles_.size() < tiles_max_) spare_.push_back(std::move(tile.memory));
  return status;
}

Status TileWriter::flush() {
  for (;;) {
    Key key;
    Tile tile;
    {
      const MutexLock lock(mutex_);
      if (tiles_.empty()) return {};
      key = tiles_.begin()->first;
      tile = take(tiles_.begin());
    }
    VARVE_TRY(write_out(key, tile));
  }
}

}  // namespace varve
