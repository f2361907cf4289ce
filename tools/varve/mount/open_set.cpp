#include "mount/open_set.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/sync.h"

namespace varve {

namespace {
/// How long whoever opens a file for writing waits to learn whether its last writer has gone.
constexpr double kReopenSeconds = 0.1;
constexpr size_t kNameBytesMax = 255;
constexpr uint32_t kModeBits = 07777;
/// What the spool is asked for; the rest of a program's flags is the kernel's business, or would spoil writing at the
/// places that it says (O_APPEND).
constexpr int kOpenFlags = O_ACCMODE | O_TRUNC | O_CREAT | O_EXCL;

using Seconds = std::chrono::duration<double>;
}  // namespace

Result<std::shared_ptr<OpenSet>> OpenSet::load(uint32_t realm, SpooledSet spooled, const Spool& spool, Clock& clock,
                                               const MountLog& log, OpenSetOptions options) {
  std::shared_ptr<OpenSet> set(new OpenSet(realm, std::move(spooled), spool, clock, log, options));
  const MutexLock lock(set->mutex_);
  const std::string files = set->spooled_.files_path();
  set->files_.reset(::open(files.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!set->files_.valid()) return Status::from_errno(errno, "open folder", files);
  VARVE_ASSIGN(set->journal_, WriterJournal::open(set->spooled_.writers_path()));
  Entry top;
  top.type = S_IFDIR;
  set->entries_.emplace(kTop, std::move(top));
  bool any_left_open = false;
  VARVE_TRY(set->load_folder(kTop, files, set->journal_->left_open(), any_left_open));
  OpenSetRecord& record = set->spooled_.record;
  if (!record.unfinished && (any_left_open || record.boot != spool.boot())) {
    record.unfinished = true;
    VARVE_TRY(spool.write_record(set->spooled_));
  }
  set->note_change();
  return set;
}

Status OpenSet::load_folder(uint32_t id, const std::string& path, const std::set<uint64_t>& left_open,
                            bool& any_left_open) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return Status::from_errno(errno, "list folder", path);
  std::vector<std::pair<uint32_t, std::string>> below;
  errno = 0;
  for (const dirent* found = ::readdir(folder.get()); found != nullptr; found = ::readdir(folder.get())) {
    const std::string name = found->d_name;
    if (name == "." || name == "..") continue;
    struct stat status {};
    if (::fstatat(::dirfd(folder.get()), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return Status::from_errno(errno, "look at", join_path(path, name));
    const uint32_t child = add(id, name, status.st_mode & S_IFMT, status.st_ino);
    if (S_ISDIR(status.st_mode)) below.emplace_back(child, join_path(path, name));
    const bool was_open = S_ISREG(status.st_mode) && left_open.count(status.st_ino) != 0;
    any_left_open = any_left_open || was_open;
    entries_[child].closed = S_ISREG(status.st_mode) && status.st_size > 0 && !was_open;
    errno = 0;
  }
  if (errno != 0) return Status::from_errno(errno, "list folder", path);
  for (const auto& [child, child_path] : below) VARVE_TRY(load_folder(child, child_path, left_open, any_left_open));
  return {};
}

SpooledSet OpenSet::spooled() const {
  const MutexLock lock(mutex_);
  return spooled_;
}

Status OpenSet::set_name(const std::string& name) {
  const MutexLock lock(mutex_);
  if (stage_ != Stage::open) return Status::busy("the set is being sealed", spooled_.record.name);
  SpooledSet renamed = spooled_;
  renamed.record.name = name;
  VARVE_TRY(spool_.write_record(renamed));
  spooled_ = std::move(renamed);
  return {};
}

OpenSet::State OpenSet::state() const {
  const MutexLock lock(mutex_);
  State state;
  for (const auto& [id, entry] : entries_) {
    if (!entry.linked || entry.type != S_IFREG) continue;
    ++state.files;
    state.writers += entry.writers > 0 ? 1 : 0;
    if (const MountResult<struct stat> status = stat_of(id); status.ok())
      state.bytes += static_cast<uint64_t>(status->st_size);
  }
  state.quiet_seconds = clock_.seconds() - changed_at_.load(std::memory_order_relaxed);
  state.sealing = stage_ == Stage::sealing;
  state.unfinished = spooled_.record.unfinished;
  state.failure = failure_;
  return state;
}

bool OpenSet::is_empty() const {
  const MutexLock lock(mutex_);
  return entries_.at(kTop).children.empty();
}

bool OpenSet::all_released_soon() {
  // A program's close() returns before the kernel tells us that the file is no longer used.
  return released_.wait_for(mutex_, Seconds(options_.release_seconds), [this]() VARVE_REQUIRES(mutex_) {
    for (const auto& [id, entry] : entries_) {
      if (!entry.linked || entry.writers == 0) continue;
      // If somebody is at it, it is of no use to wait.
      return std::any_of(entry.files.begin(), entry.files.end(),
                         [](const SpoolFile* file) { return file->writes() && !file->is_flushed(); });
    }
    return true;
  });
}

Errno OpenSet::begin_sealing(double quiet_seconds) {
  MutexLock lock(mutex_);
  if (stage_ != Stage::open) return {EBUSY};
  if (!all_released_soon() || stage_ != Stage::open) return {EBUSY};
  for (const auto& [id, entry] : entries_) {
    if (entry.linked && entry.writers > 0) return {EBUSY};
    if (entry.linked && entry.lost) return {EIO};
  }
  if (clock_.seconds() - changed_at_.load(std::memory_order_relaxed) < quiet_seconds) return {EBUSY};
  stage_ = Stage::sealing;
  return {};
}

void OpenSet::give_up_sealing(const Status& why) {
  const MutexLock lock(mutex_);
  stage_ = Stage::open;
  failure_ = why;
}

void OpenSet::finish_sealing() {
  const MutexLock lock(mutex_);
  stage_ = Stage::sealed;
}

std::vector<std::pair<std::string, uint32_t>> OpenSet::numbers() const {
  const MutexLock lock(mutex_);
  std::vector<std::pair<std::string, uint32_t>> numbers;
  for (const auto& [id, entry] : entries_) {
    if (entry.linked) numbers.emplace_back(path_of(id), id);
  }
  return numbers;
}

OpenSet::Entry* OpenSet::entry(uint32_t id) {
  const auto found = entries_.find(id);
  return found == entries_.end() ? nullptr : &found->second;
}

std::string OpenSet::path_of(uint32_t id) const {
  std::string path;
  while (id != kTop) {
    const Entry& entry = entries_.at(id);
    path = path.empty() ? entry.name : join_path(entry.name, path);
    id = entry.parent;
  }
  return path;
}

MountResult<struct stat> OpenSet::stat_of(uint32_t id) const {
  const Entry& entry = entries_.at(id);
  struct stat status {};
  int failed = 0;
  if (!entry.files.empty()) {
    failed = ::fstat(entry.files.front()->descriptor(), &status);
  } else if (id == kTop) {
    failed = ::fstat(files_.get(), &status);
  } else if (entry.linked) {
    failed = ::fstatat(files_.get(), path_of(id).c_str(), &status, AT_SYMLINK_NOFOLLOW);
  } else {
    return Errno{ESTALE};
  }
  if (failed != 0) return Errno{errno};
  return status;
}

MountResult<NodeView> OpenSet::view(uint32_t id, bool found) {
  NodeView view;
  MOUNT_ASSIGN(view.status, stat_of(id));
  view.status.st_ino = inode_of(realm_, id);
  if (found) ++entries_.at(id).known;
  return view;
}

NodeView OpenSet::top() {
  const MutexLock lock(mutex_);
  const MountResult<NodeView> top = view(kTop, false);
  return top.ok() ? *top : NodeView{};
}

MountResult<NodeView> OpenSet::look(uint32_t id) {
  const MutexLock lock(mutex_);
  if (entry(id) == nullptr) return Errno{ESTALE};
  return view(id, false);
}

MountResult<NodeView> OpenSet::find(uint32_t folder, const std::string& name) {
  const MutexLock lock(mutex_);
  Entry* const parent = entry(folder);
  if (parent == nullptr) return Errno{ESTALE};
  if (name.size() > kNameBytesMax) return Errno{ENAMETOOLONG};
  const auto child = parent->children.find(name);
  if (child == parent->children.end()) return Errno{ENOENT};
  return view(child->second, true);
}

void OpenSet::forget(uint32_t id, uint64_t count) {
  const MutexLock lock(mutex_);
  if (Entry* const known = entry(id)) {
    known->known -= std::min(known->known, count);
    tidy(id);
  }
}

MountResult<std::vector<ListedName>> OpenSet::list(uint32_t folder) {
  const MutexLock lock(mutex_);
  const Entry* const parent = entry(folder);
  if (parent == nullptr) return Errno{ESTALE};
  std::vector<ListedName> names;
  names.reserve(parent->children.size());
  for (const auto& [name, id] : parent->children) names.push_back({name, inode_of(realm_, id), entries_.at(id).type});
  return names;
}

MountResult<std::string> OpenSet::read_link(uint32_t id) {
  const MutexLock lock(mutex_);
  const Entry* const link = entry(id);
  if (link == nullptr || !link->linked) return Errno{ESTALE};
  char target[kPathBytesMax + 1];
  const ssize_t bytes = ::readlinkat(files_.get(), path_of(id).c_str(), target, sizeof target);
  if (bytes < 0) return Errno{errno};
  return std::string(target, static_cast<size_t>(bytes));
}

Errno OpenSet::may_change() const { return {stage_ == Stage::open ? 0 : EBUSY}; }

MountResult<std::string> OpenSet::place_for(uint32_t folder, const std::string& name) {
  MOUNT_TRY(may_change());
  const Entry* const parent = entry(folder);
  if (parent == nullptr || !parent->linked) return Errno{ENOENT};
  if (parent->type != S_IFDIR) return Errno{ENOTDIR};
  if (name.size() > kNameBytesMax) return Errno{ENAMETOOLONG};
  std::string path = folder == kTop ? name : path_of(folder) + "/" + name;
  if (path.size() > kPathBytesMax) return Errno{ENAMETOOLONG};
  return path;
}

uint32_t OpenSet::add(uint32_t folder, const std::string& name, uint32_t type, uint64_t spool_inode) {
  const uint32_t id = next_id_++;
  Entry& made = entries_[id];
  made.parent = folder;
  made.name = name;
  made.type = type;
  made.spool_inode = spool_inode;
  Entry& parent = entries_.at(folder);
  parent.children.emplace(name, id);
  parent.names_unsynced = true;
  return id;
}

void OpenSet::unlink_entry(uint32_t id) {
  Entry& gone = entries_.at(id);
  Entry& parent = entries_.at(gone.parent);
  parent.children.erase(gone.name);
  parent.names_unsynced = true;
  gone.linked = false;
  tidy(id);
}

void OpenSet::tidy(uint32_t id) {
  const Entry& entry = entries_.at(id);
  if (!entry.linked && entry.known == 0 && entry.files.empty()) entries_.erase(id);
}

bool OpenSet::may_write(uint32_t id) {
  if (options_.reopen) return true;
  // If all of its writers have closed it, it may be that the kernel is about to say so.
  released_.wait_for(mutex_, Seconds(kReopenSeconds), [&]() VARVE_REQUIRES(mutex_) {
    const Entry* const file = entry(id);
    return file == nullptr || file->writers == 0 ||
           std::any_of(file->files.begin(), file->files.end(),
                       [](const SpoolFile* open) { return open->writes() && !open->is_flushed(); });
  });
  const Entry* const file = entry(id);
  return file != nullptr && (!file->closed || file->writers > 0);
}

MountResult<std::unique_ptr<OpenFile>> OpenSet::open(uint32_t id, int flags) {
  MutexLock lock(mutex_);
  const Entry* file = entry(id);
  if (file == nullptr || !file->linked) return Errno{ESTALE};
  if (file->type == S_IFDIR) return Errno{EISDIR};
  if (file->type != S_IFREG) return Errno{ELOOP};
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (writes) {
    MOUNT_TRY(may_change());
    if (!may_write(id)) return Errno{EPERM};
    MOUNT_TRY(may_change());
    file = entry(id);
    if (file == nullptr || !file->linked) return Errno{ESTALE};
  }
  return open_path(id, path_of(id), flags & ~(O_CREAT | O_EXCL), 0, writes);
}

MountResult<std::unique_ptr<OpenFile>> OpenSet::open_path(uint32_t id, const std::string& path, int flags,
                                                          uint32_t mode, bool writes) {
  Entry& file = entries_.at(id);
  // Noted before the file can be changed.
  if (writes && file.writers == 0) {
    if (const Status noted = journal_->begin(file.spool_inode); !noted.ok()) return errno_of(noted);
  }
  UniqueFd descriptor(::openat(files_.get(), path.c_str(), (flags & kOpenFlags) | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!descriptor.valid()) {
    const int why = errno;
    if (writes && file.writers == 0) journal_->end(file.spool_inode);
    return Errno{why};
  }
  auto opened = std::make_unique<SpoolFile>(shared_from_this(), id, std::move(descriptor), writes);
  file.files.push_back(opened.get());
  if (writes) {
    ++file.writers;
    note_change();
  }
  return std::unique_ptr<OpenFile>(std::move(opened));
}

MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> OpenSet::create(uint32_t folder, const std::string& name,
                                                                            int flags, uint32_t mode) {
  MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  if (const auto there = entries_.at(folder).children.find(name); there != entries_.at(folder).children.end()) {
    const uint32_t id = there->second;
    if ((flags & O_EXCL) != 0) return Errno{EEXIST};
    lock.unlock();
    MOUNT_ASSIGN(std::unique_ptr<OpenFile> opened, open(id, flags));
    MOUNT_ASSIGN(const NodeView seen, find(folder, name));
    return std::make_pair(seen, std::move(opened));
  }
  UniqueFd descriptor(
      ::openat(files_.get(), path.c_str(), (flags & O_ACCMODE) | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!descriptor.valid()) return Errno{errno};
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return Errno{errno};
  // The program's own umask is in it already; that of this process is for what is the store's.
  if ((status.st_mode & kModeBits) != mode && ::fchmod(descriptor.get(), mode) != 0) return Errno{errno};
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (writes) {
    if (const Status noted = journal_->begin(status.st_ino); !noted.ok()) {
      ::unlinkat(files_.get(), path.c_str(), 0);
      return errno_of(noted);
    }
  }
  const uint32_t id = add(folder, name, S_IFREG, status.st_ino);
  auto opened = std::make_unique<SpoolFile>(shared_from_this(), id, std::move(descriptor), writes);
  Entry& file = entries_.at(id);
  file.files.push_back(opened.get());
  file.writers = writes ? 1 : 0;
  note_change();
  MountResult<NodeView> seen = view(id, true);
  lock.unlock();  // a file that is given up takes the lock
  if (!seen.ok()) return seen.error();
  return std::make_pair(*seen, std::unique_ptr<OpenFile>(std::move(opened)));
}

void OpenSet::released(SpoolFile& file) {
  const MutexLock lock(mutex_);
  Entry& entry = entries_.at(file.id());
  entry.files.erase(std::find(entry.files.begin(), entry.files.end(), &file));
  if (file.writes() && --entry.writers == 0) {
    struct stat status {};
    entry.closed = ::fstat(file.descriptor(), &status) != 0 || status.st_size > 0;
    journal_->end(entry.spool_inode);
    note_change();
  }
  tidy(file.id());
  released_.notify_all();
}

MountResult<NodeView> OpenSet::make_folder(uint32_t folder, const std::string& name, uint32_t mode) {
  const MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  if (::mkdirat(files_.get(), path.c_str(), mode) != 0) return Errno{errno};
  if (::fchmodat(files_.get(), path.c_str(), mode, 0) != 0) return Errno{errno};
  note_change();
  return view(add(folder, name, S_IFDIR, 0), true);
}

MountResult<NodeView> OpenSet::make_link(uint32_t folder, const std::string& name, const std::string& target) {
  const MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  if (::symlinkat(target.c_str(), files_.get(), path.c_str()) != 0) return Errno{errno};
  note_change();
  return view(add(folder, name, S_IFLNK, 0), true);
}

Errno OpenSet::remove(uint32_t folder, const std::string& name) {
  const MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  const auto child = entries_.at(folder).children.find(name);
  if (child == entries_.at(folder).children.end()) return {ENOENT};
  if (entries_.at(child->second).type == S_IFDIR) return {EISDIR};
  if (::unlinkat(files_.get(), path.c_str(), 0) != 0) return {errno};
  unlink_entry(child->second);
  note_change();
  return {};
}

Errno OpenSet::remove_folder(uint32_t folder, const std::string& name) {
  const MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  const auto child = entries_.at(folder).children.find(name);
  if (child == entries_.at(folder).children.end()) return {ENOENT};
  if (::unlinkat(files_.get(), path.c_str(), AT_REMOVEDIR) != 0) return {errno};
  unlink_entry(child->second);
  note_change();
  return {};
}

Errno OpenSet::rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
                      unsigned flags) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) return {EINVAL};
  const MutexLock lock(mutex_);
  MOUNT_ASSIGN(const std::string from, place_for(folder, name));
  MOUNT_ASSIGN(const std::string to, place_for(new_folder, new_name));
  const auto child = entries_.at(folder).children.find(name);
  if (child == entries_.at(folder).children.end()) return {ENOENT};
  const uint32_t id = child->second;
  if (::renameat2(files_.get(), from.c_str(), files_.get(), to.c_str(), flags) != 0) return {errno};
  Entry& target = entries_.at(new_folder);
  if (const auto replaced = target.children.find(new_name); replaced != target.children.end() && replaced->second != id)
    unlink_entry(replaced->second);
  Entry& moved = entries_.at(id);
  Entry& source = entries_.at(moved.parent);
  source.children.erase(moved.name);
  source.names_unsynced = true;
  moved.parent = new_folder;
  moved.name = new_name;
  target.children[new_name] = id;
  target.names_unsynced = true;
  note_change();
  return {};
}

Errno OpenSet::truncate_closed(uint32_t id, uint64_t bytes) {
  UniqueFd descriptor(::openat(files_.get(), path_of(id).c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!descriptor.valid()) return {errno};
  if (::ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) return {errno};
  Entry& file = entries_.at(id);
  if (file.writers == 0) file.closed = bytes > 0;
  return {};
}

MountResult<NodeView> OpenSet::change(uint32_t id, const AttributeChange& change, OpenFile* file) {
  MutexLock lock(mutex_);
  if (entry(id) == nullptr) return Errno{ESTALE};
  MOUNT_TRY(may_change());
  if (change.bytes) {
    auto* const spool_file = dynamic_cast<SpoolFile*>(file);
    if (spool_file != nullptr) {
      MOUNT_TRY(spool_file->begin_write());
      if (::ftruncate(spool_file->descriptor(), static_cast<off_t>(*change.bytes)) != 0) return Errno{errno};
    } else {
      if (!may_write(id)) return Errno{EPERM};
      MOUNT_TRY(may_change());
      if (!entry(id)->linked) return Errno{ESTALE};
      MOUNT_TRY(truncate_closed(id, *change.bytes));
    }
  }
  const Entry& entry = entries_.at(id);
  // A name that was removed is reached through a file that is open, everything else by its path.
  std::string path = id == kTop ? "." : path_of(id);
  int at = files_.get();
  if (!entry.linked) {
    if (entry.files.empty()) return Errno{ESTALE};
    path = "/proc/self/fd/" + std::to_string(entry.files.front()->descriptor());
    at = AT_FDCWD;
  }
  const int follow = entry.linked ? AT_SYMLINK_NOFOLLOW : 0;
  if (change.owner || change.group) {
    const uid_t owner = change.owner.value_or(static_cast<uid_t>(-1));
    const gid_t group = change.group.value_or(static_cast<gid_t>(-1));
    if (::fchownat(at, path.c_str(), owner, group, follow) != 0) return Errno{errno};
  }
  if (change.mode) {
    if (entry.type == S_IFLNK) return Errno{EOPNOTSUPP};
    if (::fchmodat(at, path.c_str(), *change.mode, 0) != 0) return Errno{errno};
  }
  if (change.accessed || change.modified) {
    const timespec untouched{0, UTIME_OMIT};
    const timespec times[2] = {change.accessed.value_or(untouched), change.modified.value_or(untouched)};
    if (::utimensat(at, path.c_str(), times, follow) != 0) return Errno{errno};
  }
  note_change();
  return view(id, false);
}

std::vector<std::pair<uint32_t, UniqueFd>> OpenSet::unsynced_folders(uint32_t id) {
  std::vector<std::pair<uint32_t, UniqueFd>> folders;
  for (;; id = entries_.at(id).parent) {
    Entry& folder = entries_.at(id);
    if (folder.type == S_IFDIR && folder.names_unsynced) {
      const std::string path = id == kTop ? "." : path_of(id);
      UniqueFd descriptor(::openat(files_.get(), path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      folder.names_unsynced = false;
      folders.emplace_back(id, std::move(descriptor));
    }
    if (id == kTop) return folders;
  }
}

Errno OpenSet::sync_names(uint32_t id) {
  const MutexLock syncing(syncing_);
  std::vector<std::pair<uint32_t, UniqueFd>> folders;
  {
    const MutexLock lock(mutex_);
    const Entry* const named = entry(id);
    if (named == nullptr || !named->linked) return {};
    for (uint32_t above = id;; above = entries_.at(above).parent) {
      if (entries_.at(above).names_lost) return {EIO};
      if (above == kTop) break;
    }
    folders = unsynced_folders(id);
  }
  Errno first;
  for (const auto& [folder, descriptor] : folders) {
    if (descriptor.valid() && ::fsync(descriptor.get()) == 0) continue;
    if (first.ok()) first = {descriptor.valid() ? errno : EIO};
    const MutexLock lock(mutex_);
    Entry* const unsynced = entry(folder);
    if (unsynced == nullptr) continue;
    unsynced->names_unsynced = true;
    unsynced->names_lost = descriptor.valid();
  }
  return first;
}

void OpenSet::note_lost(uint32_t id) {
  const MutexLock lock(mutex_);
  if (Entry* const file = entry(id)) file->lost = true;
}

bool OpenSet::is_lost(uint32_t id) {
  const MutexLock lock(mutex_);
  const Entry* const file = entry(id);
  return file != nullptr && file->lost;
}

Errno OpenSet::sync_folder(uint32_t id) { return sync_names(id); }

}  // namespace varve
