#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

// Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), the field of isa-l and of most
// Reed-Solomon codes: a byte is an element, addition is exclusive or. FORMAT.md, "Redundancy files", relies on it.

uint8_t galois_product(uint8_t a, uint8_t b);
/// The element whose product with `a` is 1; `a` is not 0.
uint8_t galois_inverse(uint8_t a);
/// The products of `a` with every byte.
const std::array<uint8_t, 256>& galois_products(uint8_t a);

/// The inverse of a square matrix of `size` rows, row by row; internal if it has none.
Result<std::vector<uint8_t>> galois_inverse_matrix(std::span<const uint8_t> matrix, uint32_t size);

/// Most parts that a code has, so most blocks that a matrix is applied to.
inline constexpr uint32_t kErasurePartsMax = 255;

/// A matrix over GF(2^8) that is ready to be applied to blocks: row after row, each with a coefficient for each source.
/// Immutable, thread-safe.
class BlockMatrix {
 public:
  BlockMatrix(std::vector<uint8_t> coefficients, uint32_t source_count);

  /// targets[row] = sum over the sources of coefficient · source, byte by byte. `sources` and `targets` are as many as
  /// the matrix has columns and rows, all equally long, and do not overlap. Allocates nothing.
  void apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const;
  uint32_t source_count() const { return source_count_; }
  uint32_t target_count() const { return static_cast<uint32_t>(coefficients_.size() / source_count_); }

 private:
  std::vector<uint8_t> coefficients_;
  uint32_t source_count_;
  std::vector<uint8_t> isal_tables_;  ///< empty: all coefficients are 1, and blocks are added up
};

/// Makes M parity blocks of K data blocks, such that any K of the K + M are enough to get the others back. The parts
/// are numbered: data 0 … K − 1, parity K … K + M − 1.
///
/// With M = 1 the parity is the exclusive or of the data; with more, a Reed-Solomon code over GF(2^8) whose generator
/// matrix has a Cauchy matrix under the identity: 1 / (row xor column), as isa-l's gf_gen_cauchy1_matrix() makes it.
/// Every square part of a Cauchy matrix has an inverse, so every loss of up to M parts can be repaired. FORMAT.md,
/// "Redundancy files", fixes the coefficients.
///
/// Immutable, thread-safe.
class ErasureCode {
 public:
  /// invalid_argument unless K and M are at least 1 and K + M at most kErasurePartsMax.
  static Result<ErasureCode> create(uint32_t data_parts, uint32_t parity_parts);

  uint32_t data_parts() const { return data_parts_; }
  uint32_t parity_parts() const { return parity_parts_; }
  uint32_t parts() const { return data_parts_ + parity_parts_; }

  /// The parity of K data blocks into M blocks; all equally long (internal otherwise), none overlapping. Allocates
  /// nothing.
  Status encode(std::span<const ByteSpan> data, std::span<const MutableByteSpan> parity) const;

  /// How some parts are made of K others: for one pattern of losses, applied to any number of blocks.
  class Repair {
   public:
    /// The parts that are needed, K of them, and those that are made of them, both as asked for.
    const std::vector<uint32_t>& sources() const { return sources_; }
    const std::vector<uint32_t>& targets() const { return targets_; }
    /// The blocks of sources() into those of targets(); equally long (internal otherwise). Allocates nothing.
    Status apply(std::span<const ByteSpan> sources, std::span<const MutableByteSpan> targets) const;

   private:
    friend class ErasureCode;
    Repair(std::vector<uint32_t> sources, std::vector<uint32_t> targets, BlockMatrix matrix)
        : sources_(std::move(sources)), targets_(std::move(targets)), matrix_(std::move(matrix)) {}
    std::vector<uint32_t> sources_, targets_;
    BlockMatrix matrix_;
  };
  /// Makes `targets` (at least one, data or parity) of `sources`: K different parts. invalid_argument for others.
  Result<Repair> repair(std::vector<uint32_t> sources, std::vector<uint32_t> targets) const;

  /// Rebuilds in place: parts (all K + M, equally long) that are not `present` are made of the first K that are.
  /// invalid_argument, naming the numbers, if fewer are present. For many blocks of one pattern, take repair().
  Status rebuild(const std::vector<bool>& present, std::span<const MutableByteSpan> parts) const;

 private:
  ErasureCode(uint32_t data_parts, uint32_t parity_parts);
  /// The row of the generator matrix that makes a part of the data.
  std::vector<uint8_t> generator_row(uint32_t part) const;

  uint32_t data_parts_, parity_parts_;
  BlockMatrix encoder_;
};

}  // namespace varve
