#include "redundancy/parity_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/quantity.h"
#include "redundancy/erasure_code.h"

namespace varve {

namespace {
constexpr std::string_view kPartner = "partner", kXor = "xor:", kReedSolomon = "rs:";

Status not_a_scheme(std::string_view text) {
  return Status::invalid_argument("not a scheme of redundancy", std::string(text),
                                  fmt::format("partner, xor:G with 2 to {} nodes, or rs:K+M with at most {} in sum",
                                              kErasurePartsMax, kErasurePartsMax));
}

/// A number of parts, or 0 for what is none.
uint32_t parse_parts(std::string_view digits) {
  const Result<uint64_t> number = parse_number(digits, kErasurePartsMax);
  return number.ok() ? static_cast<uint32_t>(*number) : 0;
}
}  // namespace

Result<Redundancy> Redundancy::parse(std::string_view text) {
  if (text == kPartner) return Redundancy{};
  if (text.starts_with(kXor)) {
    const uint32_t nodes = parse_parts(text.substr(kXor.size()));
    if (nodes < 2) return not_a_scheme(text);
    return Redundancy{Scheme::exclusive_or, nodes - 1, 1};
  }
  const size_t plus = text.find('+');
  if (!text.starts_with(kReedSolomon) || plus == std::string_view::npos) return not_a_scheme(text);
  const uint32_t data_parts = parse_parts(text.substr(kReedSolomon.size(), plus - kReedSolomon.size()));
  const uint32_t parity_parts = parse_parts(text.substr(plus + 1));
  if (data_parts == 0 || parity_parts == 0 || data_parts + parity_parts > kErasurePartsMax) return not_a_scheme(text);
  return Redundancy{Scheme::reed_solomon, data_parts, parity_parts};
}

std::string Redundancy::text() const {
  switch (scheme) {
    case Scheme::partner: return std::string(kPartner);
    case Scheme::exclusive_or: return fmt::format("{}{}", kXor, nodes_min());
    case Scheme::reed_solomon: return fmt::format("{}{}+{}", kReedSolomon, data_parts, parity_parts);
  }
  return {};
}

std::optional<Redundancy> Redundancy::of_nodes(uint32_t node_count) const {
  if (node_count < 2) return std::nullopt;
  Redundancy fewer = *this;
  fewer.parity_parts = std::min(parity_parts, node_count - 1);
  fewer.data_parts = node_count - fewer.parity_parts;
  return fewer;
}

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

namespace {
constexpr size_t kScoreBytes = sizeof(Score::bytes);
/// As much of the description's score goes into the checksum of a block.
constexpr size_t kTagBytes = 16;

void put_member(ByteWriter& out, const ProtectedMember& member) {
  out.text(member.node);
  out.varint(member.files.size());
  for (const ProtectedFile& file : member.files) {
    out.text(file.name);
    out.varint(file.bytes);
    out.bytes(file.sum.bytes);
  }
  for (uint32_t sum : member.block_sums) out.le32(sum);
}

Result<ProtectedFile> read_file_entry(ByteReader& in) {
  ProtectedFile file;
  VARVE_ASSIGN(const std::string_view name, in.text());
  file.name = name;
  VARVE_ASSIGN(file.bytes, in.varint());
  if (file.bytes > kStreamBytesMax) return Status::corrupt("a protected file has an impossible size", file.name);
  VARVE_ASSIGN(const ByteSpan sum, in.bytes(kScoreBytes));
  std::copy(sum.begin(), sum.end(), file.sum.bytes.begin());
  return file;
}

Result<ProtectedMember> read_member(ByteReader& in, uint32_t data_parts) {
  constexpr uint64_t kFileEntryBytesMin = 2 + kScoreBytes;
  ProtectedMember member;
  VARVE_ASSIGN(const std::string_view node, in.text());
  member.node = node;
  VARVE_ASSIGN(const uint64_t file_count, in.count(kFileEntryBytesMin));
  if (file_count > kProtectedFilesMax) return Status::corrupt("a node protects too many files", member.node);
  uint64_t stream_bytes = 0;
  for (uint64_t i = 0; i < file_count; ++i) {
    VARVE_ASSIGN(ProtectedFile file, read_file_entry(in));
    stream_bytes += file.bytes;  // no overflow: each below 2^50, and at most 10^6 of them
    member.files.push_back(std::move(file));
  }
  if (stream_bytes > kStreamBytesMax) return Status::corrupt("a node protects too many bytes", member.node);
  const uint64_t sum_count = block_sum_count(stream_bytes, data_parts);
  if (sum_count > in.remaining() / sizeof(uint32_t)) return Status::corrupt("block sums are missing", member.node);
  member.block_sums.resize(sum_count);
  for (uint32_t& sum : member.block_sums) {
    VARVE_ASSIGN(sum, in.le32());
  }
  return member;
}

Status check_text(std::string_view text, const char* what) {
  if (!text.empty() && text.size() <= kGroupTextBytesMax) return {};
  return Status::invalid_argument(fmt::format("{} has 1 to {} bytes", what, kGroupTextBytesMax), std::string(text));
}

Status check_member(const ProtectedMember& member, uint32_t data_parts) {
  VARVE_TRY(check_text(member.node, "the name of a node"));
  if (member.files.size() > kProtectedFilesMax) {
    return Status::resource_limit(fmt::format("a node protects at most {} files", kProtectedFilesMax), member.node);
  }
  uint64_t bytes = 0;
  for (const ProtectedFile& file : member.files) {
    VARVE_TRY(check_protected_name(file.name));
    bytes += std::min(file.bytes, kStreamBytesMax + 1);
  }
  if (bytes > kStreamBytesMax) {
    return Status::resource_limit(fmt::format("a node protects at most {} bytes", kStreamBytesMax), member.node);
  }
  const auto not_ascending = [](const ProtectedFile& a, const ProtectedFile& b) { return a.name >= b.name; };
  if (std::adjacent_find(member.files.begin(), member.files.end(), not_ascending) != member.files.end()) {
    return Status::invalid_argument("protected files are not in the order of their names", member.node);
  }
  if (member.block_sums.size() != block_sum_count(bytes, data_parts)) {
    return Status::invalid_argument("block sums do not fit the protected files", member.node);
  }
  return {};
}

Status check_group(const ProtectedGroup& group) {
  VARVE_TRY(check_text(group.label, "the label of a group"));
  const Result<Redundancy> redundancy = Redundancy::parse(group.redundancy.text());
  if (!redundancy.ok() || *redundancy != group.redundancy) {
    return Status::invalid_argument("impossible redundancy", group.redundancy.text());
  }
  VARVE_TRY(ScoreFunction::create(group.algorithm, kScoreBytes).status());
  std::set<std::string_view> nodes;
  for (const ProtectedMember& member : group.members) {
    VARVE_TRY(check_member(member, group.redundancy.data_parts));
    if (!nodes.insert(member.node).second) {
      return Status::invalid_argument("a node is in its failure group twice", member.node);
    }
  }
  return {};
}

ByteVector encode_group(const ProtectedGroup& group) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.text(group.label);
  out.text(group.redundancy.text());
  out.u8(static_cast<uint8_t>(group.algorithm));
  out.varint(group.members.size());
  for (const ProtectedMember& member : group.members) put_member(out, member);
  return bytes;
}

Result<ProtectedGroup> decode_group(ByteSpan description) {
  ByteReader in(description);
  ProtectedGroup group;
  VARVE_ASSIGN(const std::string_view label, in.text());
  group.label = label;
  VARVE_ASSIGN(const std::string_view scheme, in.text());
  VARVE_ASSIGN(group.redundancy, Redundancy::parse(scheme));
  VARVE_ASSIGN(const uint8_t algorithm, in.u8());
  group.algorithm = static_cast<ScoreAlgorithm>(algorithm);
  VARVE_ASSIGN(const uint64_t member_count, in.count(2));
  if (member_count > kGroupMembersMax) return Status::corrupt("a failure group has too many nodes", group.label);
  for (uint64_t i = 0; i < member_count; ++i) {
    VARVE_ASSIGN(ProtectedMember member, read_member(in, group.redundancy.data_parts));
    group.members.push_back(std::move(member));
  }
  if (!in.at_end()) return Status::corrupt("the description of a failure group is longer than its fields", group.label);
  return group;
}
}  // namespace

