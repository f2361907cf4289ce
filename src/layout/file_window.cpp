#include "layout/file_window.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace varve {
namespace {
constexpr uint64_t kReadAheadBytes = 32_KiB;
}

Result<ByteSpan> FileWindow::view(uint64_t offset, uint64_t bytes) {
  if (offset > file_bytes_ || bytes > file_bytes_ - offset) {
    return Status::corrupt(fmt::format("the file ends before byte {} + {}, which its header names", offset, bytes));
  }
  if (bytes > kViewBytesMax) return Status::resource_limit(fmt::format("a header field has {} bytes", bytes));
  if (fd_ < 0) return in_memory_.subspan(offset, bytes);
  bool buffered = offset >= buffer_offset_ && offset + bytes <= buffer_offset_ + buffer_filled_;
  if (!buffered) VARVE_TRY(fill(offset, bytes));
  return ByteSpan(buffer_).subspan(offset - buffer_offset_, bytes);
}

Status FileWindow::fill(uint64_t offset, uint64_t bytes) {
  uint64_t wanted = std::min(std::max(bytes, kReadAheadBytes), file_bytes_ - offset);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  buffer_offset_ = offset;
  buffer_filled_ = 0;
  while (buffer_filled_ < wanted) {
    ssize_t got = ::pread(fd_, buffer_.data() + buffer_filled_, wanted - buffer_filled_,
                          static_cast<off_t>(offset + buffer_filled_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Status::from_errno(errno, "read the file's header", {});
    if (got == 0) break;
    buffer_filled_ += static_cast<uint64_t>(got);
  }
  if (buffer_filled_ < bytes) return Status::corrupt("the file became shorter while it was read");
  return {};
}

}  // namespace varve
