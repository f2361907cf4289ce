#include "aggregate/stream_gatherer.h"

#include <algorithm>

namespace varve {

std::pair<size_t, uint64_t> StreamGatherer::locate(const Stream& stream, uint64_t offset) {
  if (last_stream_ != &stream || offset < last_extent_at_) {
    last_stream_ = &stream;
    last_extent_ = 0;
    last_extent_at_ = 0;
  }
  while (offset - last_extent_at_ >= stream.extents[last_extent_].bytes)
    last_extent_at_ += stream.extents[last_extent_++].bytes;
  return {last_extent_, offset - last_extent_at_};
}

Status StreamGatherer::read(const Stream& stream, uint64_t offset, MutableByteSpan into) {
  while (!into.empty()) {
    auto [index, skip] = locate(stream, offset);
    const Extent& extent = stream.extents[index];
    const size_t part = std::min<uint64_t>(into.size(), extent.bytes - skip);
    VARVE_TRY(source_.read(stream.file, extent.offset + skip, into.first(part)));
    into = into.subspan(part);
    offset += part;
  }
  return {};
}

Result<uint64_t> StreamGatherer::hole_bytes(const Stream& stream, uint64_t offset) {
  auto [index, skip] = locate(stream, offset);
  const Extent& extent = stream.extents[index];
  return source_.hole_bytes(stream.file, extent.offset + skip, extent.bytes - skip);
}

}  // namespace varve
