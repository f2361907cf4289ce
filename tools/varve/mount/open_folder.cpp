#include "mount/open_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace varve {

namespace {
using Seconds = std::chrono::duration<double>;

/// Whether some program has the file open for writing, and not only the kernel still.
bool is_being_written(const OpenNode& file) {
  return std::any_of(file.files.begin(), file.files.end(),
                     [](const SpoolFile* open) { return open->writes() && !open->is_flushed(); });
}
}  // namespace

OpenFolder::Tally OpenFolder::tally() const {
  const MutexLock lock(mutex_);
  Tally tally;
  for (const auto& [id, node] : tree_.names().nodes()) {
    if (!node.linked || node.type != S_IFREG) continue;
    ++tally.files;
    tally.writers += node.writers > 0 ? 1 : 0;
    tally.cut_short += node.cut_short ? 1 : 0;
    if (const MountResult<NodeView> view = tree_.view(id); view.ok())
      tally.bytes += static_cast<uint64_t>(view->status.st_size);
  }
  tally.quiet_seconds = changed_.quiet_seconds();
  return tally;
}

Errno OpenFolder::freeze(double quiet_seconds) {
  const MutexLock lock(mutex_);
  if (frozen_) return {EBUSY};
  // A program's close() returns before the kernel tells us that the file is no longer used.
  const bool settled = released_.wait_for(mutex_, Seconds(options_.release_seconds), [this]() VARVE_REQUIRES(mutex_) {
    for (const auto& [id, node] : tree_.names().nodes()) {
      if (!node.linked || node.writers == 0) continue;
      return is_being_written(node);  // if somebody is at it, it is of no use to wait
    }
    return true;
  });
  if (!settled || frozen_) return {EBUSY};
  for (const auto& [id, node] : tree_.names().nodes()) {
    if (node.linked && node.writers > 0) return {EBUSY};
    if (node.linked && node.lost) return {EIO};
  }
  if (changed_.quiet_seconds() < quiet_seconds) return {EBUSY};
  frozen_ = true;
  return {};
}

std::optional<std::string> OpenFolder::lost_file() const {
  const MutexLock lock(mutex_);
  for (const auto& [id, node] : tree_.names().nodes()) {
    if (node.linked && node.lost) return tree_.names().path_of(id);
  }
  return std::nullopt;
}

bool OpenFolder::has_lost(uint32_t id) const {
  const MutexLock lock(mutex_);
  return tree_.names().at(id).lost;
}

void OpenFolder::note_lost(uint32_t id) {
  const MutexLock lock(mutex_);
  tree_.note_lost(id);
}

Status OpenFolder::check_written_back() {
  std::vector<std::pair<uint32_t, std::string>> files;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, node] : tree_.names().nodes()) {
      if (node.linked && node.type == S_IFREG) files.emplace_back(id, tree_.names().path_of(id));
    }
  }
  Status first;
  for (const auto& [id, path] : files) {
    UniqueFd file;
    {
      const MutexLock lock(mutex_);
      MountResult<UniqueFd> opened = tree_.open_to_look(id);
      if (!opened.ok()) return Status::from_errno(opened.error().number, "open", path);
      file = *std::move(opened);
    }
    // An error that nobody has seen is told to the next who asks.
    if (::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE) == 0 || errno == ENOSYS) continue;
    const Status why = Status::from_errno(errno, "write back", path);
    if (first.ok())
      first = Status(why.code(), std::string(why.message()), path, "free some space, remove it, and write it again");
    note_lost(id);
  }
  // Perhaps somebody else was told, and the kernel says it once.
  const std::optional<std::string> lost = first.ok() ? lost_file() : std::nullopt;
  return lost ? Status::io_error("it has lost what was written to it", *lost) : first;
}

void OpenFolder::thaw() {
  const MutexLock lock(mutex_);
  frozen_ = false;
  attempted_ = true;
}

Errno OpenFolder::prepare_rename() {
  const MutexLock lock(mutex_);
  return begin_change();
}

Errno OpenFolder::begin_change() {
  if (frozen_) return {EBUSY};
  if (!attempted_) return {};
  if (const Status forgotten = forget_attempt_(); !forgotten.ok()) return errno_of(forgotten);
  attempted_ = false;
  return {};
}

