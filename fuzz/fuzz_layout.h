#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "core/bytes.h"
#include "layout/layout.h"

namespace varve {

inline ByteSpan fuzz_bytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

/// What a parser accepts is validated, and if it is valid, skeleton and variables have as many bytes as the file.
inline void check_fuzzed_layout(const Result<Layout>& layout, uint64_t file_bytes) {
  if (!layout.ok() || !validate_layout(*layout, file_bytes).ok()) return;
  uint64_t sum = 0;
  for (const Variable& variable : layout->variables) sum += variable.stored_bytes();
  for (const Extent& gap : skeleton_extents(*layout, file_bytes)) sum += gap.bytes;
  if (sum != file_bytes) std::abort();
}

}  // namespace varve
