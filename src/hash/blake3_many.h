#pragma once

#include <span>

#include "hash/score.h"

namespace varve {

/// How many inputs hash_blake3_many() takes at most: the lanes of the widest vectors.
inline constexpr size_t kBlake3LanesMax = 16;
/// Whether inputs of this length can be hashed together: whole, balanced trees.
bool blake3_takes_many(size_t bytes);

/// BLAKE3 of several inputs of one length at once, the same bytes as one by one. A single input of 8 KiB fills half of
/// a vector register of 512 bits, and its tree a quarter and less. `inputs` are at most kBlake3LanesMax, `scores` as
/// many, and blake3_takes_many() is true of their length.
void hash_blake3_many(std::span<const ByteSpan> inputs, std::span<Score> scores);

}  // namespace varve
