#pragma once

#include <cstdint>
#include <vector>

#include "codec/codec.h"
#include "codec/deflater.h"

// What programs have deflated (HDF5, zip, MATLAB, gzip), taken apart and made again.

namespace varve {

/// A stream that lies in other bytes, between what its program wrote around it. FORMAT.md, "inflate".
struct DeflatedStream {
  uint64_t gap_bytes = 0;   ///< before it, from the end of the one before
  uint64_t made_bytes = 0;  ///< so many, from its first on, are made of its content
  uint64_t content_bytes = 0;
  DeflateSettings settings;
  /// The content came in planes: the first bytes of all elements, then the second ones. 1: it did not.
  uint32_t element_bytes = 1;
  bool operator==(const DeflatedStream&) const = default;
};
/// Of made_bytes, so that a table cannot have more entries than what it is of justifies.
inline constexpr uint64_t kDeflatedBytesMin = 16;
struct DeflatedTable {
  std::vector<DeflatedStream> streams;
  uint64_t content_bytes() const;
  uint64_t made_bytes() const;
};
void write_deflated_table(ByteWriter& out, const DeflatedTable& table);
/// Of which no sum is larger than `bytes_max`.
Result<DeflatedTable> read_deflated_table(ByteReader& in, uint64_t bytes_max);

/// The contents of all streams in `raw` that can be made again, one after the other, and then the bytes between them;
/// no bytes if there is no such stream.
struct Inflation {
  DeflatedTable table;
  ByteVector bytes;
};
Inflation inflate_streams(ByteSpan raw);

}  // namespace varve
