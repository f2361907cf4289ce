#pragma once

#include "codec/codec.h"
#include "codec/kernels.h"

namespace varve {

/// At most so many dimensions of an array are used for prediction, the fastest ones.
inline constexpr size_t kPredictedDimensionsMax = 3;
/// Runs shorter than this are joined: to start anew at each of them would cost more than the step from one to the next.
inline constexpr uint64_t kRunElementsMin = 64;
/// How many runs `elements` elements may have: bounds what a hostile list makes a decoder allocate.
constexpr uint64_t runs_max(uint64_t elements) { return 2 * (elements / kRunElementsMin) + 2; }

/// A run as the predicting codecs write it: FORMAT.md, "Runs".
struct NumberRun {
  uint64_t elements = 0;
  std::array<uint64_t, kPredictedDimensionsMax> dims{};  ///< {nx, ny, nz}; only the first dimension_count count
  size_t dimension_count = 1;
  bool whole = false;  ///< elements is the product of dims
  bool operator==(const NumberRun&) const = default;

  uint64_t dim(size_t index) const { return index < dimension_count ? dims[index] : 1; }
};

/// Whether `type` is a number of 1, 2, 4 or 8 bytes.
bool is_machine_number(const ElementType& type);
kernels::NumberFormat number_format(const ElementType& type);

/// The runs of `shape` cut to cover exactly `elements` elements; what they leave over becomes one 1-D run, and so do
/// short neighbours.
std::vector<NumberRun> number_runs(const PackShape& shape, uint64_t elements);

/// The differences along so many dimensions of each run, the fastest ones: the Lorenzo predictor.
std::vector<kernels::DifferenceRun> difference_runs(const std::vector<NumberRun>& runs,
                                                    size_t dimensions_max = kPredictedDimensionsMax);

/// FORMAT.md, "Number format": log2 of the bytes | big-endian << 2 | floating << 3.
uint8_t pack_number_format(kernels::NumberFormat format);
Result<kernels::NumberFormat> unpack_number_format(uint8_t code);

void write_runs(ByteWriter& writer, const std::vector<NumberRun>& runs);
/// `corrupt` unless the runs cover exactly `elements` elements.
Result<std::vector<NumberRun>> read_runs(ByteReader& reader, uint64_t elements);

/// The shortest of the likely periods (the element's size; 1, 2, 4 and 8 bytes) at which `bytes` repeat from end to
/// end, or 0. As fast as memory where they do, immediate where they do not.
size_t find_period(ByteSpan bytes, const ElementType& type);

/// Whether `bytes` are text at all places that are looked at, so that nothing in them is a number of several bytes.
bool seems_text(ByteSpan bytes);

}  // namespace varve