uint64_t ProtectedMember::stream_bytes() const {
  uint64_t bytes = 0;
  for (const ProtectedFile& file : files) bytes += file.bytes;
  return bytes;
}

Status check_protected_name(std::string_view name) {
  constexpr size_t kNameBytesMax = 255;
  const bool plain = !name.empty() && name.size() <= kNameBytesMax && name.find('/') == std::string_view::npos &&
                     name.find('\0') == std::string_view::npos && name != "." && name != "..";
  if (!plain) return Status::invalid_argument("not the name of a file that can be protected", std::string(name));
  if (name == kParityFileName || name.ends_with(kUnfinishedSuffix)) {
    return Status::invalid_argument("this name is kept for redundancy itself", std::string(name));
  }
  return {};
}

uint64_t block_sum_count(uint64_t stream_bytes, uint32_t data_parts) {
  uint64_t count = 0;
  for (uint32_t piece = 0; piece < data_parts; ++piece) {
    count += parity_blocks(piece_of_stream(stream_bytes, data_parts, piece).bytes());
  }
  return count;
}

ByteVector encode_member(const ProtectedMember& member) {
  ByteVector bytes;
  ByteWriter out(bytes);
  put_member(out, member);
  return bytes;
}

Result<ProtectedMember> decode_member(ByteSpan bytes, uint32_t data_parts) {
  if (data_parts == 0) return Status::invalid_argument("an erasure code needs at least one data part");
  ByteReader in(bytes);
  VARVE_ASSIGN(ProtectedMember member, read_member(in, data_parts));
  const Status checked = in.at_end() ? check_member(member, data_parts) : Status::corrupt("bytes are left");
  if (!checked.ok()) return Status::corrupt("what a node protects cannot be read", checked.to_string());
  return member;
}

