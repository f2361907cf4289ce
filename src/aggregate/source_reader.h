#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aggregate/source.h"
#include "core/unique_fd.h"

namespace varve {

/// Reads files of a folder. One thread.
class SourceReader {
 public:
  SourceReader(std::string folder, const std::vector<SourceFile>& files);
  ~SourceReader();
  SourceReader(const SourceReader&) = delete;
  SourceReader& operator=(const SourceReader&) = delete;

  /// Fills `into` with the file's bytes from `offset`. busy if the file is shorter than that.
  Status read(uint32_t file, uint64_t offset, MutableByteSpan into);

  /// How many of the `bytes_max` bytes from `offset` are a hole of the (sparse) file; 0 if there are data.
  Result<uint64_t> hole_bytes(uint32_t file, uint64_t offset, uint64_t bytes_max);

 private:
  struct OpenFile {
    UniqueFd fd;
    std::list<uint32_t>::iterator used;
  };
  Result<int> open(uint32_t file);

  const std::string folder_;
  const std::vector<SourceFile>& files_;
  const size_t open_files_max_;
  std::vector<bool> seen_;  ///< those that were open once: writes to them are noticed from then on
  std::unordered_map<uint32_t, OpenFile> open_;
  std::list<uint32_t> recently_used_;

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
