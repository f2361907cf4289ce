#include "core/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace varve {

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

size_t descriptors_for(size_t wanted, size_t share) {
  constexpr size_t least = 4;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::clamp(static_cast<size_t>(limit.rlim_cur) / share, least, std::max(least, wanted));
}

}  // namespace varve