Result<ParityGroup> ParityGroup::create(ProtectedGroup group) {
  VARVE_TRY(check_group(group));
  std::vector<uint64_t> stream_bytes;
  for (const ProtectedMember& member : group.members) stream_bytes.push_back(member.stream_bytes());
  VARVE_ASSIGN(StripeGeometry geometry,
               StripeGeometry::create(group.redundancy.data_parts, group.redundancy.parity_parts, stream_bytes));
  ByteVector description = encode_group(group);
  if (description.size() > kDescriptionBytesMax) {
    return Status::resource_limit("a failure group protects too much", group.label, "take smaller failure groups");
  }
  return ParityGroup(std::move(group), std::move(geometry), std::move(description));
}

Result<ParityGroup> ParityGroup::decode(ByteSpan description) {
  if (description.size() > kDescriptionBytesMax) return Status::corrupt("a failure group's description is too long");
  Result<ProtectedGroup> decoded = decode_group(description);
  Status status = decoded.status();
  if (status.ok()) {
    Result<ParityGroup> group = create(std::move(*decoded));
    // Of what cannot be said in several ways, the shortest is the only one: equal groups have equal descriptions.
    if (group.ok() && !std::ranges::equal(group->description(), description)) {
      return Status::corrupt("the description of a failure group is not in its shortest form", group->group().label);
    }
    if (group.ok()) return group;
    status = group.status();
  }
  if (status.code() == StatusCode::unsupported || status.code() == StatusCode::corrupt) return status;
  return Status::corrupt("the description of a failure group makes no sense", status.to_string());
}

ParityGroup::ParityGroup(ProtectedGroup group, StripeGeometry geometry, ByteVector description)
    : group_(std::move(group)),
      geometry_(std::move(geometry)),
      description_(std::move(description)),
      description_score_(ScoreFunction::create(group_.algorithm, kScoreBytes).value()(description_)) {}

std::string ParityGroup::name_of(uint32_t position) const {
  return fmt::format("{} (position {})", member(position).node, position);
}

uint32_t ParityGroup::block_sum(uint32_t position, uint32_t piece, uint64_t block) const {
  const uint64_t stream_bytes = geometry_.stream_bytes(position);
  uint64_t ordinal = block;
  for (uint32_t before = 0; before < piece; ++before) {
    ordinal += parity_blocks(piece_of_stream(stream_bytes, geometry_.data_parts(), before).bytes());
  }
  return member(position).block_sums[ordinal];
}

// FORMAT.md, "Redundancy files": magic, version, position, length of the description; the description; a CRC.
uint64_t ParityGroup::header_bytes() const { return 16 + description_.size() + 4; }

uint64_t ParityGroup::parity_file_bytes(uint32_t position) const {
  return record_offset(position, geometry_.parity_parts(), 0);
}

uint64_t ParityGroup::record_offset(uint32_t position, uint32_t row, uint64_t block) const {
  uint64_t offset = header_bytes();
  for (uint32_t before = 0; before < row; ++before) {
    const uint64_t bytes = geometry_.stripe_bytes(geometry_.stripe_of_parity(position, before));
    offset += bytes + kRecordSumBytes * parity_blocks(bytes);
  }
  return offset + block * (kRecordSumBytes + kParityBlockBytes);
}

uint64_t ParityGroup::record_bytes(uint32_t position, uint32_t row, uint64_t block) const {
  return kRecordSumBytes + geometry_.block_bytes(geometry_.stripe_of_parity(position, row), block);
}

uint32_t ParityGroup::record_sum(uint32_t position, uint64_t offset, ByteSpan block) const {
  std::array<std::byte, kTagBytes + 2 + 8> place{};
  std::copy_n(description_score_.bytes.begin(), kTagBytes, place.begin());
  store_le<uint16_t>(place.data() + kTagBytes, static_cast<uint16_t>(position));
  store_le<uint64_t>(place.data() + kTagBytes + 2, offset);
  return crc32c(block, crc32c(place));
}

}  // namespace varve
