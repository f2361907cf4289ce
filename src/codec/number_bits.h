#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/kernels.h"

// What kernels do to a single number.

namespace varve::kernels {

template <class T>
constexpr unsigned kBits = 8 * sizeof(T);
template <class T>
constexpr T kSign = static_cast<T>(T{1} << (kBits<T> - 1));

template <class T>
VARVE_KERNEL_BODY T swap_bytes(T value) {
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
  return value;
}

/// All bits of negatives flipped, the sign bit of positives: then unsigned order is value order.
template <class T>
VARVE_KERNEL_BODY T to_ordered(T bits) {
  const T negative = static_cast<T>(T{0} - static_cast<T>(bits >> (kBits<T> - 1)));
  return static_cast<T>(bits ^ (negative | kSign<T>));
}
template <class T>
VARVE_KERNEL_BODY T from_ordered(T ordered) {
  const T negative = static_cast<T>(static_cast<T>(ordered >> (kBits<T> - 1)) - T{1});
  return static_cast<T>(ordered ^ (negative | kSign<T>));
}
/// The sign bit as the lowest: what crosses zero does not jump from one end of the integers to the other.
template <class T>
VARVE_KERNEL_BODY T to_sign_last(T bits) {
  return static_cast<T>(static_cast<T>(bits << 1) | static_cast<T>(bits >> (kBits<T> - 1)));
}
template <class T>
VARVE_KERNEL_BODY T from_sign_last(T value) {
  return static_cast<T>(static_cast<T>(value >> 1) | static_cast<T>(value << (kBits<T> - 1)));
}
template <class T>
VARVE_KERNEL_BODY T to_zigzag(T difference) {
  const T negative = static_cast<T>(T{0} - static_cast<T>(difference >> (kBits<T> - 1)));
  return static_cast<T>(static_cast<T>(difference << 1) ^ negative);
}
template <class T>
VARVE_KERNEL_BODY T from_zigzag(T code) {
  return static_cast<T>(static_cast<T>(code >> 1) ^ static_cast<T>(T{0} - static_cast<T>(code & 1)));
}

template <class T>
VARVE_KERNEL_BODY T load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
VARVE_KERNEL_BODY void store(std::byte* to, size_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

/// The integers that numbers are taken as.
enum class NumberMap { itself, ordered, sign_last };

/// Loads a number as it lies in the pack, and stores it so.
template <class T, bool kSwap, NumberMap kMap>
struct Number {
  static VARVE_KERNEL_BODY T get(const std::byte* from, size_t index) {
    T value = load<T>(from, index);
    if constexpr (kSwap) value = swap_bytes(value);
    if constexpr (kMap == NumberMap::ordered) value = to_ordered(value);
    if constexpr (kMap == NumberMap::sign_last) value = to_sign_last(value);
    return value;
  }
  static VARVE_KERNEL_BODY void put(std::byte* to, size_t index, T value) {
    if constexpr (kMap == NumberMap::ordered) value = from_ordered(value);
    if constexpr (kMap == NumberMap::sign_last) value = from_sign_last(value);
    if constexpr (kSwap) value = swap_bytes(value);
    store(to, index, value);
  }
};

/// The value of `bytes` bytes in either order, at any width: the plain twins of kernels work on 64-bit values and a
/// mask.
inline uint64_t load_number(const std::byte* from, NumberFormat format) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < format.bytes; ++i) {
    value = value << 8 | static_cast<uint64_t>(from[format.big_endian ? i : format.bytes - 1 - i]);
  }
  return value;
}
inline void store_number(std::byte* to, NumberFormat format, uint64_t value) {
  for (uint32_t i = 0; i < format.bytes; ++i) {
    to[format.big_endian ? format.bytes - 1 - i : i] = static_cast<std::byte>(value >> (8 * i));
  }
}

/// The maps above, as they are defined.
struct PlainMath {
  explicit PlainMath(NumberFormat number_format)
      : format(number_format), sign(uint64_t{1} << (8 * number_format.bytes - 1)), mask(sign | (sign - 1)) {}
  uint64_t ordered(uint64_t bits) const {
    return !format.floating ? bits : (bits & sign) != 0 ? bits ^ mask : bits ^ sign;
  }
  uint64_t unordered(uint64_t value) const {
    return !format.floating ? value : (value & sign) != 0 ? value ^ sign : value ^ mask;
  }
  uint64_t to_integer(uint64_t bits) const {
    return !format.sign_last ? ordered(bits) : (bits << 1 & mask) | ((bits & sign) != 0 ? 1 : 0);
  }
  uint64_t from_integer(uint64_t value) const {
    return !format.sign_last ? unordered(value) : value >> 1 | ((value & 1) != 0 ? sign : 0);
  }
  uint64_t zigzag(uint64_t value) const { return (value & sign) != 0 ? (~value << 1 | 1) & mask : value << 1; }
  uint64_t unzigzag(uint64_t code) const { return (code & 1) != 0 ? ~(code >> 1) & mask : code >> 1; }

  NumberFormat format;
  uint64_t sign;
  uint64_t mask;
};

}  // namespace varve::kernels
