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
}  // namespace

bool is_closed_by_signal(pid_t thread, uid_t user, gid_t group) {
  if (thread <= 0) return true;
  std::ifstream file("/proc/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  return is_ended_by_signal(stat, ::geteuid() == 0 || (user == ::geteuid() && group == ::getegid()));
}

bool is_ended_by_signal(std::string_view stat, bool knows_exit_code) {
  const size_t name_end = stat.rfind(')');  // of the program: it may contain anything
  if (name_end == std::string_view::npos) return true;
  std::istringstream fields{std::string(stat.substr(name_end + 1))};
  uint64_t flags = 0;
  std::string word;
  for (int field = kStateField; field < kFlagsField; ++field) fields >> word;
  if (!(fields >> flags)) return true;
  // The kernel closes for somebody who is no more.
  if ((flags & kIsOfKernel) != 0) return true;
  if ((flags & kIsExiting) == 0) return false;
  if (!knows_exit_code) return (flags & kIsSignaled) != 0;
  uint64_t exit_code = 0;
  for (int field = kFlagsField + 1; field < kExitCodeField; ++field) fields >> word;
  if (!(fields >> exit_code)) return true;
  return (exit_code & kSignalBits) != 0;
}

}  // namespace varve