MountResult<NodeView> OpenFolder::look(uint32_t id) {
  const MutexLock lock(mutex_);
  if (tree_.names().find(id) == nullptr) return Errno{ESTALE};
  return tree_.view(id);
}

MountResult<NodeView> OpenFolder::find(uint32_t folder, const std::string& name) {
  const MutexLock lock(mutex_);
  return tree_.find(folder, name);
}

void OpenFolder::forget(uint32_t id, uint64_t count) {
  const MutexLock lock(mutex_);
  if (OpenNode* const node = tree_.names().find(id)) {
    node->known -= std::min(node->known, count);
    tree_.names().tidy(id);
  }
}

MountResult<std::vector<ListedName>> OpenFolder::list(uint32_t folder) {
  const MutexLock lock(mutex_);
  return tree_.list(folder);
}

MountResult<std::string> OpenFolder::read_link(uint32_t id) {
  const MutexLock lock(mutex_);
  return tree_.read_link(id);
}

MountResult<std::unique_ptr<OpenFile>> OpenFolder::open(uint32_t id, int flags) {
  const MutexLock lock(mutex_);
  const OpenNode* const there = tree_.names().find(id);
  if (there == nullptr || !there->linked) return Errno{ESTALE};
  if (there->type == S_IFDIR) return Errno{EISDIR};
  if (there->type != S_IFREG) return Errno{ELOOP};
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  if (writes) MOUNT_TRY(begin_change());
  MOUNT_ASSIGN(UniqueFd descriptor, tree_.open_file(id, flags, writes));
  OpenNode& file = tree_.names().at(id);
  auto opened = std::make_unique<SpoolFile>(shared_from_this(), id, std::move(descriptor), writes);
  file.files.push_back(opened.get());
  if (writes) {
    ++file.writers;
    changed_.note();
  }
  return std::unique_ptr<OpenFile>(std::move(opened));
}

MountResult<std::pair<NodeView, std::unique_ptr<OpenFile>>> OpenFolder::create(uint32_t folder, const std::string& name,
                                                                               int flags, uint32_t mode) {
  MutexLock lock(mutex_);
  MOUNT_TRY(begin_change());
  MOUNT_TRY(tree_.place_for(folder, name).error());
  const std::map<std::string, uint32_t>& children = tree_.names().at(folder).children;
  if (const auto there = children.find(name); there != children.end()) {
    const uint32_t id = there->second;
    if ((flags & O_EXCL) != 0) return Errno{EEXIST};
    lock.unlock();
    MOUNT_ASSIGN(std::unique_ptr<OpenFile> opened, open(id, flags));
    MOUNT_ASSIGN(const NodeView seen, find(folder, name));
    return std::make_pair(seen, std::move(opened));
  }
  MOUNT_ASSIGN(auto made, tree_.create(folder, name, flags, mode));
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  OpenNode& file = tree_.names().at(made.first);
  auto opened = std::make_unique<SpoolFile>(shared_from_this(), made.first, std::move(made.second), writes);
  file.files.push_back(opened.get());
  file.writers = writes ? 1 : 0;
  changed_.note();
  MountResult<NodeView> seen = tree_.find(folder, name);
  lock.unlock();  // a file that is given up takes the lock
  if (!seen.ok()) return seen.error();
  return std::make_pair(*seen, std::unique_ptr<OpenFile>(std::move(opened)));
}

void OpenFolder::released(SpoolFile& file) {
  const MutexLock lock(mutex_);
  OpenNode& node = tree_.names().at(file.id());
  node.files.erase(std::find(node.files.begin(), node.files.end(), &file));
  node.cut_short = node.cut_short || file.has_failed_write();
  if (file.writes() && --node.writers == 0) {
    // Else the next mount takes it for one that was being written, whatever else was noted.
    if (!file.is_cut_off() && !(node.linked && node.cut_short)) tree_.end_writing(file.id());
    changed_.note();
  }
  tree_.names().tidy(file.id());
  released_.notify_all();
}

MountResult<NodeView> OpenFolder::make_folder(uint32_t folder, const std::string& name, uint32_t mode) {
  const MutexLock lock(mutex_);
  MOUNT_TRY(begin_change());
  MOUNT_ASSIGN(const NodeView made, tree_.make_folder(folder, name, mode));
  changed_.note();
  return made;
}

