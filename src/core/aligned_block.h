#pragma once

#include <cstdlib>
#include <memory>
#include <utility>

#include "core/bytes.h"

namespace varve {

/// What reads and writes past the page cache are multiples of, and their memory begins at multiples of.
inline constexpr size_t kDirectAlignment = 4096;

/// Memory for such reads and writes, uninitialised.
class AlignedBlock {
 public:
  AlignedBlock() = default;
  /// `bytes` is a multiple of kDirectAlignment. Without memory the block is empty.
  explicit AlignedBlock(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes))),
        size_(data_ == nullptr ? 0 : bytes) {}
  AlignedBlock(AlignedBlock&& other) noexcept : data_(std::move(other.data_)), size_(std::exchange(other.size_, 0)) {}
  AlignedBlock& operator=(AlignedBlock&& other) noexcept {
    data_ = std::move(other.data_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~AlignedBlock() = default;

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  ByteSpan first(size_t bytes) const { return {data_.get(), bytes}; }

 private:
  struct Freer {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Freer> data_;
  size_t size_ = 0;
};

}  // namespace varve
