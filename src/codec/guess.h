#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "codec/codec.h"

namespace varve {

/// What bytes of unknown meaning seem to be: numbers of one kind, since what came shortly before says much of each.
struct NumberGuess {
  ElementType type;
  uint32_t phase = 0;          ///< bytes before the first whole number
  uint64_t record = 1;         ///< a number is like the one so many before it: more than 1 of tables of records
  std::vector<uint64_t> dims;  ///< of the array that they seem to be, fastest first; empty: no rows are seen
  double cost = 1;             ///< the bits that predictions leave of each, by its bits
  bool sign_last = false;      ///< floats of like size, of any sign: nothing else predicts them

  /// The bytes as a pack of these numbers, once `phase` bytes are gone from their front.
  PackShape shape_of(uint64_t raw_bytes) const;
  bool operator==(const NumberGuess&) const = default;
};

/// A part of bytes of unknown meaning that is of one kind.
struct Region {
  uint64_t bytes = 0;
  std::optional<ElementType> type;  ///< of the numbers that it seems to be
};
/// Where numbers of one kind end and others begin, or other bytes: regions of 64 KiB at least, but for the last, which
/// cover all of `raw`. One: it is all alike, or too short. Takes a quarter of a millisecond for a megabyte.
std::vector<Region> find_regions(ByteSpan raw);

/// What predictions by such a guess leave of the bits of these numbers: NumberGuess::cost.
double cost_as(ByteSpan raw, const NumberGuess& guess);

/// Whether the guess, of bytes like these, leaves about as little of these. Takes microseconds.
bool fits(ByteSpan raw, const NumberGuess& guess);

/// The most likely guess; none: nothing predicts them. One of those that are `known` from bytes like these is kept if
/// it fits as well here, which takes microseconds; all else takes a millisecond or two for a megabyte. `type`: of the
/// numbers, if that is known; then only where they begin, records and rows are guessed.
std::optional<NumberGuess> guess_numbers(ByteSpan raw, std::span<const NumberGuess> known,
                                         const ElementType& type = {});

}  // namespace varve
