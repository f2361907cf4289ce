#pragma once

#include <cstdint>

namespace varve::count {

/// What the calling thread has taken of the heap by `new`, and not given back: of threads that hardly free what others
/// have made. Where this is linked, `new` and `delete` count.
class HeapOfThread {
 public:
  /// From here on.
  static void mark();
  /// The most that it has held since then, beside what it held then.
  static uint64_t most_since_mark();
  /// The next `new` of this thread but so many finds no memory, as if all were taken.
  static void run_short_after(uint64_t allocations);
  /// As before. Whether one has found none.
  static bool has_run_short();
};

}  // namespace varve::count
