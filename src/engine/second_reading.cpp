#include "engine/second_reading.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/folder_scan.h"
#include "hash/score.h"

namespace varve {

namespace {
/// Fills `into`, but for what lies beyond the file's end: returns how much was there.
Result<size_t> reread(int descriptor, const std::string& path, uint64_t offset, MutableByteSpan into) {
  size_t got = 0;
  while (got < into.size()) {
    const ssize_t n = ::pread(descriptor, into.data() + got, into.size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed_while_saved(errno, "read", path);
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

/// Where from `offset` on the file has data (SEEK_DATA) or none (SEEK_HOLE), `end` at most.
uint64_t seek(int descriptor, uint64_t offset, int what, uint64_t end) {
  const off_t found = ::lseek(descriptor, static_cast<off_t>(offset), what);
  // It cannot tell: all are data. ENXIO: there are none up to the file's end.
  if (found < 0) return errno == ENXIO || what == SEEK_HOLE ? end : offset;
  return std::min(end, static_cast<uint64_t>(found));
}
}  // namespace

void SecondReading::add(uint64_t offset, ByteSpan bytes) {
  if (bytes.empty()) return;
  asked_ = false;
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (!last.is_hole && last.offset + last.bytes == offset) {
      last.crc = crc32c(bytes, last.crc);
      last.bytes += bytes.size();
      return;
    }
  }
  pieces_.push_back({.offset = offset, .bytes = bytes.size(), .crc = crc32c(bytes)});
}

void SecondReading::add_hole(uint64_t begin, uint64_t end) {
  if (begin == end) return;
  asked_ = false;
  pieces_.push_back({.offset = begin, .bytes = end - begin, .is_hole = true});
}

Result<bool> SecondReading::is_the_same(int descriptor, const std::string& path, MutableByteSpan buffer) {
  if (asked_) return true;
  for (const Piece& piece : pieces_) {
    VARVE_ASSIGN(const bool same, piece.is_hole ? same_zeros(descriptor, path, piece, buffer)
                                                : same_bytes(descriptor, path, piece, buffer));
    if (!same) return false;
  }
  asked_ = true;
  return true;
}

Result<bool> SecondReading::same_bytes(int descriptor, const std::string& path, const Piece& piece,
                                       MutableByteSpan buffer) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < piece.bytes;) {
    const MutableByteSpan part = buffer.first(std::min<uint64_t>(buffer.size(), piece.bytes - done));
    VARVE_ASSIGN(const size_t got, reread(descriptor, path, piece.offset + done, part));
    if (got < part.size()) return false;
    crc = crc32c(part, crc);
    done += part.size();
  }
  return crc == piece.crc;
}

Result<bool> SecondReading::same_zeros(int descriptor, const std::string& path, const Piece& piece,
                                       MutableByteSpan buffer) {
  const uint64_t end = piece.offset + piece.bytes;
  // A hole may have got pages of zeros since, by a program that only looked at it.
  for (uint64_t at = seek(descriptor, piece.offset, SEEK_DATA, end); at < end;) {
    const uint64_t data_end = std::max(at + 1, seek(descriptor, at, SEEK_HOLE, end));
    while (at < data_end) {
      const MutableByteSpan part = buffer.first(std::min<uint64_t>(buffer.size(), data_end - at));
      VARVE_ASSIGN(const size_t got, reread(descriptor, path, at, part));
      if (got < part.size()) return false;
      if (std::any_of(part.begin(), part.end(), [](std::byte byte) { return byte != std::byte{}; })) return false;
      at += part.size();
    }
    at = seek(descriptor, at, SEEK_DATA, end);
  }
  return true;
}

}  // namespace varve
