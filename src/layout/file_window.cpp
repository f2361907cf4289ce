#include "layout/file_window.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace varve {

namespace {
constexpr uint64_t kReadAheadBytes = 32_KiB;
}

ReadAt read_file_at(int fd) {
  return [fd](uint64_t offset, MutableByteSpan into) -> Result<uint64_t> {
    uint64_t done = 0;
    while (done < into.size()) {
      const ssize_t got = ::pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Status::from_errno(errno, "read the file's header", {});
      if (got == 0) break;
      done += static_cast<uint64_t>(got);
    }
    return done;
  };
}

Result<ByteSpan> FileWindow::view(uint64_t offset, uint64_t bytes) {
  if (offset > file_bytes_ || bytes > file_bytes_ - offset) {
    return Status::corrupt(fmt::format("the file ends before byte {} + {}, which its header names", offset, bytes));
  }
  if (bytes > kViewBytesMax) return Status::resource_limit(fmt::format("a header field has {} bytes", bytes));
  if (!read_) return in_memory_.subspan(offset, bytes);
  bool buffered = offset >= buffer_offset_ && offset + bytes <= buffer_offset_ + buffer_filled_;
  if (!buffered) VARVE_TRY(fill(offset, bytes));
  return ByteSpan(buffer_).subspan(offset - buffer_offset_, bytes);
}

Status FileWindow::fill(uint64_t offset, uint64_t bytes) {
  uint64_t wanted = std::min(std::max(bytes, kReadAheadBytes), file_bytes_ - offset);
  if (buffer_.size() < wanted) buffer_.resize(wanted);
  buffer_offset_ = offset;
  buffer_filled_ = 0;
  VARVE_ASSIGN(buffer_filled_, read_(offset, MutableByteSpan(buffer_).first(wanted)));
  if (buffer_filled_ < bytes) return Status::corrupt("the file became shorter while it was read");
  return {};
}

namespace {
/// Larger pieces are not metadata, or seldom wanted again.
constexpr uint64_t kUncachedReadBytes = 64_KiB;
}  // namespace

void FileBlocks::open(ReadAt read) {
  read_ = std::move(read);
  next_number_.fill(0);
}

bool FileBlocks::read(uint64_t offset, MutableByteSpan into) {
  if (into.size() >= kUncachedReadBytes) return read_through(offset, into);
  while (!into.empty()) {
    const uint64_t number = offset / kBlockBytes, within = offset % kBlockBytes;
    const size_t slot = number % kBlockCount;
    const MutableByteSpan block = MutableByteSpan(bytes_).subspan(slot * kBlockBytes, kBlockBytes);
    if (next_number_[slot] != number + 1) {
      next_number_[slot] = 0;
      if (!read_through(number * kBlockBytes, block)) return false;
      next_number_[slot] = number + 1;
    }
    const size_t count = std::min<uint64_t>(into.size(), kBlockBytes - within);
    std::copy_n(block.data() + within, count, into.data());
    into = into.subspan(count);
    offset += count;
  }
  return true;
}

bool FileBlocks::read_through(uint64_t offset, MutableByteSpan into) const {
  const Result<uint64_t> got = read_(offset, into);
  if (!got.ok()) return false;
  std::fill(into.begin() + static_cast<std::ptrdiff_t>(*got), into.end(), std::byte{0});
  return true;
}

}  // namespace varve
