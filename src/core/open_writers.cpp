#include "core/open_writers.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "core/posix_file_system.h"
#include "core/process.h"
#include "core/sync.h"

namespace varve {

namespace {
enum class Writers : uint8_t { none, some, unknown };

/// Takes a lease if there are no writers. Who opens the file meanwhile waits until it is given back; the kernel then
/// tells us by a signal, which would end the process if it were not one that is ignored unless asked for.
Writers take_lease(int descriptor) {
  hand_over();
  if (::fcntl(descriptor, F_SETSIG, SIGURG) != 0) return Writers::unknown;
  if (::fcntl(descriptor, F_SETLEASE, F_RDLCK) != 0) return errno == EAGAIN ? Writers::some : Writers::unknown;
  return Writers::none;
}

Writers writers_of(int descriptor) {
  const Writers writers = take_lease(descriptor);
  if (writers == Writers::none) ::fcntl(descriptor, F_SETLEASE, F_UNLCK);
  return writers;
}

Result<UniqueFd> open_to_look(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY));
  if (!file.valid() && errno == ELOOP) return Status::not_found("no file, but a symbolic link", path);
  if (!file.valid()) return Status::from_errno(errno, "open", path);
  return file;
}
}  // namespace

Result<bool> is_being_written(const std::string& path) {
  VARVE_ASSIGN(const UniqueFd file, open_to_look(path));
  return writers_of(file.get()) == Writers::some;
}

Result<ReadLease> ReadLease::take(const std::string& path) {
  VARVE_ASSIGN(UniqueFd file, open_to_look(path));
  switch (take_lease(file.get())) {
    case Writers::none: return ReadLease(std::move(file), true);
    case Writers::some: return Status::busy("a program has it open for writing", path);
    case Writers::unknown: break;
  }
  return Status::unsupported("the system does not say whether a program has it open for writing", path);
}

Result<ReadLease> ReadLease::without(const std::string& path) {
  VARVE_ASSIGN(UniqueFd file, open_to_look(path));
  return ReadLease(std::move(file), false);
}

bool ReadLease::is_unbroken() const {
  hand_over();
  // Of a lease that is to be given up, F_GETLEASE tells what it is to become.
  return !leased_ || ::fcntl(file_.get(), F_GETLEASE) == F_RDLCK;
}

Result<bool> have_writes_noticed(int descriptor, const std::string& path) {
  const Writers writers = writers_of(descriptor);
  if (writers == Writers::none) return true;
  // What is written back is protected against writing first: the next write comes to the file system, and is noted.
  constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (::sync_file_range(descriptor, 0, 0, all) == 0 || errno == ENOSYS || errno == EINVAL)
    return writers == Writers::unknown;
  return Status::from_errno(errno, "write back what a program has written to", path);
}

bool times_may_miss_writes(int descriptor) {
  struct statfs system {};
  if (::fstatfs(descriptor, &system) != 0) return false;
  return lies_in_memory(system) || static_cast<uint32_t>(system.f_type) == OVERLAYFS_SUPER_MAGIC;
}

}  // namespace varve
