#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace varve {

/// Something that lies at a place as a whole, such as an arena.
struct Load {
  uint64_t bytes = 0;
  uint32_t place = 0;
};

/// Where each load should lie, so that all places have about the same bytes; few bytes move. At the end no place has
/// more than another one by more than its own smallest load: nothing is left that could be moved and would make it
/// better; so from there no move is planned. Loads of no bytes stay.
std::vector<uint32_t> balanced_places(std::span<const Load> loads, uint32_t places);

}  // namespace varve
