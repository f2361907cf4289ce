#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "varve/status.h"

namespace varve {

/// Tells bytes by how they differ from others that are much like them: those that many ranks say of their parts differ
/// in a few numbers only. What is unlike costs a few bytes more than it has. Any number of threads.
class Likeness {
 public:
  /// To these bytes, 4 GiB at most.
  explicit Likeness(ByteVector pattern);
  const ByteVector& pattern() const { return pattern_; }

  /// Nothing for no bytes.
  ByteVector difference(ByteSpan bytes) const;
  /// The bytes again. corrupt: it is no difference to the pattern, or of more than 4 GiB.
  Result<ByteVector> restore(ByteSpan difference) const;

 private:
  /// Some place in the pattern that begins as `bytes`, and how many bytes are the same from there on.
  std::pair<size_t, size_t> find(ByteSpan bytes) const;
  size_t same_bytes(size_t at, ByteSpan bytes) const;

  ByteVector pattern_;
  std::vector<uint32_t> places_;  ///< behind the first byte of a run of some, by its hash; 0: none
};

/// What many have said, by their numbers, held as how it differs from what the first of them said.
class AlikeBytes {
 public:
  /// What the next one has said.
  void add(ByteSpan bytes);
  size_t size() const { return ends_.size(); }
  ByteVector at(size_t number) const;

 private:
  Likeness likeness_{ByteVector()};
  ByteVector differences_;
  std::vector<uint64_t> ends_;
};

}  // namespace varve
