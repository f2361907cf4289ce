#pragma once

#include <cstddef>
#include <functional>

#include "varve/status.h"

namespace varve {

/// Calls `body(0)` to `body(count - 1)` on up to `thread_count` threads, the caller's among them, each index once and
/// in about their order. The first failure is returned; no further index is begun after it. Out of memory in a body is
/// resource_limit.
Status parallel_for(size_t count, size_t thread_count, const std::function<Status(size_t)>& body);

}  // namespace varve
