#include "count/counted_heap.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace varve::count {

namespace {
struct Held {
  int64_t now = 0, most = 0, at_mark = 0;
};
constinit thread_local Held held;
/// How many more allocations are given before one is not; none: all are.
constexpr uint64_t kNone = UINT64_MAX;
constinit thread_local uint64_t given_before_short = kNone;
}  // namespace

void HeapOfThread::mark() { held.most = held.at_mark = held.now; }

uint64_t HeapOfThread::most_since_mark() { return static_cast<uint64_t>(held.most - held.at_mark); }

void HeapOfThread::run_short_after(uint64_t allocations) { given_before_short = allocations; }

bool HeapOfThread::has_run_short() {
  const bool has = given_before_short == kNone;
  given_before_short = kNone;
  return has;
}

namespace {
void* take(size_t bytes) {
  if (given_before_short != kNone && given_before_short-- == 0) throw std::bad_alloc();
  void* const taken = std::malloc(std::max<size_t>(bytes, 1));
  if (taken == nullptr) throw std::bad_alloc();
  held.now += static_cast<int64_t>(::malloc_usable_size(taken));
  held.most = std::max(held.most, held.now);
  return taken;
}

void give_back(void* taken) {
  if (taken == nullptr) return;
  held.now -= static_cast<int64_t>(::malloc_usable_size(taken));
  std::free(taken);
}
}  // namespace

}  // namespace varve::count

// Those of arrays, and those that are told the size, call these.
void* operator new(size_t bytes) { return varve::count::take(bytes); }
void operator delete(void* taken) noexcept { varve::count::give_back(taken); }
void operator delete(void* taken, size_t) noexcept { varve::count::give_back(taken); }
