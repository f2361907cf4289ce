#include "core/open_writers.h"

#include <fcntl.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "core/unique_fd.h"

namespace varve {

namespace {
enum class Writers : uint8_t { none, some, unknown };

Writers writers_of(int descriptor) {
  // Who opens the file while we have the lease waits until it is given back, an instant later; the kernel then tells
  // us by a signal, which would end the process if it were not one that is ignored unless asked for.
  if (::fcntl(descriptor, F_SETSIG, SIGURG) != 0) return Writers::unknown;
  if (::fcntl(descriptor, F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN ? Writers::some : Writers::unknown;
  ::fcntl(descriptor, F_SETLEASE, F_UNLCK);
  return Writers::none;
}
}  // namespace

Result<bool> is_being_written(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  return writers_of(file.get()) == Writers::some;
}

Status have_writes_noticed(int descriptor, const std::string& path) {
  if (writers_of(descriptor) == Writers::none) return {};
  // What is written back is protected against writing first: the next write comes to the file system, and is noted.
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(descriptor, 0, 0, all) == 0 || errno == ENOSYS || errno == EINVAL) return {};
  return Status::from_errno(errno, "write back what a program has written to", path);
}

}  // namespace varve
