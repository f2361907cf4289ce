#include "store/balance.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace varve {

namespace {
/// The loads of one place, by their bytes; with their ordinals.
using BySize = std::set<std::pair<uint64_t, size_t>>;

/// What to move from a place that has `gap` more bytes than another one: the largest that leaves it the fuller of the
/// two; else the smallest that makes the other one fuller, but by less than the gap.
std::optional<BySize::iterator> choose(BySize& loads, uint64_t gap) {
  auto above = loads.upper_bound({gap / 2, SIZE_MAX});
  if (above != loads.begin() && std::prev(above)->first > 0) return std::prev(above);
  if (above != loads.end() && above->first < gap) return above;
  return std::nullopt;
}
}  // namespace

std::vector<uint32_t> balanced_places(std::span<const Load> loads, uint32_t places) {
  std::vector<uint32_t> place_of(loads.size());
  std::vector<uint64_t> bytes_of(places);
  std::vector<BySize> loads_of(places);
  for (size_t i = 0; i < loads.size(); ++i) {
    place_of[i] = loads[i].place;
    bytes_of[loads[i].place] += loads[i].bytes;
    loads_of[loads[i].place].emplace(loads[i].bytes, i);
  }
  std::vector<uint32_t> fullest_first(places);
  std::iota(fullest_first.begin(), fullest_first.end(), 0u);
  // Each move makes the sum of the squares smaller, so that it ends.
  for (bool moved = true; moved;) {
    moved = false;
    std::sort(fullest_first.begin(), fullest_first.end(),
              [&](uint32_t a, uint32_t b) { return std::pair(bytes_of[b], a) < std::pair(bytes_of[a], b); });
    const uint32_t to = fullest_first.back();
    for (const uint32_t from : fullest_first) {
      const auto chosen = choose(loads_of[from], bytes_of[from] - bytes_of[to]);
      if (!chosen) continue;
      const auto [bytes, load] = **chosen;
      loads_of[from].erase(*chosen);
      loads_of[to].emplace(bytes, load);
      bytes_of[from] -= bytes;
      bytes_of[to] += bytes;
      place_of[load] = to;
      moved = true;
      break;
    }
  }
  return place_of;
}

}  // namespace varve
