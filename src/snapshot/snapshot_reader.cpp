#include "snapshot/snapshot_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "hash/score.h"

namespace varve {

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::open(const SegmentOwner& owner, uint32_t slot,
                                                             SharedSegment::Access access) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(owner));
  VARVE_ASSIGN(reader->slot_, SharedSegment::open_first(owner.places_of(owner.slot_path(slot)), access));
  VARVE_TRY(reader->reload());
  return reader;
}

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::open_shown(const SegmentOwner& owner,
                                                                   const ControlBlock& control, uint32_t slot) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(owner));
  const SlotNews news = control.slot(slot);
  reader->shown_ = &control;
  reader->description_.run = owner.run;
  reader->description_.rank = owner.rank;
  reader->description_.step = news.step;
  reader->description_.fill_number = news.fill_number;
  reader->description_.image_bytes = control.shown_bytes();
  VARVE_TRY(reader->read_table());
  return reader;
}

bool SnapshotReader::in_memory() const {
  const auto counts = [this](const SharedSegment& segment) {
    return segment.path().starts_with(owner_.family.folder + "/") || segment.in_memory();
  };
  return shown_ == nullptr && counts(slot_) &&
         std::all_of(grids_.begin(), grids_.end(), [&](const auto& grid) { return counts(grid.second); });
}

Status SnapshotReader::reload() {
  VARVE_TRY(slot_.follow_growth());
  VARVE_ASSIGN(description_, decode_slot_description(slot_.bytes()));
  if (description_.run != owner_.run || description_.rank != owner_.rank) {
    return Status::corrupt("a snapshot is not that of its name", slot_.path());
  }
  VARVE_TRY(map_parts());
  return read_table();
}

Status SnapshotReader::map_parts() {
  mapped_.clear();
  uint64_t crc = 0;
  for (const SlotPart& part : description_.parts) {
    const SharedSegment* segment = &slot_;
    if (part.grid) {
      auto found = grids_.find(*part.grid);
      if (found == grids_.end()) {
        VARVE_ASSIGN(SharedSegment grid, SharedSegment::open_first(owner_.places_of(owner_.grid_path(*part.grid)),
                                                                   SharedSegment::Access::read));
        found = grids_.emplace(*part.grid, std::move(grid)).first;
      }
      segment = &found->second;
    }
    // 0 bytes and regions that overflow were rejected with the description.
    if (part.region.extent_bytes().value_or(0) > segment->size()) {
      return Status::corrupt("a part of a snapshot does not lie in its shared memory", segment->path());
    }
    mapped_.push_back({segment->data(), crc});
    crc += part.block_count();
  }
  return {};
}

Status SnapshotReader::read_table() {
  image_ = ImageTable{.variables = {}, .header_bytes = 0, .image_bytes = description_.image_bytes};
  ByteVector header(kImagePrefixBytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, description_.image_bytes));
  header.resize(header_bytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(image_, decode_image_header(header, description_.image_bytes));
  return {};
}

size_t SnapshotReader::part_at(uint64_t offset) const {
  auto after = [](uint64_t at, const SlotPart& part) { return at < part.image_offset; };
  const auto next = std::upper_bound(description_.parts.begin(), description_.parts.end(), offset, after);
  return static_cast<size_t>(next - description_.parts.begin()) - 1;
}

Status SnapshotReader::read(uint64_t offset, MutableByteSpan into) const {
  if (offset > description_.image_bytes || into.size() > description_.image_bytes - offset) {
    return Status::corrupt("bytes past the end of a snapshot's image were asked for", slot_.path());
  }
  if (shown_ != nullptr) {
    std::lock_guard lock(shown_mutex_);
    return shown_->read_shown(offset, into);
  }
  while (!into.empty()) {
    const size_t index = part_at(offset);
    const SlotPart& part = description_.parts[index];
    const uint64_t in_part = offset - part.image_offset;
    const uint64_t bytes = std::min<uint64_t>(into.size(), part.region.bytes() - in_part);
    gather(mapped_[index].base, part.region, in_part, into.first(bytes));
    offset += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

ByteSpan SnapshotReader::view(uint64_t offset, uint64_t bytes_max) const {
  if (offset >= description_.image_bytes || shown_ != nullptr) return {};
  const size_t index = part_at(offset);
  const SlotPart& part = description_.parts[index];
  uint64_t run_bytes = 0;
  const uint64_t at = part.region.locate(offset - part.image_offset, run_bytes);
  return {mapped_[index].base + at, std::min(run_bytes, bytes_max)};
}

uint32_t SnapshotReader::block_crc(size_t part, uint64_t block, MutableByteSpan scratch) const {
  const StridedRegion& region = description_.parts[part].region;
  const uint64_t begin = block * kSnapshotBlockBytes;
  const uint64_t bytes = std::min(kSnapshotBlockBytes, region.bytes() - begin);
  if (region.dense()) return crc32c({mapped_[part].base + region.first_byte + begin, bytes});
  gather(mapped_[part].base, region, begin, scratch.first(bytes));
  return crc32c(scratch.first(bytes));
}

std::string SnapshotReader::variable_at(uint64_t offset) const {
  for (const ImageVariable& variable : image_.variables) {
    if (variable.offset + variable.bytes > offset) return fmt::format("variable '{}'", variable.name);
  }
  return slot_.path();
}

Status SnapshotReader::verify() const {
  Buffer scratch(kSnapshotBlockBytes);
  const std::byte* const crcs = slot_.data() + description_.crcs_offset;
  for (size_t i = 0; i < description_.parts.size(); ++i) {
    const SlotPart& part = description_.parts[i];
    for (uint64_t block = 0; block < part.block_count(); ++block) {
      const auto expected = load_le<uint32_t>(crcs + (mapped_[i].first_crc + block) * sizeof(uint32_t));
      if (block_crc(i, block, scratch) == expected) continue;
      return Status::corrupt("a snapshot in memory does not match its checksums",
                             variable_at(part.image_offset + block * kSnapshotBlockBytes));
    }
  }
  return {};
}

bool SnapshotReader::has_lent_grids() const {
  return std::any_of(description_.parts.begin(), description_.parts.end(),
                     [](const SlotPart& part) { return part.grid.has_value(); });
}

void SnapshotReader::sum_lent_grids() {
  Buffer scratch(kSnapshotBlockBytes);
  std::byte* const crcs = slot_.data() + description_.crcs_offset;
  for (size_t i = 0; i < description_.parts.size(); ++i) {
    const SlotPart& part = description_.parts[i];
    if (!part.grid) continue;
    for (uint64_t block = 0; block < part.block_count(); ++block) {
      store_le(crcs + (mapped_[i].first_crc + block) * sizeof(uint32_t), block_crc(i, block, scratch));
    }
  }
}

}  // namespace varve
