#pragma once

#include "codec/codec.h"

namespace varve {

/// The shortest of the likely periods (the element's size; 1, 2, 4 and 8 bytes) at which `bytes` repeat from end to
/// end, or 0. As fast as memory where they do, immediate where they do not.
size_t find_period(ByteSpan bytes, const ElementType& type);

}  // namespace varve
