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
/// "fixed", "fixed:65536", "gear:8192", "rabin:min,average,max".
Result<ChunkerOptions> parse_chunker(std::string_view text);
std::string chunker_name(const ChunkerOptions& options);

/// The bounds of a content-defined chunker after its defaults are filled in:
/// kChunkBytesMin <= min <= average <= max <= kChunkBytesMax. Only the last chunk of a variable may be shorter than
/// min.
struct ChunkBounds {
  uint32_t min;
  uint32_t average;
  uint32_t max;
};

/// How many bytes the rolling hashes look back on. A cut depends on these and on the distance from the last cut alone,
/// so the cuts before and after a change fall into step again. Not larger than kChunkBytesMin.
inline constexpr uint32_t kRollingWindowBytes = 64;
static_assert(kRollingWindowBytes <= kChunkBytesMin);

/// Always `average`, but a remainder of less than half of it joins the last chunk, unless that would exceed
/// kChunkBytesMax.
std::unique_ptr<Chunker> make_fixed_chunker(uint32_t average);
/// FastCDC (Xia et al., USENIX ATC 2016): a gear hash, with normalized chunking.
std::unique_ptr<Chunker> make_gear_chunker(const ChunkBounds& bounds);
/// The first place in [from, data.size()) where all bits of `mask` are 0 in the gear hash of the 64 bytes before it;
/// data.size() if there is none. `from` is at least kRollingWindowBytes. The plain one is the definition, the other its
/// fast twin.
size_t find_gear_cut_plain(ByteSpan data, size_t from, uint64_t mask);
size_t find_gear_cut(ByteSpan data, size_t from, uint64_t mask);

/// Rabin's fingerprint (1981) of a sliding window, as in LBFS (Muthitacharoen et al., SOSP 2001).
std::unique_ptr<Chunker> make_rabin_chunker(const ChunkBounds& bounds);

/// The modulus of the fingerprints, irreducible over GF(2) and of degree 53. It is the first irreducible one among
/// 2^53 | (r >> 11) | 1 for the successive outputs r of splitmix64 seeded with "varve" in ASCII (0x7661727665).
inline constexpr uint64_t kRabinPolynomial = 0x2a2324102fc763;

}  // namespace varve
