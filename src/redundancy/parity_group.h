#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "hash/score.h"
#include "redundancy/redundancy_scheme.h"
#include "redundancy/stripe_geometry.h"
#include "varve/status.h"

namespace varve {

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
  /// CRC-32C of every block of every piece of the stream (stripe_geometry.h), piece after piece: whoever uses a block
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
