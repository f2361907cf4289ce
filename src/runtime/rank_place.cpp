#include "runtime/rank_place.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <fstream>

#include "core/process.h"
#include "snapshot/process_identity.h"

namespace varve {

namespace {
constexpr size_t kNodeNameBytesMax = 64;

/// 0 where the system does not say.
uint32_t current_socket() {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", ::sched_getcpu()));
  int64_t socket = 0;
  return file >> socket && socket >= 0 ? static_cast<uint32_t>(socket) : 0;
}
}  // namespace

Result<RankPlace> find_rank_place(const std::string& shared_folder) {
  VARVE_ASSIGN(const ProcessIdentity process, ProcessIdentity::own());
  struct stat folder = {};
  if (::stat(shared_folder.c_str(), &folder) != 0) return Status::from_errno(errno, "look at", shared_folder);
  // The number of a memory file system is this kernel's, so the kernel's start goes with it.
  return RankPlace{fmt::format("{}.{}.{}", process.boot.hex(), folder.st_dev, folder.st_ino), current_socket(),
                   host_name()};
}

Result<RankPlace> at_named_node(RankPlace place, const std::string& name) {
  const auto fits = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '.' || letter == '-' || letter == '_';
  };
  if (name.empty() || name.size() > kNodeNameBytesMax || name[0] == '.' ||
      !std::all_of(name.begin(), name.end(), fits)) {
    return Status::invalid_argument("VARVE_NODE is no name of a node", name,
                                    "1 to 64 letters, digits, '.', '-' and '_', not '.' first");
  }
  place.node += "/" + name;
  place.name = name;
  return place;
}

}  // namespace varve
