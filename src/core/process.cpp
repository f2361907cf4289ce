#include "core/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>

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

size_t descriptors_for(size_t wanted, size_t share) {
  constexpr size_t least = 4;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::clamp(static_cast<size_t>(limit.rlim_cur) / share, least, std::max(least, wanted));
}

}  // namespace varve
