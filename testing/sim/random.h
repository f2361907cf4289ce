#pragma once

#include <cstdint>

namespace varve::sim {

/// SplitMix64: the same numbers on all machines and libraries.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// 0 to `bound` - 1.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  /// Both ends are drawn.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  bool chance(double probability) { return unit() < probability; }
  /// Another one that does not depend on how often this is asked from now on.
  Random fork() { return Random(next()); }

 private:
  uint64_t state_;
};

}  // namespace varve::sim
