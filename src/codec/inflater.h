#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// What was found of a stream of RFC 1951.
struct Inflated {
  enum class End : uint8_t {
    whole,
    cut,
    damaged
  } end = End::damaged;              ///< cut: by the input's end, or for want of room
  size_t in_bytes = 0;               ///< of the stream, if it is whole
  uint32_t blocks = 0;               ///< that are whole
  size_t first_block_bytes = 0;      ///< of its content
  bool one_block = false;            ///< the first block is the last one
  uint32_t first_block_symbols = 0;  ///< literals and matches of the first block; 0: it is stored or not whole
};

/// Appends to `out` what the stream at the front of `in` holds, as far as it is there and valid, and no more than
/// `out_bytes_max`. For a look at bytes of which it is not known whether they are such a stream: nonsense is found out
/// soon, and what it left in `out` is to be dropped.
Inflated inflate(ByteSpan in, size_t out_bytes_max, ByteVector& out);

/// The content of a stream of RFC 1951, which comes, and is given, a part at a time: whatever its length, it takes some
/// 200 KiB. One thread.
class InflateStream {
 public:
  /// Fills `into` with the next bytes of the stream, and returns how many there were: fewer only at its end.
  using MoreInput = std::function<Result<size_t>(MutableByteSpan into)>;
  explicit InflateStream(MoreInput more);
  InflateStream(const InflateStream&) = delete;
  InflateStream& operator=(const InflateStream&) = delete;
  ~InflateStream();

  /// Fills `into` with the next bytes of the content. corrupt: the stream is damaged, or has no more of it. After a
  /// failure it is of no use.
  Status read(MutableByteSpan into);

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace varve
