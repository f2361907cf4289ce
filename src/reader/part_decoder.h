#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/bytes.h"
#include "core/cell_box.h"
#include "engine/stored_files.h"
#include "layout/decoding_service.h"
#include "reader/part_stream.h"
#include "reader/stored_variables.h"
#include "store/store.h"
#include "varve/status.h"

namespace varve {

/// Cells of parts whose files' own formats have encoded them (StoredPart::coding), but for chunks of Zarr (ZarrChunks).
/// One thread at a time.
class PartDecoder {
 public:
  /// The store outlives it, and so do the parts that it is asked for.
  explicit PartDecoder(const Store& store);
  ~PartDecoder();

  /// Whether read() could give cells, as far as can be told without decoding any. unsupported: by none that this build
  /// knows.
  Status check(const StoredPart& part);
  /// Cells of the part's own array, dense, into memory of exactly their size; `box` lies in it. corrupt: what is stored
  /// is damaged, or the file was.
  Status read(const StoredPart& part, const CellBox& box, MutableByteSpan into);

 private:
  EncodedSource source_of(const StoredPart& part);
  Status inflate(const StoredPart& part, const CellBox& box, MutableByteSpan into);

  StreamReader reader_;
  DecodingService library_;
  class Deflated;

  std::optional<PartStream> file_;  ///< the last one that the library was to read
  const TreeFile* file_of_ = nullptr;
  std::unique_ptr<Deflated> deflated_;  ///< the part that was read last, as far as it was read
};

}  // namespace varve
