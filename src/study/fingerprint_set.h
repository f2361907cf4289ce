#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace varve {

/// A set of 64-bit fingerprints; open addressing. Two chunks with the same fingerprint are taken for one: among n
/// chunks, n²/2^65 pairs are expected to be.
class FingerprintSet {
 public:
  /// Whether it is new.
  bool insert(uint64_t fingerprint);
  void clear();
  size_t size() const { return size_; }
  /// What so many fingerprints take, about.
  static constexpr uint64_t kBytesEach = 16;

 private:
  void grow();
  std::vector<uint64_t> slots_;  ///< a power of two, at most three quarters of them taken; 0: free
  size_t size_ = 0;
};

}  // namespace varve
