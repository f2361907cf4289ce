#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/clock.h"
#include "core/sync.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// What a rank knows of the job's sets on all nodes. Where each node has a store of its own, or several groups save to
/// one, no rank sees by itself whether a set is complete, or never will be: each tells how far its own group is, as
/// some numbers that travel with whatever the ranks agree on anyway. What is known may lag behind what is, never lead.
/// Thread-safe: the program's thread tells and learns, the checkpoint thread notes and asks.
class JobSets {
 public:
  /// So many of the newest sets are told of. What is older and still unknown counts as not complete.
  static constexpr size_t kTold = 32;

  /// The set of this step begins to be saved; the same calls on all ranks.
  void note_begin(uint64_t step);
  /// By the leader of a group: what became of the group's part. Other ranks have nothing to tell.
  void note_own(uint64_t step, bool saved);
  /// From whatever source: all ranks have theirs; or an earlier run has left it so.
  void note_complete(uint64_t step);
  /// It is damaged, or about to be replaced, node by node: it is complete when all tell so again.
  void note_incomplete(uint64_t step);

  /// For an all_max() of all ranks, and what that came to.
  std::vector<uint64_t> tell(bool leads_group) const;
  struct News {
    std::vector<uint64_t> complete, failed;  ///< steps of which that was not known before
  };
  News learn(std::span<const uint64_t> told);

  bool is_complete(uint64_t step) const;
  /// Some group could not save its part.
  bool is_never_complete(uint64_t step) const;
  std::optional<uint64_t> newest_complete() const;

 private:
  /// How far a part is, so that the largest of all groups' is how far the set is.
  enum class Part : uint64_t { saved = 0, on_its_way = 1, failed = 2 };
  struct Told {
    uint64_t step = 0;
    Part own = Part::on_its_way;
  };

  mutable Mutex mutex_;    ///< guards all below
  std::deque<Told> told_;  ///< oldest first; the same steps on all ranks
  std::set<uint64_t> complete_, never_complete_;
};

/// The sets of `job` of which all nodes have what one earlier run has saved there: from the catalog of each node's own
/// store, which one rank of the node gives; the others none. Collective.
Result<std::vector<uint64_t>> agree_on_complete_sets(Communicator& ranks, const Store* own, Clock& clock,
                                                     const std::string& job, size_t node_count);

}  // namespace varve
