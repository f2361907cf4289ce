#include "store/pack_ranges.h"

#include <algorithm>

namespace varve {

namespace {
/// How many ranges are added before they are joined again.
constexpr size_t kLooseRangesMax = 256;
}  // namespace

void add_range(std::vector<Extent>& ranges, const Extent& range) {
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes == range.offset) {
    ranges.back().bytes += range.bytes;
    return;
  }
  ranges.push_back(range);
  if (ranges.size() % kLooseRangesMax == 0) join_ranges(ranges);
}

void join_ranges(std::vector<Extent>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  size_t last = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    const uint64_t end = ranges[last].offset + ranges[last].bytes;
    if (ranges[i].offset > end) {
      ranges[++last] = ranges[i];
    } else {
      ranges[last].bytes = std::max(end, ranges[i].offset + ranges[i].bytes) - ranges[last].offset;
    }
  }
  if (!ranges.empty()) ranges.resize(last + 1);
}

std::vector<bool> chunks_in_ranges(const PackMeta& meta, const std::vector<Extent>& ranges) {
  std::vector<bool> inside(meta.chunks.size(), false);
  size_t range = 0;
  uint64_t reach = 0;  // end of all ranges that begin before the chunk's end
  uint64_t offset = 0;
  for (size_t i = 0; i < meta.chunks.size(); ++i) {
    const uint64_t end = offset + meta.chunks[i].bytes;
    for (; range < ranges.size() && ranges[range].offset < end; ++range)
      reach = std::max(reach, ranges[range].offset + ranges[range].bytes);
    inside[i] = reach > offset;
    offset = end;
  }
  return inside;
}

bool holds_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  const FrameEntry& entry = arena.index().packs[ordinal];
  if (!ranges.empty() && ranges.back().offset + ranges.back().bytes > entry.raw_bytes) return false;
  if (entry.missing_bytes == 0) return true;
  Result<PackMeta> meta = arena.read_pack_meta(ordinal);
  if (!meta.ok()) return false;
  const std::vector<bool> needed = chunks_in_ranges(*meta, ranges), held = meta->held();
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] && !held[i]) return false;
  }
  return true;
}

bool reads_ranges(const ArenaReader& arena, size_t ordinal, const std::vector<Extent>& ranges) {
  Result<Pack> pack = arena.read_pack(ordinal);
  return pack.ok() && std::all_of(ranges.begin(), ranges.end(),
                                  [&](const Extent& range) { return pack->range(range.offset, range.bytes).ok(); });
}

}  // namespace varve
