#include "serve/served_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/posix_file_system.h"

namespace varve {

namespace {
constexpr size_t kFilesMax = 2048;  // of one client
}

// A client keeps the numbers that an earlier run of the server has given it: by these, nobody may find a file of this
// run. Of 60 random bits, no two runs have numbers that are near to one another.
OpenFiles::OpenFiles(const UniqueId& server) : next_handle_(server.tag() >> 4) {}

void OpenFiles::begin_connection(const UniqueId& client) {
  const MutexLock lock(mutex_);
  ++clients_[client].connections;
}

void OpenFiles::end_connection(const UniqueId& client) {
  Client ended;  // closes its files after the lock
  const MutexLock lock(mutex_);
  const auto found = clients_.find(client);
  if (found == clients_.end() || --found->second.connections > 0) return;
  ended = std::move(found->second);
  clients_.erase(found);
}

Result<uint64_t> OpenFiles::add(const UniqueId& client, KeyShare& share, ServedFile file, const UniqueId* writer) {
  KeyShare::FilePlace place = share.take_file();
  if (!place) return Status::resource_limit("the clients with this key have too many files open together");
  const MutexLock lock(mutex_);
  Client& owner = clients_[client];
  if (owner.files.size() >= kFilesMax) return Status::resource_limit("this client has too many files open");
  const uint64_t handle = next_handle_++;
  owner.files.emplace(handle, std::make_shared<OpenFile>(std::move(file), std::move(place), writer != nullptr));
  if (writer != nullptr) owner.writers[*writer] = handle;
  return handle;
}

std::shared_ptr<OpenFiles::OpenFile> OpenFiles::find(const UniqueId& client, uint64_t handle) {
  const MutexLock lock(mutex_);
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return nullptr;
  const auto found = owner->second.files.find(handle);
  return found == owner->second.files.end() ? nullptr : found->second;
}

void OpenFiles::close(const UniqueId& client, uint64_t handle) {
  std::shared_ptr<OpenFile> closed;
  const MutexLock lock(mutex_);
  const auto owner = clients_.find(client);
  if (owner == clients_.end()) return;
  const auto found = owner->second.files.find(handle);
  if (found == owner->second.files.end()) return;
  closed = std::move(found->second);
  owner->second.files.erase(found);
  std::erase_if(owner->second.writers, [&](const auto& writer) { return writer.second == handle; });
}

void OpenFiles::take_over(const UniqueId& client, const UniqueId& writer) {
  std::shared_ptr<OpenFile> old;
  {
    const MutexLock lock(mutex_);
    const auto owner = clients_.find(client);
    if (owner == clients_.end()) return;
    const auto found = owner->second.writers.find(writer);
    if (found == owner->second.writers.end()) return;
    const auto file = owner->second.files.find(found->second);
    if (file != owner->second.files.end()) {
      old = std::move(file->second);
      owner->second.files.erase(file);
    }
    owner->second.writers.erase(found);
  }
  if (old) old->revoke();
}

std::vector<std::shared_ptr<OpenFiles::OpenFile>> OpenFiles::writers_of(const FileIdentity& file) {
  std::vector<std::shared_ptr<OpenFile>> writers;
  for (const auto& [id, client] : clients_) {
    for (const auto& [handle, open] : client.files) {
      const FileIdentity& identity = open->identity();
      if (open->written() && identity.device == file.device && identity.inode == file.inode) writers.push_back(open);
    }
  }
  return writers;
}

void OpenFiles::end_writing(const FileIdentity& file) {
  std::vector<std::shared_ptr<OpenFile>> writers;
  {
    const MutexLock lock(mutex_);
    writers = writers_of(file);
  }
  for (const auto& writer : writers) writer->revoke();
}

bool OpenFiles::is_being_written(const FileIdentity& file) {
  const MutexLock lock(mutex_);
  return !writers_of(file).empty();
}

namespace {
constexpr size_t kEntriesMax = 4'000'000;

int open_in(int folder, const char* path, int flags, unsigned mode, uint64_t resolve) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.mode = mode;
  how.resolve = resolve;
  long descriptor = 0;
  do {
    descriptor = ::syscall(SYS_openat2, folder, path, &how, sizeof how);
  } while (descriptor < 0 && (errno == EINTR || errno == EAGAIN));
  return static_cast<int>(descriptor);
}

Status failure(int error, std::string_view what) {
  // What RESOLVE_NO_SYMLINKS and RESOLVE_BENEATH refuse.
  if (error == ELOOP || error == EXDEV) return Status(StatusCode::permission_denied, "a symbolic link is not followed");
  return Status::from_errno(error, what, "");
}

Result<FoundFile> look(int descriptor, const char* name, int flags) {
  struct statx found {};
  if (::statx(descriptor, name, flags | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &found) != 0)
    return failure(errno, "get the status of the file");
  auto nanoseconds = [](const statx_timestamp& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; };
  FoundFile result;
  result.status.bytes = found.stx_size;
  result.status.allocated_bytes = found.stx_blocks * 512;
  result.status.modified_ns = nanoseconds(found.stx_mtime);
  result.status.is_directory = S_ISDIR(found.stx_mode);
  result.identity.device = uint64_t{found.stx_dev_major} << 32 | found.stx_dev_minor;
  result.identity.inode = found.stx_ino;
  if ((found.stx_mask & STATX_BTIME) != 0) result.identity.born_ns = nanoseconds(found.stx_btime);
  return result;
}

struct DirectoryCloser {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

Status not_served() { return Status(StatusCode::permission_denied, "not a path of a store"); }
}  // namespace

Result<std::unique_ptr<ServedFolder>> ServedFolder::open(const std::string& path, PathRule rule) {
  VARVE_TRY(posix_file_system().create_directory(path));
  UniqueFd root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return Status::from_errno(errno, "open the folder", path);
  if (::flock(root.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return Status::busy("another server serves this folder", path);
    return Status::from_errno(errno, "lock the folder", path);
  }
  return std::unique_ptr<ServedFolder>(new ServedFolder(path, std::move(root), rule));
}

Result<UniqueFd> ServedFolder::open_beneath(const std::string& path, int flags, unsigned mode,
                                            std::string_view what) const {
  if (!rule_(path)) return not_served();
  UniqueFd descriptor(open_in(root_.get(), path.empty() ? "." : path.c_str(), flags, mode,
                              RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS));
  if (!descriptor.valid()) return failure(errno, what);
  return descriptor;
}

Result<ServedFolder::Place> ServedFolder::place_of(const std::string& path) const {
  if (!rule_(path) || path.empty()) return not_served();
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
  Place place;
  place.name = slash == std::string::npos ? path : path.substr(slash + 1);
  place.folder.reset(open_in(root_.get(), folder.empty() ? "." : folder.c_str(), O_PATH | O_DIRECTORY, 0,
                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS));
  if (!place.folder.valid()) return failure(errno, "open the directory");
  return place;
}

Result<ServedFile> ServedFolder::opened(const std::string& path, UniqueFd descriptor, bool direct) const {
  ServedFile file;
  VARVE_ASSIGN(const FoundFile found, look(descriptor.get(), "", AT_EMPTY_PATH));
  file.identity = found.identity;
  file.bytes = found.status.bytes;
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return failure(errno, "open the file");
  if (!S_ISREG(status.st_mode)) return Status::invalid_argument("not a regular file");
  file.descriptor = descriptor.get();
  file.file = make_posix_file(path, std::move(descriptor), direct);
  return file;
}

Result<ServedFile> ServedFolder::open_read(const std::string& path) {
  VARVE_ASSIGN(UniqueFd descriptor, open_beneath(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, "open the file"));
  return opened(path, std::move(descriptor), false);
}

Result<ServedFile> ServedFolder::create(const std::string& path, bool direct) {
  VARVE_ASSIGN(UniqueFd descriptor, open_beneath(path, O_RDWR | O_CREAT | O_EXCL, 0666, "create the file"));
  return opened(path, std::move(descriptor), direct);
}

Result<ServedFile> ServedFolder::open_again(const std::string& path, bool direct, const FileIdentity& identity) {
  VARVE_ASSIGN(UniqueFd descriptor, open_beneath(path, O_RDWR | O_NONBLOCK | O_NOCTTY, 0, "open the file"));
  VARVE_ASSIGN(ServedFile file, opened(path, std::move(descriptor), direct));
  if (file.identity != identity) return Status::not_found("another file has that name now");
  return file;
}

Status ServedFolder::create_directory(const std::string& path) {
  if (path.empty() && rule_(path)) return {};
  VARVE_ASSIGN(const Place place, place_of(path));
  if (::mkdirat(place.folder.get(), place.name.c_str(), 0777) == 0) return {};
  const int error = errno;
  if (error == EEXIST) {
    const Result<FoundFile> found = look(place.folder.get(), place.name.c_str(), 0);
    if (found.ok() && found->status.is_directory) return {};
  }
  return failure(error, "create the directory");
}

Status ServedFolder::rename(const std::string& from, const std::string& to, bool replace) {
  VARVE_ASSIGN(const Place source, place_of(from));
  VARVE_ASSIGN(const Place target, place_of(to));
  const int source_folder = source.folder.get(), target_folder = target.folder.get();
  const char* const source_name = source.name.c_str();
  const char* const target_name = target.name.c_str();
  if (replace) {
    if (::renameat(source_folder, source_name, target_folder, target_name) == 0) return {};
    return failure(errno, "rename the file");
  }
  const int error = rename_no_replace_at(source_folder, source_name, target_folder, target_name);
  return error == 0 ? Status() : failure(error, "rename the file");
}

Status ServedFolder::remove(const std::string& path) {
  VARVE_ASSIGN(const Place place, place_of(path));
  return ::unlinkat(place.folder.get(), place.name.c_str(), 0) == 0 ? Status() : failure(errno, "remove the file");
}

Status ServedFolder::remove_directory(const std::string& path) {
  VARVE_ASSIGN(const Place place, place_of(path));
  return ::unlinkat(place.folder.get(), place.name.c_str(), AT_REMOVEDIR) == 0 ? Status()
                                                                               : failure(errno, "remove the directory");
}

Status ServedFolder::sync_directory(const std::string& path) {
  VARVE_ASSIGN(const UniqueFd descriptor, open_beneath(path, O_RDONLY | O_DIRECTORY, 0, "open the directory"));
  int failed = ::fsync(descriptor.get());
  while (failed != 0 && errno == EINTR) failed = ::fsync(descriptor.get());
  if (failed != 0 && errno != EINVAL) return failure(errno, "make the directory durable");
  return {};
}

Status ServedFolder::touch(const std::string& path) {
  VARVE_ASSIGN(const Place place, place_of(path));
  return ::utimensat(place.folder.get(), place.name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0
             ? Status()
             : failure(errno, "set the modification time of the file");
}

Result<uint64_t> ServedFolder::free_bytes(const std::string& path) {
  VARVE_ASSIGN(const UniqueFd descriptor, open_beneath(path, O_RDONLY | O_DIRECTORY, 0, "open the directory"));
  struct statvfs facts {};
  if (::fstatvfs(descriptor.get(), &facts) != 0) return failure(errno, "see how much room is left");
  return uint64_t{facts.f_bavail} * facts.f_frsize;
}

Result<FoundFile> ServedFolder::stat(const std::string& path) {
  if (path.empty() && rule_(path)) return look(root_.get(), "", AT_EMPTY_PATH);
  VARVE_ASSIGN(const Place place, place_of(path));
  return look(place.folder.get(), place.name.c_str(), 0);
}

Result<bool> ServedFolder::is_same(const std::string& path, const FileIdentity& identity) {
  VARVE_ASSIGN(const FoundFile found, stat(path));
  return found.identity == identity;
}

Result<std::vector<DirectoryEntry>> ServedFolder::list(const std::string& path) {
  VARVE_ASSIGN(UniqueFd descriptor, open_beneath(path, O_RDONLY | O_DIRECTORY, 0, "open the directory"));
  const std::unique_ptr<DIR, DirectoryCloser> directory(::fdopendir(descriptor.get()));
  if (!directory) return failure(errno, "open the directory");
  descriptor.release();  // the stream closes it
  std::vector<DirectoryEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bool is_directory = entry->d_type == DT_DIR;
    if (entry->d_type == DT_UNKNOWN) {
      const Result<FoundFile> found = look(::dirfd(directory.get()), entry->d_name, 0);
      if (found.status().code() == StatusCode::not_found) continue;  // removed since
      VARVE_TRY(found.status());
      is_directory = found->status.is_directory;
    }
    if (entries.size() == kEntriesMax) return Status::resource_limit("the directory has too many entries");
    entries.push_back({std::string(name), is_directory});
  }
  if (errno != 0) return failure(errno, "list the directory");
  return entries;
}

}  // namespace varve