MountResult<NodeView> OpenFolder::make_link(uint32_t folder, const std::string& name, const std::string& target) {
  const MutexLock lock(mutex_);
  MOUNT_TRY(begin_change());
  MOUNT_ASSIGN(const NodeView made, tree_.make_link(folder, name, target));
  changed_.note();
  return made;
}

Errno OpenFolder::remove(uint32_t folder, const std::string& name, int flags) {
  const MutexLock lock(mutex_);
  MOUNT_TRY(begin_change());
  MOUNT_TRY(tree_.remove(folder, name, flags));
  changed_.note();
  return {};
}

Errno OpenFolder::rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
                         unsigned flags) {
  if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) return {EINVAL};
  const MutexLock lock(mutex_);
  MOUNT_TRY(begin_change());
  MOUNT_TRY(tree_.rename(folder, name, new_folder, new_name, flags));
  changed_.note();
  return {};
}

MountResult<NodeView> OpenFolder::change(uint32_t id, const AttributeChange& change, OpenFile* file) {
  const MutexLock lock(mutex_);
  if (tree_.names().find(id) == nullptr) return Errno{ESTALE};
  MOUNT_TRY(begin_change());
  if (change.bytes) {
    if (auto* const open = dynamic_cast<SpoolFile*>(file)) {
      MOUNT_TRY(open->begin_write());
      if (::ftruncate(open->descriptor(), static_cast<off_t>(*change.bytes)) != 0) return Errno{errno};
    } else {
      if (!tree_.names().at(id).linked) return Errno{ESTALE};
      MOUNT_TRY(tree_.truncate(id, *change.bytes));
    }
  }
  MOUNT_TRY(tree_.change_attributes(id, change));
  changed_.note();
  return tree_.view(id);
}

Errno OpenFolder::sync_folder(uint32_t id) {
  const MutexLock syncing(syncing_);
  std::vector<std::pair<uint32_t, UniqueFd>> folders;
  {
    const MutexLock lock(mutex_);
    MOUNT_ASSIGN(folders, tree_.take_unsynced_folders(id));
  }
  Errno first;
  for (const auto& [folder, descriptor] : folders) {
    if (descriptor.valid() && ::fsync(descriptor.get()) == 0) continue;
    if (first.ok()) first = {descriptor.valid() ? errno : EIO};
    const MutexLock lock(mutex_);
    OpenNode* const unsynced = tree_.names().find(folder);
    if (unsynced == nullptr) continue;
    unsynced->names_unsynced = true;
    unsynced->names_lost = descriptor.valid();
  }
  return first;
}

MountResult<size_t> SpoolFile::read(uint64_t offset, MutableByteSpan into) {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(descriptor_.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno{errno};
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

MountResult<uint64_t> SpoolFile::seek(uint64_t offset, int whence) {
  const off_t found = ::lseek(descriptor_.get(), static_cast<off_t>(offset), whence);
  if (found < 0) return Errno{errno};
  return static_cast<uint64_t>(found);
}

Errno SpoolFile::begin_write() {
  if (!writes_) return {EBADF};
  flushed_.store(false, std::memory_order_relaxed);
  folder_->changed_.note();
  return {};
}

void SpoolFile::write_failed(uint64_t offset, bool in_memory) {
  if (in_memory) return folder_->note_lost(id_);
  uint64_t missing = kNothing;
  // Who tries again at the same place fails at that.
  if (!missing_from_.compare_exchange_strong(missing, offset) && missing != offset) missing_from_ = kSeveral;
}

void SpoolFile::note_written(uint64_t offset, uint64_t bytes) {
  uint64_t missing = missing_from_.load();
  if (missing >= kSeveral || missing < offset || missing - offset >= bytes) return;
  missing_from_.compare_exchange_strong(missing, kNothing);
}

Errno SpoolFile::allocate(int mode, uint64_t offset, uint64_t bytes) {
  MOUNT_TRY(begin_write());
  const int failed = ::fallocate(descriptor_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return {failed == 0 ? 0 : errno};
}

Errno SpoolFile::sync(bool data_only) {
  if (folder_->has_lost(id_)) return {EIO};
  if ((data_only ? ::fdatasync(descriptor_.get()) : ::fsync(descriptor_.get())) != 0) {
    const Errno why{errno};
    folder_->note_lost(id_);  // a second sync would prove nothing, and is not made
    return why;
  }
  return folder_->sync_folder(id_);
}

}  // namespace varve
