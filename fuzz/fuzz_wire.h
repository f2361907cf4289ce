// Frames of the fuzzer's bytes, whose checksums are right, so that what lies behind them is reached.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "service/protocol.h"
#include "service/wire.h"

namespace varve {

/// Gives the bytes that it was made of, and keeps nothing of what is written.
class FuzzedStream final : public ByteStream {
 public:
  explicit FuzzedStream(ByteSpan given) : given_(given) {}
  Result<size_t> read_some(MutableByteSpan into, Deadline) override {
    const size_t bytes = std::min(into.size(), given_.size());
    std::copy_n(given_.begin(), bytes, into.begin());
    given_ = given_.subspan(bytes);
    return bytes;
  }
  Status write(std::span<const ByteSpan>, Deadline) override { return {}; }

 private:
  ByteSpan given_;
};

/// A frame whose header's message, flags and number are the first bytes of `input`, and whose fields are the rest.
inline WireHeader fuzzed_header(ByteSpan& input) {
  WireHeader header;
  header.message = std::to_integer<uint8_t>(input[0]);
  header.flags = std::to_integer<uint8_t>(input[1]);
  header.data_bytes = 8 * std::to_integer<uint32_t>(input[2]);
  input = input.subspan(3);
  return header;
}

}  // namespace varve
