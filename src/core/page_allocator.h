#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace varve {

/// Memory of a standard container that gets its own pages from the system and gives them back at once, for few large
/// tables of a library that works in somebody else's program: what malloc is given back, it keeps for later as soon as
/// it has seen large blocks, and small ones that outlive these hold it. Pages count as memory once they are written to.
template <class T>
struct PageAllocator {
  using value_type = T;
  PageAllocator() = default;
  template <class Other>
  explicit(false) PageAllocator(const PageAllocator<Other>&) {}

  T* allocate(size_t count) {
    void* const pages = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(pages);
  }
  void deallocate(T* memory, size_t count) { (void)::munmap(memory, count * sizeof(T)); }

  bool operator==(const PageAllocator&) const = default;
};

}  // namespace varve
