#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Fills `into` with the bytes of something from `offset` on, and returns how many there were: fewer only at its end.
using ReadAt = std::function<Result<uint64_t>(uint64_t offset, MutableByteSpan into)>;

/// Of an open file, which is borrowed.
ReadAt read_file_at(int fd);

/// Looks at pieces of a file (or of bytes in memory) through a buffer, so that a parser may ask for many small
/// neighbours cheaply. Every view is bounded by the file's size. One thread at a time.
class FileWindow {
 public:
  /// Nothing past `file_bytes` is looked at.
  FileWindow(ReadAt read, uint64_t file_bytes) : read_(std::move(read)), file_bytes_(file_bytes) {}
  explicit FileWindow(ByteSpan whole) : file_bytes_(whole.size()), in_memory_(whole) {}

  /// Exactly `bytes` bytes at `offset`, valid until the next call. corrupt: the file ends before; resource_limit: more
  /// than kViewBytesMax were asked for.
  Result<ByteSpan> view(uint64_t offset, uint64_t bytes);

  uint64_t file_bytes() const { return file_bytes_; }

  static constexpr uint64_t kViewBytesMax = 64_MiB;

 private:
  Status fill(uint64_t offset, uint64_t bytes);

  ReadAt read_;  ///< none: it is in memory
  uint64_t file_bytes_;
  ByteSpan in_memory_;
  ByteVector buffer_;
  uint64_t buffer_offset_ = 0;
  uint64_t buffer_filled_ = 0;
};

/// Reads small pieces from all over a file through a cache of its blocks, since formats keep their metadata in pieces
/// of some hundred bytes. One thread at a time.
class FileBlocks {
 public:
  /// Forgets what it has, and reads from there from now on.
  void open(ReadAt read);

  /// Fills `into` from `offset`. What lies past the end of the file is zero. False: the system cannot read it.
  bool read(uint64_t offset, MutableByteSpan into);

 private:
  static constexpr uint64_t kBlockBytes = 4_KiB;
  static constexpr size_t kBlockCount = 128;

  bool read_through(uint64_t offset, MutableByteSpan into) const;

  ReadAt read_;
  Buffer bytes_{kBlockBytes * kBlockCount};
  std::array<uint64_t, kBlockCount> next_number_{};  ///< the number of the block in a slot, plus one; 0: it is empty
};

}  // namespace varve
