#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// What was read of a file, to be read again at the end: where a program may write to the file without changing its
/// times, only its bytes tell.
///
/// If all is the same the second time, every byte was what it is from its first reading to its second, so that the
/// moment between the two readings has all of them: what was read is one state of the file. Only what was changed and
/// changed back meanwhile escapes this. One thread.
class SecondReading {
 public:
  /// `bytes` were read at `offset`.
  void add(uint64_t offset, ByteSpan bytes);
  /// From `begin` to `end` there was a hole.
  void add_hole(uint64_t begin, uint64_t end);

  /// Whether the open file still has all of that. Reads nothing if nothing was added since it was asked last. `buffer`:
  /// for what is read, at a time.
  Result<bool> is_the_same(int descriptor, const std::string& path, MutableByteSpan buffer);

 private:
  struct Piece {
    uint64_t offset = 0, bytes = 0;
    uint32_t crc = 0;
    bool is_hole = false;
  };

  static Result<bool> same_bytes(int descriptor, const std::string& path, const Piece& piece, MutableByteSpan buffer);
  static Result<bool> same_zeros(int descriptor, const std::string& path, const Piece& piece, MutableByteSpan buffer);

  std::vector<Piece> pieces_;  ///< in the order of reading; what follows on another is one with it
  bool asked_ = true;
};

}  // namespace varve
