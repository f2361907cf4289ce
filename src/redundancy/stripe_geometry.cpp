#include "redundancy/stripe_geometry.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve {

ByteRange piece_of_stream(uint64_t stream_bytes, uint32_t data_parts, uint32_t piece) {
  const uint64_t piece_bytes = (stream_bytes + data_parts - 1) / data_parts;
  return {std::min(stream_bytes, piece * piece_bytes), std::min(stream_bytes, (piece + 1) * piece_bytes)};
}

Result<StripeGeometry> StripeGeometry::create(uint32_t data_parts, uint32_t parity_parts,
                                              std::vector<uint64_t> stream_bytes) {
  const uint64_t parts = uint64_t{data_parts} + parity_parts;
  if (data_parts == 0 || parity_parts == 0 || parts > stream_bytes.size() || stream_bytes.size() > kGroupMembersMax) {
    return Status::invalid_argument(fmt::format("{} nodes cannot be a failure group of {}+{} parts",
                                                stream_bytes.size(), data_parts, parity_parts));
  }
  for (uint64_t bytes : stream_bytes) {
    if (bytes > kStreamBytesMax) {
      return Status::resource_limit(fmt::format("a node protects at most {} bytes", kStreamBytesMax));
    }
  }
  return StripeGeometry(data_parts, parity_parts, std::move(stream_bytes));
}

ByteRange StripeGeometry::block_of_piece(uint32_t member, uint32_t piece_number, uint64_t block) const {
  const ByteRange whole = piece(member, piece_number);
  const uint64_t begin = std::min(whole.end, whole.begin + block * kParityBlockBytes);
  return {begin, std::min(whole.end, begin + kParityBlockBytes)};
}

uint64_t StripeGeometry::stripe_bytes(uint32_t stripe) const {
  uint64_t bytes = 0;
  for (uint32_t d = 0; d < data_parts_; ++d) bytes = std::max(bytes, piece(data_member(stripe, d), d).bytes());
  return bytes;
}

uint64_t StripeGeometry::block_bytes(uint32_t stripe, uint64_t block) const {
  const uint64_t bytes = stripe_bytes(stripe), begin = std::min(bytes, block * kParityBlockBytes);
  return std::min(kParityBlockBytes, bytes - begin);
}

}  // namespace varve
