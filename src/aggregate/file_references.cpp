#include "aggregate/file_references.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace varve {

namespace {
Reference part_of(const Reference& reference, uint64_t skip, uint64_t bytes) {
  const bool pattern = reference.pack == Reference::kPattern;
  return {reference.pack, pattern ? pattern_at(reference, skip) : reference.offset + skip, bytes};
}
}  // namespace

uint64_t pattern_at(const Reference& reference, uint64_t skip) {
  return std::rotr(reference.offset, static_cast<int>(8 * (skip % 8)));
}

FileReferences::FileReferences(const TreeFile& file) {
  for (size_t stream = 0; stream < file.streams.size(); ++stream) {
    auto reference = file.streams[stream].begin();
    uint64_t skip = 0;
    for (const Extent& extent : stream_extents(file, stream)) {
      for (uint64_t done = 0; done < extent.bytes;) {
        const uint64_t part = std::min(extent.bytes - done, reference->bytes - skip);
        slices_.push_back({extent.offset + done, part_of(*reference, skip, part)});
        done += part;
        skip += part;
        if (skip < reference->bytes) continue;
        ++reference;
        skip = 0;
      }
    }
  }
  std::sort(slices_.begin(), slices_.end(),
            [](const Slice& a, const Slice& b) { return a.file_offset < b.file_offset; });
}

std::vector<Reference> FileReferences::all() const {
  std::vector<Reference> references;
  references.reserve(slices_.size());
  for (const Slice& slice : slices_) references.push_back(slice.reference);
  return references;
}

std::vector<Reference> FileReferences::of(const std::vector<Extent>& extents) const {
  std::vector<Reference> references;
  for (const Extent& extent : extents) {
    const uint64_t end = extent.offset + extent.bytes;
    auto slice = std::prev(std::upper_bound(slices_.begin(), slices_.end(), extent.offset,
                                            [](uint64_t at, const Slice& one) { return at < one.file_offset; }));
    for (uint64_t at = extent.offset; at < end; ++slice) {
      const uint64_t skip = at - slice->file_offset;
      const uint64_t part = std::min(end - at, slice->reference.bytes - skip);
      references.push_back(part_of(slice->reference, skip, part));
      at += part;
    }
  }
  return references;
}

void unfold_small_variables(TreeFile& file) {
  if (file.small_variables.empty()) return;
  const FileReferences references(file);
  for (Variable& variable : file.small_variables) {
    file.streams.push_back(references.of(variable.extents));
    file.layout.variables.push_back(std::move(variable));
  }
  file.small_variables.clear();
  file.streams.front() = references.of(stream_extents(file, 0));
}

}  // namespace varve
