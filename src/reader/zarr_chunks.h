#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "engine/stored_files.h"
#include "layout/zarr_array.h"
#include "reader/stored_variables.h"
#include "varve/status.h"

namespace varve {

/// Whether chunks that went through these can be decoded: unsupported names the first codec that nobody here knows, or
/// that cannot be where it is.
Status check_zarr_codecs(const std::vector<ZarrCodec>& codecs);

/// Fills `cells`, of exactly their size, from what is stored, which is not trusted. corrupt: that gives no such chunk.
Status decode_zarr_chunk(const std::vector<ZarrCodec>& codecs, ByteSpan stored, MutableByteSpan cells);

/// Decodes chunks of arrays of Zarr (PartCoding::zarr), and keeps some of those that were not needed as a whole: what
/// is read next is often in them. Any thread.
class ZarrChunks {
 public:
  using Cells = std::shared_ptr<const Buffer>;

  /// The cells of a part, all of them. `keep`: others of them may be wanted soon. resource_limit: the chunk is larger
  /// than any program writes.
  Result<Cells> cells(const StoredPart& part, StreamReader& reader, bool keep);

  static constexpr uint64_t kChunkBytesMax = 2_GiB;

 private:
  static constexpr uint64_t kKeptBytesMax = 512_MiB;

  Cells find(const StoredPart& part);
  void add(const StoredPart& part, const Cells& cells);

  Mutex mutex_;
  using Kept = std::list<std::pair<const StoredPart*, Cells>>;
  Kept kept_ VARVE_GUARDED_BY(mutex_);  ///< last used first
  std::unordered_map<const StoredPart*, Kept::iterator> places_ VARVE_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ VARVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace varve
