#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "hash/score.h"
#include "varve/status.h"

namespace varve {

/// How the nodes of a failure group protect each other's data. In all schemes each node has parity of others' data, as
/// much on every node, and a loss of up to losses_max() nodes of a group can be rebuilt.
struct Redundancy {
  enum class Scheme : uint8_t {
    partner,       ///< each node has a copy of another one's data (SCR's PARTNER)
    exclusive_or,  ///< one parity part for G − 1 data parts (SCR's XOR, like RAID 5)
    reed_solomon,  ///< M parity parts for K data parts
  };
  Scheme scheme = Scheme::partner;
  /// The parts of a code word, each on a node of its own. A copy is a code of one data part and one parity part.
  uint32_t data_parts = 1;
  uint32_t parity_parts = 1;
  bool operator==(const Redundancy&) const = default;

  /// "partner", "xor:G" with 2 <= G, or "rs:K+M" with 1 <= K, 1 <= M; at most kErasurePartsMax parts. invalid_argument
  /// for all else.
  static Result<Redundancy> parse(std::string_view text);
  /// What parse() takes.
  std::string text() const;

  /// As many nodes make a group, at least.
  uint32_t nodes_min() const { return data_parts + parity_parts; }
  /// The same with as much parity, for as few nodes as there are, fewer than nodes_min(). Nothing: for one there is
  /// none.
  std::optional<Redundancy> of_nodes(uint32_t node_count) const;
  /// As many nodes of a group may be lost.
  uint32_t losses_max() const { return parity_parts; }
};

/// Parity is made of blocks of this size; the last one of a piece may be shorter.
inline constexpr uint64_t kParityBlockBytes = 1_MiB;
inline constexpr size_t kRecordSumBytes = 4;  ///< the checksum before each block
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
  /// For members with streams of these lengths. invalid_argument unless K, M >= 1 and K + M <= G <= kGroupMembersMax;
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
  /// What of a piece lies in a block of its stripe; empty behind the piece's end.
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

/// A file that a member of a failure group protects.
struct ProtectedFile {
  std::string name;  ///< within the member's folder; see check_protected_name()
  uint64_t bytes = 0;
  Score sum;  ///< of all its bytes
  bool operator==(const ProtectedFile&) const = default;
};

/// What a member protects: its files, one after another, are its stream.
struct ProtectedMember {
  std::string node;                  ///< for people
  std::vector<ProtectedFile> files;  ///< in the ascending order of their names, which differ
  /// CRC-32C of every block of every piece of the stream, piece after piece: whoever uses a block
  /// of another member's data knows that it is what was protected.
  std::vector<uint32_t> block_sums;

  uint64_t stream_bytes() const;
  bool operator==(const ProtectedMember&) const = default;
};

/// What a failure group protects, the same for all members.
struct ProtectedGroup {
  std::string label;  ///< what it is, e.g. the name of the set: files of one label alone belong together
  Redundancy redundancy;
  ScoreAlgorithm algorithm = ScoreAlgorithm::sha256;  ///< of the sums
  std::vector<ProtectedMember> members;               ///< by position
  bool operator==(const ProtectedGroup&) const = default;
};

/// A name that needs no folder of its own and cannot leave the one it is in: 1 to 255 bytes without `/` and zero bytes,
/// not `.` or `..`; and none that redundancy itself uses (kParityFileName, names that end in kUnfinishedSuffix).
Status check_protected_name(std::string_view name);
inline constexpr std::string_view kParityFileName = "redundancy.parity";
inline constexpr std::string_view kUnfinishedSuffix = ".rebuilding";

inline constexpr uint64_t kProtectedFilesMax = 1'000'000;  ///< of a member
inline constexpr size_t kGroupTextBytesMax = 1000;         ///< of the label, of a node's name
inline constexpr uint64_t kDescriptionBytesMax = 256_MiB;

/// How many block sums a member with such a stream has.
uint64_t block_sum_count(uint64_t stream_bytes, uint32_t data_parts);

/// A member as bytes, for messages; and back (corrupt if it is none, or not one of a code of so many data parts).
ByteVector encode_member(const ProtectedMember& member);
Result<ProtectedMember> decode_member(ByteSpan bytes, uint32_t data_parts);

/// A protected group that has been checked, with what follows from it: its description as bytes (FORMAT.md, "Redundancy
/// files"), who holds what, and where the parity lies. Immutable.
class ParityGroup {
 public:
  /// invalid_argument or resource_limit, saying what, unless `group` is one.
  static Result<ParityGroup> create(ProtectedGroup group);
  /// From untrusted bytes. corrupt, or unsupported if this build lacks the algorithm of the sums.
  static Result<ParityGroup> decode(ByteSpan description);

  const ProtectedGroup& group() const { return group_; }
  const ProtectedMember& member(uint32_t position) const { return group_.members[position]; }
  const StripeGeometry& geometry() const { return geometry_; }
  const ByteVector& description() const { return description_; }
  uint32_t members() const { return geometry_.members(); }
  /// "node (position P)", for people.
  std::string name_of(uint32_t position) const;

  /// The recorded sum of a block of a member's piece.
  uint32_t block_sum(uint32_t position, uint32_t piece, uint64_t block) const;

  // The parity file of a member: its header, then of each of its M stripes, row after row, block after block, a
  // checksum and the block.
  uint64_t header_bytes() const;
  uint64_t parity_file_bytes(uint32_t position) const;
  /// Where the record of a block (its checksum, then its bytes) begins in the member's parity file.
  uint64_t record_offset(uint32_t position, uint32_t row, uint64_t block) const;
  uint64_t record_bytes(uint32_t position, uint32_t row, uint64_t block) const;
  /// The checksum of a block at that place: it depends on group, member and place, so that a block of another one is
  /// noticed.
  uint32_t record_sum(uint32_t position, uint64_t offset, ByteSpan block) const;

 private:
  ParityGroup(ProtectedGroup group, StripeGeometry geometry, ByteVector description);
  ProtectedGroup group_;
  StripeGeometry geometry_;
  ByteVector description_;
  Score description_score_;
};

}  // namespace varve
