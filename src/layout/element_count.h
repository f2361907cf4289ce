#pragma once

#include <cstdint>
#include <optional>

namespace varve {

/// The bytes of an array of this shape, or nothing if 64 bits do not hold them. An empty shape is a scalar.
/// `shape` is a container of 64-bit unsigned integers, of whatever name.
template <class Shape>
std::optional<uint64_t> array_bytes(const Shape& shape, uint64_t element_bytes) {
  uint64_t product = element_bytes;
  for (uint64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product)) return std::nullopt;
  }
  return product;
}

}  // namespace varve
