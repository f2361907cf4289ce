#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/bytes.h"

namespace varve {

/// What a program gave zlib's deflateInit2(): what of it makes a difference to the bytes, with the usual window of 32
/// KiB and strategy.
struct DeflateSettings {
  uint8_t level = 6;         ///< 1 to 9
  uint8_t memory_level = 8;  ///< 1 to 9
  bool valid() const { return level >= 1 && level <= 9 && memory_level >= 1 && memory_level <= 9; }
  bool operator==(const DeflateSettings&) const = default;
};

/// Makes the very bytes that zlib (1.2.11 to 1.3.1) makes of the same content, without any zlib: what a machine has may
/// be another version, or another library of its name, and what was taken apart at a save has to be made again on any.
/// FORMAT.md, "inflate". Of a stream of RFC 1951: no header, no checksum. One thread at a time; keeps its tables (under
/// 1 MiB) between calls.
class Deflater {
 public:
  Deflater();
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  /// Fills `out` with the first bytes of the stream that `content` gives, and returns how many there are: fewer than
  /// `out` takes if the stream ends before.
  size_t make(ByteSpan content, DeflateSettings settings, MutableByteSpan out);

  struct Agreement {
    size_t bytes = 0;          ///< the same at the front of both
    size_t content_bytes = 0;  ///< that lie in the blocks which agree as a whole
    bool whole = false;        ///< the made stream ends after `bytes`
  };
  /// How much of `expected` the stream that `content` gives agrees with. Stops after the first block that does not.
  Agreement compare(ByteSpan content, DeflateSettings settings, ByteSpan expected);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

/// The blocks' limit: so many literals and matches are in a block that is not the last one.
constexpr uint32_t deflate_block_symbols(uint8_t memory_level) { return (1U << (memory_level + 6)) - 1; }

}  // namespace varve
