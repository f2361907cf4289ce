#include "mount/spool_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "mount/open_folder.h"

namespace varve {

namespace {
constexpr size_t kNameBytesMax = 255;
constexpr uint32_t kModeBits = 07777;
/// What the spool is asked for; the rest of a program's flags is the kernel's business, or would spoil writing at the
/// places that it says (O_APPEND).
constexpr int kSpoolFlags = O_ACCMODE | O_TRUNC;
constexpr int kOwnFlags = O_NOFOLLOW | O_CLOEXEC;
}  // namespace

const OpenNode* OpenNames::find(uint32_t id) const {
  const auto found = nodes_.find(id);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::string OpenNames::path_of(uint32_t id) const {
  std::string path;
  while (id != MountedFolder::kTop) {
    const OpenNode& node = nodes_.at(id);
    path = path.empty() ? node.name : join_path(node.name, path);
    id = node.parent;
  }
  return path;
}

uint32_t OpenNames::add(uint32_t folder, const std::string& name, uint32_t type, uint64_t spool_inode) {
  const uint32_t id = next_id_++;
  OpenNode& made = nodes_[id];
  made.parent = folder;
  made.name = name;
  made.type = type;
  made.spool_inode = spool_inode;
  OpenNode& parent = nodes_.at(folder);
  parent.children.emplace(name, id);
  parent.names_unsynced = true;
  return id;
}

void OpenNames::move(uint32_t id, uint32_t new_folder, const std::string& new_name) {
  OpenNode& target = nodes_.at(new_folder);
  if (const auto replaced = target.children.find(new_name); replaced != target.children.end() && replaced->second != id)
    unlink(replaced->second);
  OpenNode& moved = nodes_.at(id);
  OpenNode& source = nodes_.at(moved.parent);
  source.children.erase(moved.name);
  source.names_unsynced = true;
  moved.parent = new_folder;
  moved.name = new_name;
  target.children[new_name] = id;
  target.names_unsynced = true;
}

void OpenNames::unlink(uint32_t id) {
  OpenNode& gone = nodes_.at(id);
  OpenNode& parent = nodes_.at(gone.parent);
  parent.children.erase(gone.name);
  parent.names_unsynced = true;
  gone.linked = false;
  tidy(id);
}

void OpenNames::tidy(uint32_t id) {
  const OpenNode& node = nodes_.at(id);
  if (!node.linked && node.known == 0 && node.files.empty()) nodes_.erase(id);
}

namespace {
/// Takes in the names in a folder and below. Returns whether any of its files was left open.
Result<bool> load_names(OpenNames& names, uint32_t id, const std::string& path, const WriterJournal& journal) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return Status::from_errno(errno, "list folder", path);
  std::vector<std::pair<uint32_t, std::string>> below;
  bool any_left_open = false;
  errno = 0;
  for (const dirent* found = ::readdir(folder.get()); found != nullptr; found = ::readdir(folder.get())) {
    const std::string name = found->d_name;
    if (name == "." || name == "..") continue;
    struct stat status {};
    if (::fstatat(::dirfd(folder.get()), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return Status::from_errno(errno, "look at", join_path(path, name));
    const uint32_t child = names.add(id, name, status.st_mode & S_IFMT, status.st_ino);
    if (S_ISDIR(status.st_mode)) below.emplace_back(child, join_path(path, name));
    if (S_ISREG(status.st_mode)) {
      names.at(child).lost = journal.had_lost(status.st_ino);
      any_left_open = any_left_open || journal.left_open().contains(status.st_ino);
    }
    errno = 0;
  }
  if (errno != 0) return Status::from_errno(errno, "list folder", path);
  for (const auto& [child, child_path] : below) {
    VARVE_ASSIGN(const bool any_below, load_names(names, child, child_path, journal));
    any_left_open = any_left_open || any_below;
  }
  return any_left_open;
}
}  // namespace

Result<SpoolTree> SpoolTree::load(uint32_t realm, const SpooledSet& set) {
  const std::string files = set.files_path();
  UniqueFd folder(::open(files.c_str(), O_RDONLY | O_DIRECTORY | kOwnFlags));
  if (!folder.valid()) return Status::from_errno(errno, "open folder", files);
  VARVE_ASSIGN(WriterJournal journal, WriterJournal::open(set.writers_path()));
  SpoolTree tree(realm, std::move(folder), std::move(journal));
  VARVE_ASSIGN(tree.was_left_open_, load_names(tree.names_, MountedFolder::kTop, files, tree.journal_));
  tree.was_left_open_ = tree.was_left_open_ || tree.journal_.may_lack_lines();
  return tree;
}

MountResult<NodeView> SpoolTree::view(uint32_t id) const {
  const OpenNode& node = names_.at(id);
  NodeView view;
  int failed = 0;
  if (!node.files.empty()) {
    failed = ::fstat(node.files.front()->descriptor(), &view.status);
  } else if (id == MountedFolder::kTop) {
    failed = ::fstat(folder_.get(), &view.status);
  } else if (node.linked) {
    failed = ::fstatat(folder_.get(), names_.path_of(id).c_str(), &view.status, AT_SYMLINK_NOFOLLOW);
  } else {
    return Errno{ESTALE};
  }
  if (failed != 0) return Errno{errno};
  view.status.st_ino = inode_of(realm_, id);
  return view;
}

MountResult<NodeView> SpoolTree::found(uint32_t id) {
  MOUNT_ASSIGN(const NodeView seen, view(id));
  ++names_.at(id).known;
  return seen;
}

MountResult<NodeView> SpoolTree::find(uint32_t folder, const std::string& name) {
  const OpenNode* const parent = names_.find(folder);
  if (parent == nullptr) return Errno{ESTALE};
  if (name.size() > kNameBytesMax) return Errno{ENAMETOOLONG};
  const auto child = parent->children.find(name);
  if (child == parent->children.end()) return Errno{ENOENT};
  return found(child->second);
}

MountResult<std::vector<ListedName>> SpoolTree::list(uint32_t folder) const {
  const OpenNode* const parent = names_.find(folder);
  if (parent == nullptr) return Errno{ESTALE};
  std::vector<ListedName> listed;
  listed.reserve(parent->children.size());
  for (const auto& [name, id] : parent->children) listed.push_back({name, inode_of(realm_, id), names_.at(id).type});
  return listed;
}

MountResult<std::string> SpoolTree::read_link(uint32_t id) const {
  const OpenNode* const link = names_.find(id);
  if (link == nullptr || !link->linked) return Errno{ESTALE};
  char target[kPathBytesMax + 1];
  const ssize_t bytes = ::readlinkat(folder_.get(), names_.path_of(id).c_str(), target, sizeof target);
  if (bytes < 0) return Errno{errno};
  return std::string(target, static_cast<size_t>(bytes));
}

MountResult<std::string> SpoolTree::place_for(uint32_t folder, const std::string& name) const {
  const OpenNode* const parent = names_.find(folder);
  if (parent == nullptr || !parent->linked) return Errno{ENOENT};
  if (parent->type != S_IFDIR) return Errno{ENOTDIR};
  if (name.size() > kNameBytesMax) return Errno{ENAMETOOLONG};
  std::string path = folder == MountedFolder::kTop ? name : names_.path_of(folder) + "/" + name;
  if (path.size() > kPathBytesMax) return Errno{ENAMETOOLONG};
  return path;
}

MountResult<UniqueFd> SpoolTree::open_file(uint32_t id, int flags, bool writes) {
  OpenNode& node = names_.at(id);
  const bool is_first_writer = writes && node.writers == 0 && !node.cut_short;  // else it is noted still
  // Noted before the file can be changed.
  if (is_first_writer) {
    if (const Status noted = journal_.begin(node.spool_inode); !noted.ok()) return errno_of(noted);
  }
  UniqueFd file(::openat(folder_.get(), names_.path_of(id).c_str(), (flags & kSpoolFlags) | kOwnFlags));
  if (file.valid()) {
    if (writes && (flags & O_TRUNC) != 0) node.cut_short = false;
    return file;
  }
  const Errno why{errno};
  if (is_first_writer) journal_.end(node.spool_inode);
  return why;
}

MountResult<std::pair<uint32_t, UniqueFd>> SpoolTree::create(uint32_t folder, const std::string& name, int flags,
                                                             uint32_t mode) {
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  UniqueFd file(::openat(folder_.get(), path.c_str(), (flags & O_ACCMODE) | O_CREAT | O_EXCL | kOwnFlags, mode));
  if (!file.valid()) return Errno{errno};
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Errno{errno};
  // The program's own umask is in it already; that of this process is for what is the store's.
  if ((status.st_mode & kModeBits) != mode && ::fchmod(file.get(), mode) != 0) return Errno{errno};
  if ((flags & O_ACCMODE) != O_RDONLY) {
    if (const Status noted = journal_.begin(status.st_ino); !noted.ok()) {
      ::unlinkat(folder_.get(), path.c_str(), 0);
      return errno_of(noted);
    }
  }
  return std::make_pair(names_.add(folder, name, S_IFREG, status.st_ino), std::move(file));
}

void SpoolTree::end_writing(uint32_t id) { journal_.end(names_.at(id).spool_inode); }

void SpoolTree::note_lost(uint32_t id) {
  OpenNode& node = names_.at(id);
  node.lost = true;
  if (node.linked) journal_.lose(node.spool_inode);
}

void SpoolTree::note_gone(uint32_t id) {
  if (names_.at(id).cut_short && names_.at(id).writers == 0) journal_.end(names_.at(id).spool_inode);
  if (!names_.at(id).lost) return;
  const auto& nodes = names_.nodes();
  const bool was_last = std::none_of(nodes.begin(), nodes.end(), [id](const auto& node) {
    return node.first != id && node.second.linked && node.second.lost;
  });
  journal_.forget_lost(names_.at(id).spool_inode, was_last);
}

MountResult<UniqueFd> SpoolTree::open_to_look(uint32_t id) const {
  UniqueFd file(::openat(folder_.get(), names_.path_of(id).c_str(), O_RDONLY | kOwnFlags));
  if (!file.valid()) return Errno{errno};
  return file;
}

MountResult<NodeView> SpoolTree::make_folder(uint32_t folder, const std::string& name, uint32_t mode) {
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  if (::mkdirat(folder_.get(), path.c_str(), mode) != 0) return Errno{errno};
  if (::fchmodat(folder_.get(), path.c_str(), mode, 0) != 0) return Errno{errno};
  return found(names_.add(folder, name, S_IFDIR, 0));
}

MountResult<NodeView> SpoolTree::make_link(uint32_t folder, const std::string& name, const std::string& target) {
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  if (::symlinkat(target.c_str(), folder_.get(), path.c_str()) != 0) return Errno{errno};
  return found(names_.add(folder, name, S_IFLNK, 0));
}

Errno SpoolTree::remove(uint32_t folder, const std::string& name, int flags) {
  MOUNT_ASSIGN(const std::string path, place_for(folder, name));
  const std::map<std::string, uint32_t>& children = names_.at(folder).children;
  const auto child = children.find(name);
  if (child == children.end()) return {ENOENT};
  if (flags != AT_REMOVEDIR && names_.at(child->second).type == S_IFDIR) return {EISDIR};
  if (::unlinkat(folder_.get(), path.c_str(), flags) != 0) return {errno};
  note_gone(child->second);
  names_.unlink(child->second);
  return {};
}

Errno SpoolTree::rename(uint32_t folder, const std::string& name, uint32_t new_folder, const std::string& new_name,
                        unsigned flags) {
  MOUNT_ASSIGN(const std::string from, place_for(folder, name));
  MOUNT_ASSIGN(const std::string to, place_for(new_folder, new_name));
  const std::map<std::string, uint32_t>& children = names_.at(folder).children;
  const auto child = children.find(name);
  if (child == children.end()) return {ENOENT};
  const std::map<std::string, uint32_t>& targets = names_.at(new_folder).children;
  const auto replaced = targets.find(new_name);
  if (::renameat2(folder_.get(), from.c_str(), folder_.get(), to.c_str(), flags) != 0) return {errno};
  if (replaced != targets.end() && replaced->second != child->second) note_gone(replaced->second);
  names_.move(child->second, new_folder, new_name);
  return {};
}

Errno SpoolTree::truncate(uint32_t id, uint64_t bytes) {
  const UniqueFd file(::openat(folder_.get(), names_.path_of(id).c_str(), O_WRONLY | kOwnFlags));
  if (!file.valid()) return {errno};
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return {errno};
  return {};
}

Errno SpoolTree::change_attributes(uint32_t id, const AttributeChange& change) const {
  const OpenNode& node = names_.at(id);
  // A name that was removed is reached through a file that is open, everything else by its path.
  std::string path = id == MountedFolder::kTop ? "." : names_.path_of(id);
  int at = folder_.get();
  if (!node.linked) {
    if (node.files.empty()) return {ESTALE};
    path = "/proc/self/fd/" + std::to_string(node.files.front()->descriptor());
    at = AT_FDCWD;
  }
  const int follow = node.linked ? AT_SYMLINK_NOFOLLOW : 0;
  if (change.owner || change.group) {
    const uid_t owner = change.owner.value_or(static_cast<uid_t>(-1));
    const gid_t group = change.group.value_or(static_cast<gid_t>(-1));
    if (::fchownat(at, path.c_str(), owner, group, follow) != 0) return {errno};
  }
  if (change.mode) {
    if (node.type == S_IFLNK) return {EOPNOTSUPP};
    if (::fchmodat(at, path.c_str(), *change.mode, 0) != 0) return {errno};
  }
  if (change.accessed || change.modified) {
    const timespec untouched{0, UTIME_OMIT};
    const timespec times[2] = {change.accessed.value_or(untouched), change.modified.value_or(untouched)};
    if (::utimensat(at, path.c_str(), times, follow) != 0) return {errno};
  }
  return {};
}

MountResult<std::vector<std::pair<uint32_t, UniqueFd>>> SpoolTree::take_unsynced_folders(uint32_t id) {
  std::vector<std::pair<uint32_t, UniqueFd>> folders;
  const OpenNode* const named = names_.find(id);
  if (named == nullptr || !named->linked) return folders;
  for (uint32_t above = id;; above = names_.at(above).parent) {
    if (names_.at(above).names_lost) return Errno{EIO};
    if (above == MountedFolder::kTop) break;
  }
  for (;; id = names_.at(id).parent) {
    OpenNode& folder = names_.at(id);
    if (folder.type == S_IFDIR && folder.names_unsynced) {
      const std::string path = id == MountedFolder::kTop ? "." : names_.path_of(id);
      UniqueFd descriptor(::openat(folder_.get(), path.c_str(), O_RDONLY | O_DIRECTORY | kOwnFlags));
      folder.names_unsynced = false;
      folders.emplace_back(id, std::move(descriptor));
    }
    if (id == MountedFolder::kTop) return folders;
  }
}

}  // namespace varve
