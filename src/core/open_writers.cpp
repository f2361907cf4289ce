#include "watch/open_writers.h"

#include <fcntl.h>

#include <cerrno>
#include <csignal>

#include "core/unique_fd.h"

namespace varve {

Result<bool> is_being_written(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  // Who opens the file while we have the lease waits until it is given back, an instant later; the kernel then tells
  // us by a signal, which would end the process if it were not one that is ignored unless asked for.
  if (::fcntl(file.get(), F_SETSIG, SIGURG) != 0) return false;
  if (::fcntl(file.get(), F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN;
  ::fcntl(file.get(), F_SETLEASE, F_UNLCK);
  return false;
}

}  // namespace varve
