#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "varve/status.h"
#include "watch/set_pattern.h"

namespace varve {

/// Folders of ranks, in each of which the sets are folders, as OpenFOAM has them: `processor0/0.1`, `processor1/0.1`.
struct RankFolders {
  SetPattern pattern;        ///< `processor{rank}/{time}/**`
  size_t count = 0;          ///< of the folders
  bool are_all_sets = true;  ///< nothing beside them, but times, would be a set by SetPattern::kDefault
};

/// Whether the folders in `folder` whose names end with a number are ranks', and not sets: a word says so
/// (names_rank()), and all of them have folders of the same names, which are numbers or times. Of one alone a time is
/// wanted. Without such a word they may be as many runs, with the same times in each, which are not to become one.
/// None: they are not, or it cannot be told. Looks only.
Result<std::optional<RankFolders>> find_rank_folders(const std::string& folder);

}  // namespace varve
