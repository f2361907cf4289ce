#pragma once

#include <cstdint>
#include <string>

#include "varve/status.h"

namespace varve {

enum class ElementKind : uint8_t { opaque = 0, signed_integer = 1, unsigned_integer = 2, floating = 3, text = 4 };
enum class ByteOrder : uint8_t { little = 0, big = 1 };

/// The type of one element of a variable, as it lies in the file or in memory.
struct ElementType {
  ElementKind kind = ElementKind::opaque;
  ByteOrder order = ByteOrder::little;  ///< of numbers; always little for one-byte, opaque and text elements
  uint32_t bytes = 1;                   ///< of one element, at least 1

  bool operator==(const ElementType&) const = default;
  bool numeric() const { return kind != ElementKind::opaque && kind != ElementKind::text; }

  /// The name used in class keys and on the screen: F32LE, F64BE, I32LE, U8, T80 (text of 80 bytes), O12 (opaque of 12
  /// bytes), BYTES (opaque of 1).
  std::string name() const;
  /// The reverse of name(); also takes `f64`, `i32`, `u8`, `f32be` and the like (little-endian unless said).
  static Result<ElementType> parse(std::string_view name);
};

}  // namespace varve
