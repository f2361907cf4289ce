#include <isa-l/crc.h>

#include <algorithm>

#include "hash/score.h"

namespace varve {

uint32_t crc32c(ByteSpan data, uint32_t seed) {
  constexpr size_t kPieceBytesMax = 1u << 30;  // isa-l counts in int
  // isa-l gives the bare register: the standard's inversions before and after are left to its caller.
  uint32_t state = ~seed;
  while (!data.empty()) {
    const size_t bytes = std::min(data.size(), kPieceBytesMax);
    // isa-l's parameter lacks a const.
    auto* buffer = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(data.data()));
    state = ::crc32_iscsi(buffer, static_cast<int>(bytes), state);
    data = data.subspan(bytes);
  }
  return ~state;
}

}  // namespace varve
