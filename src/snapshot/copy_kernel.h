#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/bytes.h"

namespace varve {

/// Copies `from` to `to` (as large, not overlapping) and returns crc32c(from, seed): each byte is read once, and what
/// was summed is what was written. Stores go past the caches; store_fence() must follow before another thread is told.
uint32_t copy_with_crc(std::byte* to, ByteSpan from, uint32_t seed);

/// Makes the stores of copy_with_crc() on this thread visible before any later one.
void store_fence();

/// The versions that this machine can run, plain first, the one that copy_with_crc() takes last. For tests and
/// benchmarks.
struct CopyKernel {
  std::string_view name;
  uint32_t (*copy_with_crc)(std::byte* to, const std::byte* from, size_t bytes, uint32_t seed);
};
std::vector<CopyKernel> copy_kernels();

}  // namespace varve
