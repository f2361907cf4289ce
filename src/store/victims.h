#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "core/progress.h"
#include "store/needs.h"

namespace varve {

/// What a prune gives up, beside what nobody needs.
struct VictimRules {
  /// Arenas of which less than this share is needed are given up. 0: only those of which nothing is needed at all, so
  /// that nothing is moved.
  double live_share_min = 0.5;
  /// Arenas smaller than this are merged where there are many. 0: none.
  uint64_t merge_below_bytes = 0;
};

/// How much of an arena's packs and nodes, in bytes, is needed by anybody; whatever other arenas have.
double needed_bytes(const ArenaReader& arena, const Needs& needs);

/// The arenas of `candidates` that a prune is to give up. Of what lies in several of them, one copy is counted as
/// needed, which is the same one for every prune: so the others go. A pack of which no copy has all that is needed is
/// counted in each. This is a choice only: what is needed of an arena is looked for when it is removed (evacuation.h),
/// and no arena is relied on since it was counted here.
Result<std::set<ArenaId>> choose_victims(const Store& store, const std::vector<ArenaId>& candidates, const Needs& needs,
                                         const VictimRules& rules, ProgressSink& progress);

}  // namespace varve
