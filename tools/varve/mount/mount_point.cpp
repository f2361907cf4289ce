#include "mount/mount_point.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace varve {

namespace {
constexpr std::string_view kOurType = "fuse.varve";

/// As /proc/self/mountinfo writes names: with octal escapes.
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain.push_back(static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8)));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

/// The type of what is mounted on a folder, the last one if there are several.
std::optional<std::string> mounted_type(const std::string& folder) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  std::optional<std::string> found;
  while (std::getline(mounts, line)) {
    std::istringstream fields(line);
    std::vector<std::string> words;
    for (std::string word; fields >> word;) words.push_back(word);
    if (words.size() < 7 || unescape(words[4]) != folder) continue;
    for (size_t i = 6; i + 1 < words.size(); ++i) {
      if (words[i] == "-") found = words[i + 1];
    }
  }
  return found;
}

/// Whether the process behind a mount has died. What the kernel still remembers of the folder does not count.
bool is_dead(const std::string& folder) {
  struct statvfs status {};
  return ::statvfs(folder.c_str(), &status) != 0 && errno == ENOTCONN;
}

/// The full path, without looking at the folder itself: a mount whose process has died answers nothing.
Result<std::string> full_path(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::filesystem::path parent = std::filesystem::canonical(path.parent_path(), error);
  if (error) return Status::from_errno(error.value(), "find folder", path.parent_path().string());
  return (parent / path.filename()).string();
}

Status run_fusermount(const std::string& folder, bool lazy) {
  std::string program = "fusermount3", quiet = "-q", how = lazy ? "-uz" : "-u", place = folder;
  char* words[] = {program.data(), quiet.data(), how.data(), place.data(), nullptr};
  pid_t child = 0;
  if (const int failed = ::posix_spawnp(&child, program.c_str(), nullptr, nullptr, words, environ); failed != 0)
    return Status::from_errno(failed, "run", program).with_hint("install the package fuse3");
  int ended = 0;
  while (::waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return {};
  return Status::busy("the mount cannot be taken away", folder,
                      "end the programs that use it: `fuser -m " + folder + "` shows them");
}

Status unmount_full(const std::string& folder, bool lazy) {
  if (::umount2(folder.c_str(), (lazy ? MNT_DETACH : 0) | UMOUNT_NOFOLLOW) == 0) return {};
  if (errno == EBUSY)
    return Status::busy("programs use the mount", folder, "end them: `fuser -m " + folder + "` shows them");
  if (errno != EPERM) return Status::from_errno(errno, "unmount", folder);
  return run_fusermount(folder, lazy);
}
}  // namespace

Result<std::string> prepare_mount_point(const std::string& folder) {
  VARVE_ASSIGN(const std::string path, full_path(folder));
  if (is_dead(path)) {
    if (mounted_type(path) != kOurType)
      return Status::busy("a mount is there whose program has died", path, "take it away with `fusermount3 -u`");
    VARVE_TRY(unmount_full(path, true));
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    const Status missing = Status::from_errno(errno, "find folder", path);
    return missing.code() == StatusCode::not_found ? missing.with_hint("make it with `mkdir " + path + "`") : missing;
  }
  if (!S_ISDIR(status.st_mode)) return Status::invalid_argument("this is no folder", path);
  std::error_code error;
  // Of the folder, not of what a symbolic link is called.
  const std::string real = std::filesystem::canonical(path, error).string();
  if (error) return Status::from_errno(error.value(), "find folder", path);
  if (mounted_type(real) == kOurType)
    return Status::busy("a store is mounted there already", real, "`varve unmount " + real + "` takes it away");
  const bool is_empty = std::filesystem::is_empty(real, error);
  if (error) return Status::from_errno(error.value(), "look into folder", real);
  if (!is_empty) {
    return Status::invalid_argument("the folder is not empty, and a mount would hide what is in it", real,
                                    "name an empty folder, or make one");
  }
  return real;
}

Status unmount(const std::string& folder) {
  VARVE_ASSIGN(std::string path, full_path(folder));
  std::error_code error;
  if (mounted_type(path) != kOurType) {
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (!error) path = real.string();
  }
  const std::optional<std::string> type = mounted_type(path);
  if (type != kOurType) return Status::not_found("no store is mounted there", path);
  return unmount_full(path, is_dead(path));
}

}  // namespace varve
