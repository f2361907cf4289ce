#pragma once

#include <string>

#include "core/process.h"
#include "varve/status.h"

namespace varve {

/// Whether some program has the file open for writing, or mapped so, as the kernel knows (fcntl(2), leases): of
/// programs on this machine alone. False where it cannot be told: for files of other users, unless one is privileged,
/// and on file systems without leases. not_found: there is no such file.
Result<bool> is_being_written(const std::string& path);

/// From here on every write to the file that begins changes its times, also one through a mapping that a program has
/// already, which changes none while its page is dirty: such pages are written back. Costs nothing for a file that
/// nobody has open for writing. `descriptor`: open for reading only.
///
/// False: a program has it open for writing, so that a call may be writing to it whose time was noted when it began.
/// Where times_may_miss_writes(), times tell too little in any case.
Result<bool> have_writes_noticed(int descriptor, const std::string& path);

/// Whether the file system is one on which writes through mappings may change no times, whatever is done: one without a
/// disk (tmpfs, ramfs, hugetlbfs), which never protects a page that was once mapped; or one whose mappings are of
/// another file system's files, of which leases know nothing (overlayfs).
bool times_may_miss_writes(int descriptor);

/// As long as it is held, nobody has the file open for writing, or mapped so: who opens it, or truncates it, waits
/// until this ends (the kernel's lease-break-time at most, 45 s; with O_NONBLOCK he is refused), and breaks it.
class ReadLease {
 public:
  /// busy: a program has the file open for writing. unsupported: it cannot be told, see is_being_written(). not_found:
  /// there is no such file, or a symbolic link.
  static Result<ReadLease> take(const std::string& path);

  /// Whether nobody has tried to open the file for writing since.
  bool is_unbroken() const;
  /// Open for reading, without a lease: for who knows otherwise that nobody writes.
  static Result<ReadLease> without(const std::string& path);
  int descriptor() const { return file_.get(); }

 private:
  ReadLease(UniqueFd file, bool leased) : file_(std::move(file)), leased_(leased) {}

  UniqueFd file_;
  bool leased_ = false;
};

}  // namespace varve
