#pragma once

#include <cstdlib>
#include <memory>

#include "core/bytes.h"

namespace varve {

/// What reads and writes past the page cache are multiples of, and their memory begins at multiples of.
inline constexpr size_t kDirectAlignment = 4096;

/// Memory for such reads and writes, uninitialised. Who holds it knows its size.
class AlignedBlock {
 public:
  AlignedBlock() = default;
  /// `bytes` is a multiple of kDirectAlignment. Without memory the block is empty.
  explicit AlignedBlock(size_t bytes) : data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes))) {}

  std::byte* data() const { return data_.get(); }
  bool empty() const { return data_ == nullptr; }
  ByteSpan first(size_t bytes) const { return {data_.get(), bytes}; }

 private:
  struct Freer {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Freer> data_;
};

}  // namespace varve
