#include "core/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <fstream>
#include <optional>

#include "core/sync.h"

namespace varve {

std::string host_name() {
  if (current_scheduler != nullptr) return current_scheduler->host_name();
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 ? name : "";
}

uint32_t own_process_number() {
  return current_scheduler != nullptr ? current_scheduler->own_process().number : static_cast<uint32_t>(::getpid());
}

std::string path_on_machine(const std::string& path) {
  return current_scheduler == nullptr ? path : current_scheduler->path_on_machine(path);
}

bool is_process_gone(uint32_t number) {
  if (current_scheduler != nullptr) {
    ProcessNumber process = current_scheduler->own_process();
    process.number = number;
    process.start = 0;
    return !current_scheduler->is_alive(process);
  }
  const auto process = static_cast<pid_t>(number);
  return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

namespace {
/// The first number of a file of the system's; none: it is not there, or says "max".
std::optional<uint64_t> number_in(const std::string& path, const std::string& after = {}) {
  std::ifstream file(path);
  for (std::string word; !after.empty() && word != after;) {
    if (!(file >> word)) return std::nullopt;
  }
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// What a control group (of version 2) leaves; none: it has no limit. Its file cache can be freed.
std::optional<uint64_t> left_in_group(const std::string& folder) {
  const std::optional<uint64_t> limit = number_in(folder + "/memory.max");
  if (!limit) return std::nullopt;
  const uint64_t used = number_in(folder + "/memory.current").value_or(0);
  const uint64_t cached = number_in(folder + "/memory.stat", "inactive_file").value_or(0);
  return *limit - std::min(*limit, used - std::min(used, cached));
}
}  // namespace

uint64_t available_memory_bytes() {
  constexpr uint64_t simulated = uint64_t{1} << 40;
  if (current_scheduler != nullptr) return simulated;
  const std::optional<uint64_t> kibibytes = number_in("/proc/meminfo", "MemAvailable:");
  if (!kibibytes) return 0;
  uint64_t available = *kibibytes * 1024;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3); !group.empty(); group.resize(group.rfind('/'))) {
      available = std::min(available, left_in_group("/sys/fs/cgroup" + group).value_or(available));
    }
  }
  // Of version 1, or as a container sees its own.
  const std::string own = "/sys/fs/cgroup";
  available = std::min(available, left_in_group(own).value_or(available));
  if (const std::optional<uint64_t> limit = number_in(own + "/memory/memory.limit_in_bytes")) {
    const uint64_t used = number_in(own + "/memory/memory.usage_in_bytes").value_or(0);
    available = std::min(available, *limit - std::min(*limit, used));
  }
  return available;
}

size_t descriptors_for(size_t wanted, size_t share) {
  constexpr size_t least = 4;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::clamp(static_cast<size_t>(limit.rlim_cur) / share, least, std::max(least, wanted));
}

}  // namespace varve
