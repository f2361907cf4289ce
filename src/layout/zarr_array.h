#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "layout/array_type.h"
#include "layout/layout.h"
#include "varve/status.h"

namespace varve {

inline constexpr uint64_t kNoElementBytes = UINT64_MAX;

/// What a chunk's bytes went through.
struct ZarrCodec {
  std::string name;  ///< as the description calls it, without "numcodecs."
  /// Of `shuffle`, as numcodecs takes it: up to 1, nothing is shuffled; kNoElementBytes: what is said is no number.
  uint64_t element_bytes = 4;
  std::string compressor{};  ///< of `blosc`: by which it compresses; empty: not said
};

/// An array in Zarr's format, version 2 or 3: a folder with a description in JSON, and a file for each chunk.
struct ZarrArray {
  /// Of the whole, and of what lies in a chunk's file: slowest dimension first, as the cells lie there.
  std::vector<uint64_t> shape, chunk_shape;
  bool is_fortran_order = false;  ///< names of chunks have the numbers in the other order
  /// Chunks are compressed or filtered, by these, in the order in which they were applied to the elements' bytes.
  bool encoded = false;
  std::vector<ZarrCodec> codecs;
  /// Of the elements. Nothing: it is none that is known, such as a structure.
  std::optional<ArrayType> type;
  /// The bytes of each number in chunks that are not there, or of both of a pair if they differ. Nothing: the value is
  /// none that is known here.
  std::optional<ByteVector> fill;
  bool has_lead = false;  ///< names of chunks begin with `c`
};

/// What the files are called that describe an array, or a group of arrays.
inline constexpr std::string_view kZarr2ArrayFile = ".zarray";
inline constexpr std::string_view kZarr2GroupFile = ".zgroup";
inline constexpr std::string_view kZarr3File = "zarr.json";
inline constexpr uint64_t kZarrDescriptionBytesMax = 256_KiB;

/// The array that the contents of such a file describe. Zarr3File describes groups, too: those are no array.
/// unsupported: no array of these versions.
Result<ZarrArray> parse_zarr2_array(std::string_view json);
Result<ZarrArray> parse_zarr3_array(std::string_view json);

/// Which chunk of the array is called so, below the array's folder (`2.0`, `2/0`, `c/2/0`, `c.2.0`): how many are
/// before it in each dimension of `chunk_shape`. Nothing: none is.
std::optional<std::vector<uint64_t>> zarr_chunk_place(const ZarrArray& array, std::string_view name);

/// The layout of a chunk's file: a part of the array, or bytes that say nothing, but have its name. `name` begins with
/// '/'.
Layout zarr_chunk_layout(const ZarrArray& array, std::string name, uint64_t file_bytes);

}  // namespace varve
