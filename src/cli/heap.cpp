#include "cli/heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace varve::cli {

namespace {
/// What most commands use at most.
constexpr size_t kHeapBytes = 64 << 20;
constexpr uintptr_t kHugePageBytes = 2 << 20;

/// Has the heap's address space reserved, and asks for huge pages in it: a small save spends a fifth of its time on the
/// first touches of small ones.
void reserve_heap() {
  const auto begin = reinterpret_cast<uintptr_t>(::sbrk(0));
  ::mallopt(M_TOP_PAD, kHeapBytes);
  void* volatile block = std::malloc(1 << 20);  // volatile: compilers leave out a malloc() that only free() sees
  std::free(block);
  ::mallopt(M_TOP_PAD, 1 << 20);
  const auto end = reinterpret_cast<uintptr_t>(::sbrk(0));
  const uintptr_t first = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uintptr_t last = end / kHugePageBytes * kHugePageBytes;
  if (first < last) (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}
}  // namespace

void keep_freed_memory() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 8 << 20);  // larger blocks are rare, and go back at once
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_ARENA_MAX, 1);  // what one thread frees, another takes; blocks are large, so that nobody waits for long
  reserve_heap();
#endif
}

}  // namespace varve::cli
