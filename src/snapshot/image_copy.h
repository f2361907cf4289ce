#pragma once

#include <cstdint>

#include "snapshot/variable_table.h"

namespace varve {

/// Stage 1's inner part: makes bytes [offset, offset + bytes) of the image, in which no lent variable lies, at `to`,
/// and returns their CRC-32C. Past the caches; ends with a store_fence(). Any number of threads at once.
uint32_t copy_image(const VariableTable& variables, uint64_t offset, uint64_t bytes, std::byte* to);

}  // namespace varve
