#include "core/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace varve {

namespace {
/// How many letters must be put in, left out or replaced to make `b` of `a` (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
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
