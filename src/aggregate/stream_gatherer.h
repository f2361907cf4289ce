#pragma once

#include <utility>

#include "aggregate/source.h"
#include "aggregate/work_order.h"

namespace varve {

/// Reads streams of a source, gathering their extents. One thread.
class StreamGatherer {
 public:
  explicit StreamGatherer(Source& source) : source_(source) {}

  /// Fills `into` with the stream's bytes from `offset`.
  Status read(const Stream& stream, uint64_t offset, MutableByteSpan into);

  /// How many bytes from `offset` of the stream are a hole of its (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(const Stream& stream, uint64_t offset);

 private:
  /// The extent that holds stream byte `offset`, and how far into it that is.
  std::pair<size_t, uint64_t> locate(const Stream& stream, uint64_t offset);

  Source& source_;
  // Streams are read from front to back: where the last look-up ended.
  const Stream* last_stream_ = nullptr;
  size_t last_extent_ = 0;
  uint64_t last_extent_at_ = 0;
};

}  // namespace varve
