#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "mount/open_set.h"

namespace varve {

MountResult<size_t> SpoolFile::read(uint64_t offset, MutableByteSpan into) {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got =
        ::pread(descriptor_.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno{errno};
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

MountResult<uint64_t> SpoolFile::seek(uint64_t offset, int whence) {
  const off_t found = ::lseek(descriptor_.get(), static_cast<off_t>(offset), whence);
  if (found < 0) return Errno{errno};
  return static_cast<uint64_t>(found);
}

Errno SpoolFile::begin_write() {
  if (!writes_) return {EBADF};
  flushed_.store(false, std::memory_order_relaxed);
  set_->note_change();
  return {};
}

Errno SpoolFile::allocate(int mode, uint64_t offset, uint64_t bytes) {
  MOUNT_TRY(begin_write());
  const int failed = ::fallocate(descriptor_.get(), mode, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  return {failed == 0 ? 0 : errno};
}

Errno SpoolFile::sync(bool data_only) {
  if (set_->is_lost(id_)) return {EIO};
  if ((data_only ? ::fdatasync(descriptor_.get()) : ::fsync(descriptor_.get())) != 0) {
    const Errno why{errno};
    set_->note_lost(id_);  // a second sync would prove nothing, and is not made
    return why;
  }
  return set_->sync_names(id_);
}

}  // namespace varve
