#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "layout/layout.h"
#include "varve/element_type.h"
#include "varve/status.h"

namespace varve {

/// What a user says about files that describe nothing themselves: a header of `header_bytes`, then one array.
struct RawDescription {
  ElementType type;
  std::vector<uint64_t>
      shape;  ///< slowest dimension first; empty: as many elements as the file holds, in one dimension
  uint64_t header_bytes = 0;
  bool operator==(const RawDescription&) const = default;
};

/// Parses `TYPE[:N,N,...][@HEADER_BYTES]`, such as `f64:128,128,64`, `f32be` or `i32:1000@512`.
/// Types are written as ElementType::parse takes them. invalid_argument: anything else.
Result<RawDescription> parse_raw_description(std::string_view text);

/// The layout of a file that `description` describes: one variable named `variable_name` after a skeleton of the
/// header. invalid_argument: its size is not the file's.
Result<Layout> raw_layout(const RawDescription& description, uint64_t file_bytes, std::string variable_name);

/// A sidecar file describes a raw file beside it, whose name it bears with this ending.
inline constexpr std::string_view kSidecarSuffix = ".varve-layout";
inline constexpr uint64_t kSidecarBytesMax = 64_MiB;

/// The layout that a sidecar file describes. It is JSON:
///
///     { "variables": [ { "name": "/Fluid/Temperature", "type": "f64", "shape": [128, 128], "offset": 512 }, ... ] }
///
/// `type` is written as ElementType::parse() takes it, `shape` has the slowest dimension first (default: a scalar),
/// `offset` is where the array begins, in bytes from the file's start (default: where the variable before it ends).
/// What no variable covers is skeleton. Other members are ignored. invalid_argument: not such a description, or it does
/// not fit a file of `file_bytes`.
Result<Layout> sidecar_layout(std::string_view json, uint64_t file_bytes);

/// Where the part of a file's variable lies in the array that the ranks have together.
struct SidecarPlace {
  std::string name;                     ///< of the variable
  std::vector<uint64_t> global_shape;   ///< slowest dimension first
  std::vector<uint64_t> global_offset;  ///< of the part's first cell
};

/// By what name a sidecar and a program mean the same variable: those in files mostly begin with a slash.
inline std::string_view bare_name(std::string_view name) { return name.starts_with('/') ? name.substr(1) : name; }

/// What a sidecar says of that, also one beside a file of a known format, whose layout it does not describe: of each
/// variable with the members `global_shape` and `global_offset` (default: the beginning), which are written as `shape`
/// is. Each offset lies in its shape, of the same dimensions, and 64 bits hold the number of the shape's cells.
/// invalid_argument: it is no sidecar, or these make no sense; resource_limit: it is too large.
Result<std::vector<SidecarPlace>> sidecar_places(std::string_view json);

}  // namespace varve
