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
};

}  // namespace varve::count
