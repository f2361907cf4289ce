#include "core/process_identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string>

#include "core/process.h"
#include "core/sync.h"

namespace varve {
namespace {

Result<std::string> read_small_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  std::array<char, 4096> text{};
  const ssize_t bytes = ::read(file.get(), text.data(), text.size());
  if (bytes < 0) return Status::from_errno(errno, "read", path);
  return std::string(text.data(), static_cast<size_t>(bytes));
}

struct ProcessStat {
  char state = '?';
  uint64_t start_ticks = 0;
};

/// proc(5), "/proc/[pid]/stat": the second field is a name in parentheses, which may hold anything.
Result<ProcessStat> read_process_stat(const std::string& process) {
  const std::string path = "/proc/" + process + "/stat";
  VARVE_ASSIGN(const std::string text, read_small_file(path));
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) {
    return Status::io_error("the description of a process cannot be understood", path);
  }
  ProcessStat stat;
  stat.state = text[name_end + 2];
  constexpr int kStateField = 3, kStartField = 22;
  size_t at = name_end + 2;
  for (int field = kStateField; field < kStartField && at != std::string::npos; ++field) {
    at = text.find(' ', at);
    if (at != std::string::npos) ++at;
  }
  if (at == std::string::npos ||
      std::from_chars(text.data() + at, text.data() + text.size(), stat.start_ticks).ec != std::errc()) {
    return Status::io_error("the description of a process cannot be understood", path);
  }
  return stat;
}

Result<UniqueId> read_boot_id() {
  VARVE_ASSIGN(std::string text, read_small_file("/proc/sys/kernel/random/boot_id"));
  std::erase_if(text, [](char c) { return c == '-' || c == '\n'; });
  return UniqueId::parse(text);
}

Result<uint64_t> read_pid_namespace() {
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) != 0) return Status::from_errno(errno, "stat", "/proc/self/ns/pid");
  return static_cast<uint64_t>(info.st_ino);
}

/// A process whose first thread has ended looks like a zombie while its others go on.
bool has_other_threads(const std::string& process) {
  DIR* const folder = ::opendir(("/proc/" + process + "/task").c_str());
  if (folder == nullptr) return false;
  int count = 0;
  while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe)
    if (entry->d_name[0] != '.') ++count;
  }
  ::closedir(folder);
  return count > 1;
}

}  // namespace

Result<ProcessIdentity> ProcessIdentity::own() {
  if (current_scheduler != nullptr) {
    const ProcessNumber own = current_scheduler->own_process();
    return ProcessIdentity{own.boot, 0, own.start, own.number};
  }
  ProcessIdentity identity;
  VARVE_ASSIGN(identity.boot, read_boot_id());
  VARVE_ASSIGN(identity.pid_namespace, read_pid_namespace());
  VARVE_ASSIGN(const ProcessStat stat, read_process_stat("self"));
  identity.start_ticks = stat.start_ticks;
  identity.pid = static_cast<uint32_t>(::getpid());
  return identity;
}

Liveness liveness(const ProcessIdentity& process) {
  if (current_scheduler != nullptr) {
    const bool alive = current_scheduler->is_alive({process.boot, process.start_ticks, process.pid});
    return alive ? Liveness::alive : Liveness::dead;
  }
  const Result<UniqueId> boot = read_boot_id();
  if (!boot.ok()) return Liveness::unknown;
  if (*boot != process.boot) return Liveness::dead;
  const Result<uint64_t> pid_namespace = read_pid_namespace();
  if (!pid_namespace.ok() || *pid_namespace != process.pid_namespace) return Liveness::unknown;

  const std::string number = fmt::format("{}", process.pid);
  const Result<ProcessStat> stat = read_process_stat(number);
  if (!stat.ok()) return stat.status().code() == StatusCode::not_found ? Liveness::dead : Liveness::unknown;
  if (stat->start_ticks != process.start_ticks) return Liveness::dead;
  const bool ended = stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
  return ended && !has_other_threads(number) ? Liveness::dead : Liveness::alive;
}

}  // namespace varve
