#pragma once

#include <cstdint>
#include <optional>
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

  /// The bytes as a pack of these numbers, once `phase` bytes are gone from their front.
  PackShape shape_of(uint64_t raw_bytes) const;
  bool operator==(const NumberGuess&) const = default;
};

/// What predictions by such a guess leave of the bits of these numbers: NumberGuess::cost.
double cost_as(ByteSpan raw, const NumberGuess& guess);

/// The most likely guess; none: nothing predicts them. `last`, of bytes like these, is kept if it fits as well here,
/// which takes microseconds; all else takes a millisecond or two for a megabyte.
std::optional<NumberGuess> guess_numbers(ByteSpan raw, const std::optional<NumberGuess>& last);

}  // namespace varve
