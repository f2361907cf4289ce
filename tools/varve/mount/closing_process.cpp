#include "mount/closing_process.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace varve {

namespace {
// Of the kernel's include/linux/sched.h; /proc shows them, so that they stay.
constexpr uint64_t kIsExiting = 0x4, kIsSignaled = 0x400, kIsOfKernel = 0x200000;
// Fields of /proc/PID/stat, from 1 on (proc(5)).
constexpr int kStateField = 3, kFlagsField = 9, kExitCodeField = 52;
constexpr uint64_t kSignalBits = 0x7f;

/// Whether the kernel tells us a process's exit code. It asks the same before it tells which user namespace the process
/// is in (ptrace(2), "PTRACE_MODE_READ_FSCREDS"); user, group, capabilities and security modules have a say in it.
bool may_know_exit_code(const std::string& folder) {
  char name[64];
  return ::readlink((folder + "/ns/user").c_str(), name, sizeof(name)) > 0;
}
}  // namespace

ClosedBy who_closes(pid_t thread) {
  if (thread <= 0) return ClosedBy::unknown;
  const std::string folder = "/proc/" + std::to_string(thread);
  std::ifstream file(folder + "/stat");
  std::string stat;
  std::getline(file, stat);
  return who_closes_by_stat(stat, may_know_exit_code(folder));
}

ClosedBy who_closes_by_stat(std::string_view stat, bool knows_exit_code) {
  const size_t name_end = stat.rfind(')');  // of the program: it may contain anything
  if (name_end == std::string_view::npos) return ClosedBy::unknown;
  std::istringstream fields{std::string(stat.substr(name_end + 1))};
  uint64_t flags = 0;
  std::string word;
  for (int field = kStateField; field < kFlagsField; ++field) fields >> word;
  if (!(fields >> flags)) return ClosedBy::unknown;
  // The kernel closes for somebody who is no more.
  if ((flags & kIsOfKernel) != 0) return ClosedBy::signal;
  if ((flags & kIsExiting) == 0) return ClosedBy::program;
  if (!knows_exit_code) return (flags & kIsSignaled) != 0 ? ClosedBy::signal : ClosedBy::program;
  uint64_t exit_code = 0;
  for (int field = kFlagsField + 1; field < kExitCodeField; ++field) fields >> word;
  if (!(fields >> exit_code)) return ClosedBy::unknown;
  return (exit_code & kSignalBits) != 0 ? ClosedBy::signal : ClosedBy::program;
}

}  // namespace varve
