#include "core/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace varve {

namespace {
/// How many letters must be put in, left out, replaced or exchanged with their neighbour to make `b` of `a`.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({above[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, above[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], two_above[j - 1] + 1);
    }
  }
  return row[b.size()];
}
}  // namespace

std::string_view nearest_word(std::string_view mistyped, std::span<const std::string_view> words) {
  std::string_view nearest;
  size_t least = std::min<size_t>(2, mistyped.size() / 3) + 1;
  for (const std::string_view word : words) {
    const size_t distance = edit_distance(mistyped, word);
    if (distance < least) {
      least = distance;
      nearest = word;
    }
  }
  return nearest;
}

}  // namespace varve
