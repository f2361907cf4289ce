#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/unique_id.h"
#include "snapshot/variable_table.h"

namespace varve {

/// The unit of copying and of checksums.
inline constexpr uint64_t kSnapshotBlockBytes = 256_KiB;

/// Consecutive bytes of an image that lie in one segment. Cut into blocks of kSnapshotBlockBytes from its start.
struct SlotPart {
  uint64_t image_offset = 0;
  std::optional<uint32_t> grid;  ///< in this grid's segment; nothing: in the slot's own
  StridedRegion region;          ///< from the segment's start
  bool operator==(const SlotPart&) const = default;

  uint64_t block_count() const { return (region.bytes() + kSnapshotBlockBytes - 1) / kSnapshotBlockBytes; }
};

/// What a slot's segment holds. It lies at the segment's start, with a checksum of its own; after it a CRC-32C for each
/// block of each part, then the bytes of the parts that are in the slot.
struct SlotDescription {
  UniqueId run;
  uint32_t rank = 0;
  uint64_t step = 0;
  uint64_t fill_number = 0;
  uint64_t image_bytes = 0;
  std::vector<SlotPart> parts;  ///< in image order, covering the image without gap

  uint64_t crcs_offset = 0;  ///< in the segment
  uint64_t crc_count = 0;    ///< blocks of all parts
  uint64_t data_offset = 0;  ///< where the slot's own bytes begin: at a page
  uint64_t data_bytes = 0;
  bool operator==(const SlotDescription&) const = default;

  uint64_t segment_bytes() const { return data_offset + data_bytes; }
};

/// Appends the encoded description, with its length and checksum.
void encode_slot_description(const SlotDescription& description, ByteVector& out);
/// From a slot's segment. corrupt unless it is whole and consistent: parts cover the image, what is in the slot lies in
/// `segment`, counts are true. Of grids it is only known that their regions do not overflow.
Result<SlotDescription> decode_slot_description(ByteSpan segment);

}  // namespace varve
