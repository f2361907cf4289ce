#pragma once

#include <vector>

#include "arena/arena_reader.h"
#include "layout/layout.h"

namespace varve {

/// Adds a range of a pack's raw bytes to those that are referred to. Many sets that refer to the same cost no more than
/// one.
void add_range(std::vector<Extent>& ranges, const Extent& range);

/// Sorts ranges and joins those that touch or overlap.
void join_ranges(std::vector<Extent>& ranges);

/// Which chunks of a pack lie in the (joined) ranges.
std::vector<bool> chunks_in_ranges(const PackMeta& meta, const std::vector<Extent>& ranges);

/// Whether the copy of a pack in `arena` is long enough for the (joined) ranges and holds every chunk in them.
bool holds_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);

/// Whether that copy can be read, and every chunk in the ranges is what its score says.
bool reads_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges);

}  // namespace varve
