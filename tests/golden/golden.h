#pragma once

#include <string>
#include <vector>

#include "core/step_text.h"
#include "sets/round_trip.h"

namespace varve::test {

/// The golden stores: small stores that are kept in the repository, so that whatever was saved once stays readable.
/// They are made by make_golden, and made anew only when the format's version changes; then the old ones stay as well.
struct GoldenStore {
  std::string folder;  ///< below tests/golden
  ScoreAlgorithm algorithm = ScoreAlgorithm::blake3;
  size_t score_bytes = 32;
};
std::vector<GoldenStore> golden_stores();

/// A set of every golden store: how it was saved.
struct GoldenSet {
  SetName name;
  Way way;
};
/// One for each codec chain, with schemes and chunkers in turn, and one for each thing else that the format can
/// express. In the order of their names.
std::vector<GoldenSet> golden_sets();

/// Fills `folder` with what was saved as this set: the same bytes, modes and times on every machine.
void make_golden_folder(const std::string& folder, const SetName& name);

/// The set that was saved, dropped and pruned to thin the packs of kThinnedSet.
inline const SetName kDroppedSet{"thinned", 1};
inline const SetName kThinnedSet{"thinned", 2};
/// A file that a program has deflated, one of frames of c-blosc, and lines of numbers.
inline const SetName kDeflatedSet{"deflated", 1};
inline const SetName kFramesSet{"frames", 1};
inline const SetName kTextSet{"text", 1};
/// Whose step is the time 0.02.
inline const SetName kTimeSet{"times", *step_of_time(0.02)};
/// Whose leaf describes small variables.
inline const SetName kSmallVariablesSet{"small", 1};
/// Whose variables predict each other, in each of the ways that there are.
inline const SetName kBundleSet{"bundle", 1};

}  // namespace varve::test
