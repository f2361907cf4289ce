#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/unique_id.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// A snapshot that a dead run left in the memory of a rank's node, for this rank.
struct MemoryStep {
  UniqueId run;
  uint64_t step = 0;
  uint32_t rank_count = 0;  ///< of that run
  bool operator==(const MemoryStep&) const = default;
};

/// Something that all ranks could restart from.
struct RestartCandidate {
  uint64_t step = 0;
  std::optional<UniqueId> memory_run{};  ///< all ranks have that run's snapshot in memory; none: it is a set of a store
  uint32_t level = 0;                    ///< ordinal of the level, nearest first
  std::string place = "the store";       ///< of the set, for people
  bool operator==(const RestartCandidate&) const = default;

  /// "step 7 in memory", "step 7 in the store".
  std::string to_string() const;
};

/// The steps of the sets in a store, nearest store first.
struct StoreSteps {
  std::vector<uint64_t> steps{};
  std::string place = "the store";  ///< for people
  uint32_t level = 0;               ///< ordinal of the level
};

/// What there is, the newest step first, and of one step what is in memory first, then what is in the nearest store. Of
/// memory only what all ranks have counts, of the same run: snapshots of different runs do not belong together. A set
/// counts if any rank sees it. invalid_argument if the newest of all was left in memory by a run of another number of
/// ranks, as to go on without it would give it up.
Result<std::vector<RestartCandidate>> restart_candidates(const std::vector<std::vector<MemoryStep>>& memory_by_rank,
                                                         const std::vector<StoreSteps>& stores);

/// The same on all ranks: each tells what it has in memory, and which sets it sees in the stores, whose places are the
/// same on all. Of a store that all ranks share, one rank's word is enough. Collective.
Result<std::vector<RestartCandidate>> agree_on_candidates(Communicator& ranks, const std::vector<MemoryStep>& memory,
                                                          std::vector<StoreSteps> stores);

}  // namespace varve
