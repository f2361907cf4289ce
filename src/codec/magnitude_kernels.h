#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string_view>
#include <vector>

#include "core/bytes.h"

namespace varve::kernels {

// A number, little-endian and not negative, is told by its magnitude, a byte that names its highest three bits and
// where they lie, and the bits below these as they are. Magnitudes are entropy-coded by what is near them; 16 numbers
// at a time, each by a coder of its own. FORMAT.md, "magnitudes".

/// Of a number below 8, itself; of any other, four for each bit below its highest three, and these.
constexpr uint8_t magnitude_of(uint64_t number) {
  const int below = std::max(static_cast<int>(std::bit_width(number)) - 3, 0);
  return static_cast<uint8_t>(4 * static_cast<unsigned>(below) + static_cast<unsigned>(number >> below));
}
/// How many bits are told as they are.
constexpr unsigned bits_below(uint32_t magnitude) { return std::max(magnitude / 4, 1u) - 1; }
/// The first number of a magnitude.
constexpr uint64_t least_of(uint32_t magnitude) {
  return uint64_t{magnitude - 4 * bits_below(magnitude)} << bits_below(magnitude);
}
/// How many magnitudes numbers of so many bytes have.
constexpr size_t magnitude_count(size_t number_bytes) { return 32 * number_bytes - 4; }

inline constexpr size_t kMagnitudeLanes = 16;
/// Distances from this on reach no number that is decoded in the same step.
inline constexpr size_t kMagnitudeDistanceMin = kMagnitudeLanes + 1;
/// How many contexts there are, which the magnitudes near a number make.
inline constexpr size_t kMagnitudeContexts = 64;
/// Contexts share so many tables of frequencies.
inline constexpr size_t kMagnitudeTablesMax = 16;
/// Frequencies of a table sum up to 2 to the power of this.
inline constexpr unsigned kMagnitudeScaleBits = 12;
inline constexpr uint32_t kMagnitudeScale = 1u << kMagnitudeScaleBits;
/// The code, and the bits, begin with the state of their coders.
inline constexpr size_t kMagnitudeStateBytes = kMagnitudeLanes * 4, kBitsStateBytes = kMagnitudeLanes / 2 * 5;

/// A pack is cut into so many parts of equally many numbers, which are coded side by side, as each step waits for the
/// one before it.
inline constexpr size_t kMagnitudeStrands = 2;
/// What a pack takes beside tables, code and bits of its numbers.
inline constexpr size_t kMagnitudesOnceBytes = kMagnitudeStrands * (kMagnitudeStateBytes + kBitsStateBytes);

/// How often each magnitude is expected in each context. All frequencies of a table sum up to kMagnitudeScale.
struct MagnitudeTables {
  std::array<uint8_t, kMagnitudeContexts> table_of{};
  std::vector<std::array<uint16_t, 256>> frequencies;
};

/// The context of a number, by the magnitudes of the one `distance` before it and of that one's neighbours.
inline size_t context_of(const uint8_t* magnitude, size_t distance) {
  const uint8_t* above = magnitude - distance;
  const unsigned beside = (above[-1] + above[1] + 1u) / 2;
  return (beside + above[0] + 1u) / 2 / 4;
}

/// Numbers come in so many at least.
inline constexpr size_t kMagnitudeStride = kMagnitudeStrands * kMagnitudeLanes;

/// A part before it is encoded. `magnitudes` has one byte a number, and zeros before them.
struct StrandToEncode {
  ByteSpan numbers;
  const uint8_t* magnitudes = nullptr;
  MutableByteSpan code, bits;  ///< the rooms; afterwards what is used of them, which is their ends
};
struct StrandToDecode {
  ByteSpan code, bits;
  uint8_t* magnitudes = nullptr;  ///< as above
  MutableByteSpan numbers;
};
/// Room that so many numbers may need, with what a kernel may write in front of what it uses.
constexpr size_t code_bytes_max(size_t numbers) { return numbers * 2 + kMagnitudeStateBytes + 64; }
constexpr size_t bits_bytes_max(size_t number_bytes, size_t numbers) {
  return numbers * number_bytes + kBitsStateBytes + 128;
}

/// The kernels as they are written for one sort of processor. `magnitudes` have `distance` + 1 bytes of zeros before
/// them; distances are at least kMagnitudeDistanceMin, and the counts of numbers multiples of kMagnitudeLanes.
struct MagnitudeKernels {
  std::string_view name;
  void (*measure)(size_t number_bytes, ByteSpan numbers, uint8_t* magnitudes);
  /// Every magnitude must have a frequency in its context.
  void (*encode)(size_t number_bytes, std::span<StrandToEncode, kMagnitudeStrands> strands, size_t distance,
                 const MagnitudeTables& tables);
  /// False if these are not what encode() made of so many numbers.
  bool (*decode)(size_t number_bytes, std::span<const StrandToDecode, kMagnitudeStrands> strands, size_t distance,
                 const MagnitudeTables& tables);
};
/// All that this machine can run, the slowest first: that is the one written as the format defines it, with which the
/// others must agree. The last is the one to use.
std::span<const MagnitudeKernels> magnitude_kernels();

}  // namespace varve::kernels
