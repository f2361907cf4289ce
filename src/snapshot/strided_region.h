#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/bytes.h"
#include "varve/session.h"

namespace varve {

/// Rows of one dimension: how many, and how far apart.
struct RowStep {
  uint64_t count = 0;
  uint64_t stride_bytes = 0;
  bool operator==(const RowStep&) const = default;
};

/// Bytes that lie in equal rows at regular distances, as an array does whose ghost cells are left out. Its dense form
/// is the rows one after another, the last step fastest. Offsets count from a base address that is given where needed,
/// as shared memory lies elsewhere in every process.
struct StridedRegion {
  uint64_t first_byte = 0;     ///< of the first row, from the base
  uint64_t row_bytes = 0;      ///< that follow each other
  std::vector<RowStep> steps;  ///< slowest first; empty: one row
  bool operator==(const StridedRegion&) const = default;

  /// Of the dense form.
  uint64_t bytes() const;
  bool dense() const { return steps.empty(); }
  /// The bytes from the base to the end of the last row; 0 if it is empty, nothing if 64 bits do not hold them.
  std::optional<uint64_t> extent_bytes() const;
  /// Where the byte `dense_offset` of the dense form lies, from the base, and in `run_bytes` how many follow it there.
  /// dense_offset < bytes().
  uint64_t locate(uint64_t dense_offset, uint64_t& run_bytes) const;
};

/// One row.
inline StridedRegion dense_region(uint64_t bytes) { return {.first_byte = 0, .row_bytes = bytes, .steps = {}}; }

/// The saved cells of an array of `shape`, of elements of `element_bytes`, from the array's first byte. Dimensions
/// without ghost cells are joined to longer rows. The shape has been checked.
StridedRegion saved_region(const ArrayShape& shape, uint64_t element_bytes);

/// Copies a part of the dense form out of the region: bytes [dense_offset, dense_offset + into.size()), which exist.
void gather(const std::byte* base, const StridedRegion& region, uint64_t dense_offset, MutableByteSpan into);
/// The reverse.
void scatter(std::byte* base, const StridedRegion& region, uint64_t dense_offset, ByteSpan from);

}  // namespace varve
