#pragma once

#include <array>
#include <cstdint>

#include "core/bytes.h"

namespace varve {

/// Reads small pieces from all over a file through a cache of its blocks, since formats keep their metadata in pieces
/// of some hundred bytes. One thread at a time.
class FileBlocks {
 public:
  /// Forgets what it has, and reads from `fd` from now on, which is borrowed.
  void open(int fd);

  /// Fills `into` from `offset`. What lies past the end of the file is zero. False: the system cannot read it.
  bool read(uint64_t offset, MutableByteSpan into);

 private:
  static constexpr uint64_t kBlockBytes = 4_KiB;
  static constexpr size_t kBlockCount = 128;

  bool read_through(uint64_t offset, MutableByteSpan into) const;

  int fd_ = -1;
  Buffer bytes_{kBlockBytes * kBlockCount};
  std::array<uint64_t, kBlockCount> next_number_{};  ///< the number of the block in a slot, plus one; 0: it is empty
};

}  // namespace varve
