#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/catalog.h"
#include "store/store.h"

namespace varve {

/// What the sets of a store need, and what may become sets: parts, and the leases of writers that are about to commit.
struct Needs {
  /// For each pack, the ranges of its raw bytes that are referred to; sorted and apart.
  std::unordered_map<Score, std::vector<Extent>, ScoreHash> packs;
  std::unordered_set<Score, ScoreHash> nodes;
  /// A lease could not be understood: its writer may be about to commit what is not listed here.
  bool uncertain = false;
};

/// Goes through the trees of all parts, leases and sets, in this order: what is needed moves on in it, and never back
/// (FORMAT.md, "Parts of a set"). Fails if one cannot be read, since what it needs is then unknown.
Result<Needs> needs_of_sets(const Store& store);

}  // namespace varve
