#pragma once

#include <cstdint>

#include "core/bytes.h"

namespace varve {

/// The usual one; a multiple of the ordinary pages of any system.
inline constexpr uintptr_t kHugePageBytes = 2_MiB;

}  // namespace varve
