#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aggregate/source_tree.h"
#include "aggregate/work_order.h"
#include "core/unique_fd.h"

namespace varve {

/// Reads streams of a folder's files, gathering their extents. One thread.
class SourceReader {
 public:
  SourceReader(std::string folder, const std::vector<SourceFile>& files) : folder_(std::move(folder)), files_(files) {}

  /// Fills `into` with the stream's bytes from `offset`. busy if the file is shorter than when it was scanned.
  Status read(const Stream& stream, uint64_t offset, MutableByteSpan into);

  /// How many bytes from `offset` of the stream are a hole of its (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(const Stream& stream, uint64_t offset);

 private:
  struct OpenFile {
    UniqueFd fd;
    std::list<uint32_t>::iterator used;
  };
  Result<int> open(uint32_t file);
  Status read_extent(uint32_t file, uint64_t offset, MutableByteSpan into);
  /// The extent that holds stream byte `offset`, and how far into it that is.
  std::pair<size_t, uint64_t> locate(const Stream& stream, uint64_t offset);

  const std::string folder_;
  const std::vector<SourceFile>& files_;
  std::unordered_map<uint32_t, OpenFile> open_;
  std::list<uint32_t> recently_used_;

  // Streams are read from front to back: where the last look-up ended.
  const Stream* last_stream_ = nullptr;
  size_t last_extent_ = 0;
  uint64_t last_extent_at_ = 0;

  // The last hole found: the block schemes ask for it piece by piece.
  uint32_t hole_file_ = UINT32_MAX;
  uint64_t hole_begin_ = 0, hole_end_ = 0;

  // Small extents that lie near one another (headers between variables) are read with one call: the second of them
  // opens a window. One that stands alone is read alone.
  uint32_t small_file_ = UINT32_MAX;
  uint64_t small_end_ = 0;
  uint32_t window_file_ = UINT32_MAX;
  uint64_t window_offset_ = 0;
  ByteVector window_;
};

}  // namespace varve
