#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/bytes.h"

namespace varve {

enum class ChunkerKind : uint8_t { fixed, gear, rabin };

struct ChunkerOptions {
  ChunkerKind kind = ChunkerKind::fixed;
  uint32_t bytes_average = 8192;  ///< the size itself for `fixed`; a power of two for `gear` and `rabin`
  uint32_t bytes_min = 0;         ///< content-defined only; 0: a quarter of the average
  uint32_t bytes_max = 0;         ///< content-defined only; 0: eight times the average
};

inline constexpr uint32_t kChunkBytesMin = 64;
inline constexpr uint32_t kChunkBytesMax = 1u << 20;

/// Cuts a variable's bytes into chunks, the unit of deduplication. Stateless between chunks: a cut depends only on the
/// bytes after the last cut, so it is found again after an insertion (content-defined) or at the same place of the
/// variable (fixed). Immutable and thread-safe.
class Chunker {
 public:
  virtual ~Chunker() = default;
  /// The length of the next chunk. `ahead` are the bytes after the last cut: all `remaining` bytes of the variable, or
  /// at least bytes_ahead() of them. At least 1 and at most ahead.size().
  virtual size_t next(ByteSpan ahead, uint64_t remaining) const = 0;
  /// How many bytes next() must see unless the variable ends before.
  virtual size_t bytes_ahead() const = 0;
};

/// invalid_argument for sizes out of order or out of limits.
Result<std::unique_ptr<Chunker>> make_chunker(const ChunkerOptions& options);
/// "fixed", "fixed:65536", "gear:8192", "rabin:min,average,max", as taken by --chunker.
Result<ChunkerOptions> parse_chunker(std::string_view text);
std::string chunker_name(const ChunkerOptions& options);

}  // namespace varve
