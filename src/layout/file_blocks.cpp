#include "layout/file_blocks.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace varve {
namespace {
/// Larger pieces are not metadata, or seldom wanted again.
constexpr uint64_t kUncachedReadBytes = 64_KiB;
}  // namespace

void FileBlocks::open(int fd) {
  fd_ = fd;
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
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(fd_, into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  std::fill(into.begin() + static_cast<std::ptrdiff_t>(done), into.end(), std::byte{0});
  return true;
}

}  // namespace varve
