#pragma once

#include <cstddef>

namespace varve {

/// Lets this program have as many files open as its user may: the usual soft limit is for programs that use select().
void raise_descriptor_limit();

/// `wanted`, or less where this process may have few files open: at most one in `share` of those. At least 4.
size_t descriptors_for(size_t wanted, size_t share);

}  // namespace varve
