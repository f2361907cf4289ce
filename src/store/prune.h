#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/progress.h"
#include "store/catalog.h"
#include "store/commit.h"
#include "store/keep_rules.h"
#include "store/needs.h"
#include "store/store.h"

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

struct PruneOptions {
  KeepRules keep;        ///< without a rule, no set is dropped
  std::string job;       ///< only sets of this job are dropped; empty: of all
  bool dry_run = false;  ///< only say what would be dropped
  /// Arenas of which less than this share is still needed are rewritten. What lies in several arenas is needed in one
  /// of them only. 0: no arena is touched as long as a set needs anything of it, nor are arenas merged. So it is in
  /// any case where the store has what protects the sets of other nodes; also of what is marked already, unless it is
  /// damaged.
  double live_share_min = 0.5;
  /// Arenas smaller than this are merged where there are many; if wait_seconds > 0, since who cannot wait for writers
  /// would leave them marked, so that nobody refers to what they have.
  uint64_t merge_below_bytes = 64_MiB;
  /// How long to wait for writers that were at work before arenas were marked; what still waits then is left to the
  /// next prune.
  double wait_seconds = 30;
  /// A writer that shows no sign of life for so long is given up for dead, and has to start over if it is not. They
  /// give one every five seconds.
  double silence_seconds = kLeaseSilenceSeconds;
  /// Parts of sets (commit.h) that have waited so long for the others are given up.
  double part_seconds_max = 24 * 3600;
};

struct PruneReport {
  std::vector<SetName> dropped;
  uint64_t removed_arenas = 0;                 ///< nothing in them was needed, or it is elsewhere, or was copied first
  uint64_t rewritten_packs = 0;                ///< copied out of them
  uint64_t leftover_files = 0;                 ///< of saves that were killed, parts of sets among them
  uint64_t waiting_arenas = 0;                 ///< marked, but a writer is still at work: the next prune removes them
  uint64_t bytes_before = 0, bytes_after = 0;  ///< of all arenas
};

/// Drops sets by the policy, then gives back the space that no set needs. May run beside writers, readers and other
/// prunes (COMMIT.md). Refuses to remove anything if a set's tree cannot be
/// read, since what it needs is then unknown.
Result<PruneReport> prune_store(const Store& store, const PruneOptions& options,
                                ProgressSink& progress = null_progress());

}  // namespace varve
