#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Parity is made of blocks of this size; the last one of a piece may be shorter.
inline constexpr uint64_t kParityBlockBytes = 1_MiB;
/// A node protects at most so many bytes, so that no sum of some of them overflows.
inline constexpr uint64_t kStreamBytesMax = uint64_t{1} << 50;
inline constexpr uint32_t kGroupMembersMax = 1024;

struct ByteRange {
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

/// One of the pieces, as many as data parts, into which a stream is cut: ⌈bytes / pieces⌉ each, while there are any.
ByteRange piece_of_stream(uint64_t stream_bytes, uint32_t data_parts, uint32_t piece);
/// How many blocks so many bytes of a piece or stripe have.
inline uint64_t parity_blocks(uint64_t bytes) { return (bytes + kParityBlockBytes - 1) / kParityBlockBytes; }

/// Who holds what in a failure group of G members (FORMAT.md, "Redundancy files").
///
/// The bytes that a member protects are its stream; it is cut into K pieces. There are G stripes. A stripe is a code
/// word of K + M parts on as many different members: with all members counted modulo G, part t of stripe s is on member
/// s + t if it is one of the M parity parts (t < M), and on member s + M + d if it is piece d of that member's stream.
/// So every member gives each of its K pieces to a stripe of its own, and holds a parity part of M stripes: all hold
/// and send equally much, and the loss of M members costs each stripe at most M parts.
///
/// With G = K + M and M = 1 this is SCR's XOR, with K = 1 and M = 1 its PARTNER (the next member has the copy). In
/// larger groups, where nodes were left over, the code stays what it is, and its parts spread over more members:
/// rebuilding a node reads no more, and often survives more losses than promised.
///
/// A piece that is shorter than its stripe's longest counts as filled up with zeros. Immutable.
class StripeGeometry {
 public:
  /// Of members with streams of these lengths. invalid_argument unless K, M >= 1 and K + M <= G <= kGroupMembersMax;
  /// resource_limit above kStreamBytesMax.
  static Result<StripeGeometry> create(uint32_t data_parts, uint32_t parity_parts, std::vector<uint64_t> stream_bytes);

  uint32_t members() const { return static_cast<uint32_t>(stream_bytes_.size()); }
  uint32_t stripes() const { return members(); }
  uint32_t data_parts() const { return data_parts_; }
  uint32_t parity_parts() const { return parity_parts_; }
  uint64_t stream_bytes(uint32_t member) const { return stream_bytes_[member]; }

  /// Which member has data part `piece` (below K), or parity part `row` (below M), of a stripe.
  uint32_t data_member(uint32_t stripe, uint32_t piece) const { return (stripe + parity_parts_ + piece) % members(); }
  uint32_t parity_member(uint32_t stripe, uint32_t row) const { return (stripe + row) % members(); }
  /// The reverse: to which stripe a member gives a piece, or holds parity.
  uint32_t stripe_of_piece(uint32_t member, uint32_t piece) const {
    return (member + 2 * members() - parity_parts_ - piece) % members();
  }
  uint32_t stripe_of_parity(uint32_t member, uint32_t row) const { return (member + members() - row) % members(); }

  /// A piece, as a range of its member's stream.
  ByteRange piece(uint32_t member, uint32_t piece) const {
    return piece_of_stream(stream_bytes_[member], data_parts_, piece);
  }
  /// Of a piece, what lies in a block of its stripe; empty behind the piece's end.
  ByteRange block_of_piece(uint32_t member, uint32_t piece, uint64_t block) const;
  /// The longest piece of a stripe: the length of its parity parts.
  uint64_t stripe_bytes(uint32_t stripe) const;
  /// Bytes of a block of a stripe.
  uint64_t block_bytes(uint32_t stripe, uint64_t block) const;

 private:
  StripeGeometry(uint32_t data_parts, uint32_t parity_parts, std::vector<uint64_t> stream_bytes)
      : data_parts_(data_parts), parity_parts_(parity_parts), stream_bytes_(std::move(stream_bytes)) {}
  uint32_t data_parts_, parity_parts_;
  std::vector<uint64_t> stream_bytes_;
};

}  // namespace varve
