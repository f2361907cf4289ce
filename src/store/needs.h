#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/catalog.h"
#include "store/store.h"

namespace varve {

/// What the sets of a store need.
struct Needs {
  /// For each pack, the ranges of its raw bytes that are referred to; sorted and apart.
  std::unordered_map<Score, std::vector<Extent>, ScoreHash> packs;
  std::unordered_set<Score, ScoreHash> nodes;
};

/// Goes through the trees of all sets. Fails if one cannot be read, since what it needs is then unknown.
Result<Needs> needs_of_sets(const Store& store);

}  // namespace varve
