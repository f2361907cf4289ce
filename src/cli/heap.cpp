#include "cli/heap.h"

#include <malloc.h>

namespace varve::cli {

void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 8 << 20);  // larger blocks are rare, and go back at once
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 1 << 20);
  ::mallopt(M_ARENA_MAX,
            4);  // what one thread frees, another takes; a few, so that many threads do not wait for each other
#endif
}

}  // namespace varve::cli
