#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout.h"
#include "varve/element_type.h"

namespace varve {

/// Formats of layouts whose names mean something to others (Layout::format).
inline constexpr std::string_view kHdf5Format = "hdf5";
inline constexpr std::string_view kNpyFormat = "npy";
inline constexpr std::string_view kNpzFormat = "npz";
inline constexpr std::string_view kTorchFormat = "torch";
inline constexpr std::string_view kSafetensorsFormat = "safetensors";
inline constexpr std::string_view kZarrFormat = "zarr";

/// The type of an array's elements, as libraries of arrays name it.
struct ArrayType {
  ElementType type;
  /// Each element is two of `type`, a complex number: they are the array's fastest dimension.
  bool pairs = false;

  uint64_t bytes() const { return uint64_t{type.bytes} * (pairs ? 2 : 1); }
  bool operator==(const ArrayType&) const = default;
};

/// As numpy writes it: `<f8`, `>i4`, `|b1`, `<c16`, `<U10`, `|V12`, `<M8[ns]`. Nothing: it is not such a type, or its
/// elements are objects.
std::optional<ArrayType> numpy_type(std::string_view text);

/// By the name that torch and Zarr have for it: `float64`, `bfloat16`, `uint8`, `bool`, `complex64`. Numbers of kinds
/// that no element type means (`bfloat16`, `float8_e5m2`) are opaque elements of their size. Nothing: no such name.
std::optional<ArrayType> named_array_type(std::string_view name, ByteOrder order = ByteOrder::little);

/// The array of this shape, slowest dimension first, whose bytes are those of `place`. Nothing: it has others.
std::optional<Variable> plain_array(std::string name, const ArrayType& type, std::vector<uint64_t> shape, Extent place);

/// Bytes about which nothing else is known. `encoded`: a program has compressed or encrypted them.
Variable bytes_variable(std::string name, Extent place, bool encoded = false);

}  // namespace varve
