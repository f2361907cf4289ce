#include "runtime/snapshot_source.h"

#include <utility>

namespace varve {

SnapshotSource::SnapshotSource(std::vector<Part> parts, int64_t time_s) : parts_(std::move(parts)) {
  for (const Part& part : parts_) {
    SourceFile file;
    file.path = image_file_name(part.rank);
    file.mode = 0644;
    file.modified_s = time_s;
    file.bytes = part.image->image().image_bytes;
    file.rank = part.rank;
    files_.push_back(std::move(file));
  }
}

Result<std::vector<Layout>> SnapshotSource::layouts(ProgressSink&) {
  std::vector<Layout> layouts;
  for (const Part& part : parts_) layouts.push_back(image_layout(part.image->image()));
  return layouts;
}

Result<uint64_t> SnapshotSource::hole_bytes(uint32_t, uint64_t, uint64_t) { return uint64_t{0}; }

Status SnapshotSource::check_unchanged() {
  for (const Part& part : parts_) VARVE_TRY(part.image->check_unchanged());
  return {};
}

uint64_t SnapshotSource::bytes() const {
  uint64_t bytes = 0;
  for (const SourceFile& file : files_) bytes += file.bytes;
  return bytes;
}

}  // namespace varve
