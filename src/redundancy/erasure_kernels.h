#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"

namespace varve {

/// Which code multiplies. All give the same bytes.
enum class ErasureKernel : uint8_t {
  fast,   ///< the vector instructions of the processor (isa-l), in a build without it the same as `plain`
  plain,  ///< portable tables
};

/// Most parts that a code has, so most blocks that a kernel takes.
inline constexpr uint32_t kErasurePartsMax = 255;

/// A matrix over GF(2^8) that is ready to be applied to blocks: row after row, each with a coefficient for each source.
/// Immutable, thread-safe.
class BlockMatrix {
 public:
  BlockMatrix(std::vector<uint8_t> coefficients, uint32_t source_count, ErasureKernel kernel);

  /// targets[row] = sum over the sources of coefficient · source, byte by byte. `sources` and `targets` are as many as
  /// the matrix has columns and rows, all equally long, and do not overlap. Allocates nothing.
  void apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const;
  uint32_t source_count() const { return source_count_; }
  uint32_t target_count() const { return static_cast<uint32_t>(coefficients_.size() / source_count_); }

 private:
  enum class Method : uint8_t { sum, plain, isal };
  std::vector<uint8_t> coefficients_;
  uint32_t source_count_;
  Method method_;
  std::vector<uint8_t> isal_tables_;  ///< for isa-l only
};

}  // namespace varve
