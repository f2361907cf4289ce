#include "aggregate/source_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "aggregate/restore_staging.h"
#include "core/file_system.h"
#include "core/sync.h"
#include "core/unique_fd.h"

namespace varve {

namespace {
Result<std::string> read_link(int directory, const char* name, const std::string& path) {
  char target[kPathBytesMax + 1];
  ssize_t length = ::readlinkat(directory, name, target, sizeof target);
  if (length < 0 && errno == EINVAL) return changed_while_saved(path);  // it is none any more
  if (length < 0) return failed_while_saved(errno, "read symbolic link", path);
  if (static_cast<size_t>(length) > kPathBytesMax)
    return Status::resource_limit("a symbolic link's target is too long", path);
  return std::string(target, static_cast<size_t>(length));
}

class Scanner {
 public:
  Scanner(std::string folder, ProgressSink& progress) : folder_(std::move(folder)), progress_(progress) {}

  Status scan(const std::string& relative) {
    const std::string path = relative.empty() ? folder_ : join_path(folder_, relative);
    int raw_fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (relative.empty() ? 0 : O_NOFOLLOW));
    if (raw_fd < 0 && relative.empty()) return Status::from_errno(errno, "open folder", path);
    if (raw_fd < 0) return failed_while_saved(errno, "open folder", path);
    std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(raw_fd), ::closedir);
    if (directory == nullptr) {
      UniqueFd closed(raw_fd);
      return Status::from_errno(errno, "list folder", path);
    }
    std::vector<std::string> below;
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == ".." || is_restore_staging(name)) continue;
      const std::string entry_path = join_path(relative, name);
      VARVE_ASSIGN(bool is_directory, add(raw_fd, name, entry_path));
      if (is_directory) below.push_back(entry_path);
      errno = 0;
    }
    if (errno != 0) return Status::from_errno(errno, "list folder", path);
    directory.reset();
    for (const std::string& next : below) VARVE_TRY(scan(next));
    return {};
  }

  std::vector<SourceFile> take() && {
    std::sort(files_.begin(), files_.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
    return std::move(files_);
  }

 private:
  Result<bool> add(int directory, const std::string& name, const std::string& entry_path) {
    struct stat status {};
    if (::fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
      return failed_while_saved(errno, "look at", join_path(folder_, entry_path));
    if (!path_is_safe(entry_path)) return Status::resource_limit("a path is too long", join_path(folder_, entry_path));
    SourceFile file;
    file.path = entry_path;
    file.mode = status.st_mode & 07777;
    file.modified_s = status.st_mtim.tv_sec;
    file.modified_ns = static_cast<uint32_t>(status.st_mtim.tv_nsec);
    file.changed_s = status.st_ctim.tv_sec;
    file.changed_ns = static_cast<uint32_t>(status.st_ctim.tv_nsec);
    if (S_ISDIR(status.st_mode)) {
      file.type = FileType::directory;
    } else if (S_ISLNK(status.st_mode)) {
      file.type = FileType::symlink;
      VARVE_ASSIGN(file.link_target, read_link(directory, name.c_str(), join_path(folder_, entry_path)));
    } else if (S_ISREG(status.st_mode)) {
      file.bytes = static_cast<uint64_t>(status.st_size);
      file.sparse = static_cast<uint64_t>(status.st_blocks) * 512 < file.bytes;
    } else {
      progress_.warning(Status::unsupported("left out, as it is neither a file, a folder nor a symbolic link",
                                            join_path(folder_, entry_path)));
      return false;
    }
    files_.push_back(std::move(file));
    return S_ISDIR(status.st_mode);
  }

  const std::string folder_;
  ProgressSink& progress_;
  std::vector<SourceFile> files_;
};
}  // namespace

Result<std::vector<SourceFile>> scan_source_tree(const std::string& folder, ProgressSink& progress) {
  Scanner scanner(folder, progress);
  VARVE_TRY(scanner.scan(""));
  return std::move(scanner).take();
}

Result<SourceFile> look_at_folder(const std::string& folder) {
  SourceFile file;
  file.path = ".";
  file.type = FileType::directory;
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return Status::from_errno(errno, "open folder", folder);
  if (!S_ISDIR(status.st_mode)) return Status::invalid_argument("not a folder", folder);
  file.modified_s = status.st_mtim.tv_sec;
  file.modified_ns = static_cast<uint32_t>(status.st_mtim.tv_nsec);
  return file;
}

Status changed_while_saved(const std::string& path) {
  return Status::busy("it changed while it was being saved", path,
                      "nothing was committed; save again when the program has finished writing");
}

Status failed_while_saved(int error, std::string_view action, const std::string& path) {
  const bool gone = error == ENOENT || error == ENOTDIR || error == ELOOP || error == EISDIR;
  return gone ? changed_while_saved(path) : Status::from_errno(error, action, path);
}

Status check_unchanged(const std::string& folder, const SourceFile& file) {
  hand_over();
  const std::string path = join_path(folder, file.path);
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return failed_while_saved(errno, "look at", path);
  const bool same_time = status.st_mtim.tv_sec == file.modified_s && status.st_mtim.tv_nsec == file.modified_ns;
  const bool same = file.type == FileType::directory
                        ? S_ISDIR(status.st_mode) && same_time  // its time changes with the names in it
                        : S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) == file.bytes && same_time &&
                              status.st_ctim.tv_sec == file.changed_s && status.st_ctim.tv_nsec == file.changed_ns;
  return same ? Status() : changed_while_saved(path);
}

}  // namespace varve
