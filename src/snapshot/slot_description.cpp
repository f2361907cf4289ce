#include "snapshot/slot_description.h"

#include <limits>

#include "hash/score.h"
#include "layout/layout.h"

namespace varve {
namespace {

// magic 8 | version u32 | description bytes u32 | crc32c u32 of the description | zero u32 | description
constexpr std::string_view kSlotMagic = "VARVESLT";
constexpr uint32_t kSlotVersion = 1;
constexpr uint64_t kPrefixBytes = 24;
constexpr uint64_t kPartBytesMin = 8 + 1 + 8 + 8 + 1;
constexpr uint32_t kNoGrid = std::numeric_limits<uint32_t>::max();

void put_part(ByteWriter& out, const SlotPart& part) {
  out.le64(part.image_offset);
  out.varint(part.grid.value_or(kNoGrid));
  out.le64(part.region.first_byte);
  out.le64(part.region.row_bytes);
  out.varint(part.region.steps.size());
  for (const RowStep& step : part.region.steps) {
    out.varint(step.count);
    out.varint(step.stride_bytes);
  }
}

Result<SlotPart> get_part(ByteReader& in) {
  SlotPart part;
  VARVE_ASSIGN(part.image_offset, in.le64());
  VARVE_ASSIGN(const uint64_t grid, in.varint());
  if (grid > kNoGrid) return Status::corrupt("a snapshot names an impossible grid");
  if (grid != kNoGrid) part.grid = static_cast<uint32_t>(grid);
  VARVE_ASSIGN(part.region.first_byte, in.le64());
  VARVE_ASSIGN(part.region.row_bytes, in.le64());
  VARVE_ASSIGN(const uint64_t steps, in.count(2));
  if (steps > kDimensionsMax) return Status::corrupt("a part of a snapshot has too many dimensions");
  part.region.steps.resize(steps);
  for (RowStep& step : part.region.steps) {
    VARVE_ASSIGN(step.count, in.varint());
    VARVE_ASSIGN(step.stride_bytes, in.varint());
  }
  return part;
}

/// Parts follow each other from the image's first byte to its last; returns the number of their blocks.
Result<uint64_t> check_parts(const SlotDescription& description) {
  uint64_t end = 0, blocks = 0;
  for (const SlotPart& part : description.parts) {
    // A region of no bytes, too, has no extent.
    if (part.region.extent_bytes().value_or(0) == 0) return Status::corrupt("a part of a snapshot is impossible");
    const uint64_t bytes = part.region.bytes();
    if (part.image_offset != end || bytes > description.image_bytes - end) {
      return Status::corrupt("the parts of a snapshot do not make up its image");
    }
    end += bytes;
    blocks += part.block_count();
  }
  if (end != description.image_bytes) return Status::corrupt("the parts of a snapshot do not make up its image");
  return blocks;
}

bool lies_within(uint64_t offset, uint64_t bytes, uint64_t all_bytes) {
  return offset <= all_bytes && bytes <= all_bytes - offset;
}

Status check_places(const SlotDescription& description, uint64_t segment_bytes) {
  constexpr uint64_t kCrcBytes = 4;
  if (description.crcs_offset % kCrcBytes != 0 || description.crc_count > segment_bytes / kCrcBytes ||
      !lies_within(description.crcs_offset, description.crc_count * kCrcBytes, segment_bytes) ||
      !lies_within(description.data_offset, description.data_bytes, segment_bytes)) {
    return Status::corrupt("a snapshot does not lie in its shared memory");
  }
  for (const SlotPart& part : description.parts) {
    if (part.grid) continue;
    const uint64_t end = part.region.extent_bytes().value_or(std::numeric_limits<uint64_t>::max());
    if (part.region.first_byte < description.data_offset || end > segment_bytes) {
      return Status::corrupt("a part of a snapshot does not lie in its shared memory");
    }
  }
  return {};
}

Result<SlotDescription> decode_body(ByteSpan body) {
  ByteReader in(body);
  SlotDescription description;
  VARVE_ASSIGN(description.run, UniqueId::read(in));
  VARVE_ASSIGN(description.rank, in.le32());
  VARVE_ASSIGN(description.step, in.le64());
  VARVE_ASSIGN(description.fill_number, in.le64());
  VARVE_ASSIGN(description.image_bytes, in.le64());
  VARVE_ASSIGN(description.crcs_offset, in.le64());
  VARVE_ASSIGN(description.crc_count, in.le64());
  VARVE_ASSIGN(description.data_offset, in.le64());
  VARVE_ASSIGN(description.data_bytes, in.le64());
  VARVE_ASSIGN(const uint64_t parts, in.count(kPartBytesMin));
  description.parts.reserve(parts);
  for (uint64_t i = 0; i < parts; ++i) {
    VARVE_ASSIGN(SlotPart part, get_part(in));
    description.parts.push_back(std::move(part));
  }
  if (!in.at_end()) return Status::corrupt("the description of a snapshot has bytes left over");
  return description;
}

}  // namespace

void encode_slot_description(const SlotDescription& description, ByteVector& out) {
  const size_t begin = out.size();
  ByteWriter writer(out);
  writer.bytes(as_bytes(kSlotMagic));
  writer.le32(kSlotVersion);
  out.resize(begin + kPrefixBytes);  // length and checksum follow below
  writer.bytes(description.run.bytes);
  writer.le32(description.rank);
  writer.le64(description.step);
  writer.le64(description.fill_number);
  writer.le64(description.image_bytes);
  writer.le64(description.crcs_offset);
  writer.le64(description.crc_count);
  writer.le64(description.data_offset);
  writer.le64(description.data_bytes);
  writer.varint(description.parts.size());
  for (const SlotPart& part : description.parts) put_part(writer, part);

  const ByteSpan body = ByteSpan(out).subspan(begin + kPrefixBytes);
  store_le(out.data() + begin + 12, static_cast<uint32_t>(body.size()));
  store_le(out.data() + begin + 16, crc32c(body));
}

Result<SlotDescription> decode_slot_description(ByteSpan segment) {
  ByteReader in(segment);
  VARVE_ASSIGN(const ByteSpan magic, in.bytes(kSlotMagic.size()));
  if (as_text(magic) != kSlotMagic) return Status::corrupt("this is no snapshot");
  VARVE_ASSIGN(const uint32_t version, in.le32());
  if (version != kSlotVersion) return Status::unsupported("a snapshot of another version of varve");
  VARVE_ASSIGN(const uint32_t body_bytes, in.le32());
  VARVE_ASSIGN(const uint32_t crc, in.le32());
  VARVE_ASSIGN(const uint32_t zero, in.le32());
  VARVE_ASSIGN(const ByteSpan shared_body, in.bytes(body_bytes));
  // A copy: another process could change the bytes between the checksum and their use.
  const ByteVector body(shared_body.begin(), shared_body.end());
  if (zero != 0 || crc32c(body) != crc) {
    return Status::corrupt("the description of a snapshot does not match its checksum");
  }
  VARVE_ASSIGN(SlotDescription description, decode_body(body));
  VARVE_ASSIGN(const uint64_t blocks, check_parts(description));
  if (blocks != description.crc_count) return Status::corrupt("a snapshot has not one checksum for each block");
  VARVE_TRY(check_places(description, segment.size()));
  return description;
}

}  // namespace varve
