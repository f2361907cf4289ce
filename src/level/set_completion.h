#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/sync.h"
#include "snapshot/control_block.h"
#include "snapshot/shared_segment.h"
#include "store/commit.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// Makes the set of which a group has published its part, or sees that another group has done it, or that nobody will.
class SetCompletion {
 public:
  struct Set {
    SetRecord record;
    bool by_us = false;  ///< of all groups, this one committed it
  };

  /// `part` is the record of the part `own`, which is published.
  SetCompletion(const Store& store, PartName own, SetRecord part, IfExists if_exists, PartNames names)
      : store_(store), own_(std::move(own)), part_(std::move(part)), if_exists_(if_exists), names_(names) {}

  /// The set; or nothing, as parts are missing that may still come. Fails if there will be none: already_exists (there
  /// is another of that name), as another group has told why it could not write its part, io_error (another group has
  /// gone on without a word), or as the store does, time after time.
  Result<std::optional<Set>> try_now();
  /// What all parts say, in their order, as their writers have told: so the next try need not read them. One that makes
  /// no sense, or was told of another checkpoint of this step, is read, as all others are.
  void note_told(std::span<const ByteVector> parts);
  /// The same where others make it: only looks.
  Result<std::optional<Set>> look() { return look_at_catalog(Status::not_found("it is not looked for")); }
  /// The same by two questions, however many parts there are, unless the own one is gone. It does not see that another
  /// group has failed.
  Result<std::optional<Set>> look_briefly();
  /// The groups whose parts have not come, as far as can be seen now.
  std::vector<uint32_t> missing() const;
  /// Takes the own part back, as it will be of no use.
  Status withdraw();

 private:
  Result<std::optional<Set>> attempt();
  Result<std::optional<Set>> look_at_catalog(const Status& why);
  Result<std::optional<Set>> look_at_parts();
  /// Whether a set of a later step is of the same run.
  bool has_newer_of_run() const;
  Result<std::optional<Set>> wait_for_others(const ListedParts& parts) const;
  Status failure_of_others(const ListedParts& parts) const;

  const Store& store_;
  const PartName own_;
  const SetRecord part_;
  const IfExists if_exists_;
  const PartNames names_;
  std::optional<std::vector<SetRecord>> told_;
  uint32_t failures_ = 0;
};

/// Own parts of sets, published in a store where others' parts are still to come. One thread at a time.
class WaitingParts {
 public:
  void add(uint64_t step, std::unique_ptr<SetCompletion> completion);
  bool empty() const { return parts_.empty(); }
  /// Until the others' parts are looked for again; none: there are no parts.
  std::optional<std::chrono::milliseconds> pause() const;
  /// Nothing has come meanwhile.
  void lengthen_pause();

  struct News {
    std::vector<uint64_t> complete;                   ///< steps
    std::vector<std::pair<uint64_t, Status>> failed;  ///< and why; the part was withdrawn
  };
  /// Sees which sets are complete by now, or never will be.
  News look();
  /// Takes back what lacks others still; returns the steps.
  std::vector<uint64_t> withdraw();

 private:
  struct Published {
    uint64_t step = 0;
    std::unique_ptr<SetCompletion> completion;
  };
  std::deque<Published> parts_;
  std::chrono::milliseconds pause_{0};
};

/// Leaders of other groups on this node, as far as their memory tells how far they are.
class GroupSiblings {
 public:
  explicit GroupSiblings(const std::vector<SegmentOwner>& leaders);
  /// Whether one of them will do nothing more for the set of `step`: it gave it up, saw it complete, or died. Ask this,
  /// and then look for the set.
  bool any_is_done_with(uint64_t step) const;

 private:
  std::vector<ControlBlock> leaders_;
};

/// What a rank knows of the job's sets on all nodes. Where several groups save, to one store or each node to its own,
/// no rank sees by itself whether a set is complete, or never will be: each tells how far its own group is, as some
/// numbers that travel with whatever the ranks agree on anyway. What is known may lag behind what is, never lead.
/// Thread-safe: the program's thread tells and learns, the checkpoint thread notes and asks.
class JobSets {
 public:
  /// So many of the newest sets are told of. What is older and still unknown counts as not complete.
  static constexpr size_t kTold = 32;

  /// The set of this step begins to be saved; the same calls on all ranks.
  void note_begin(uint64_t step);
  // By the leader of a group; other ranks have nothing to tell

  /// The group's part is published. `makes_sets`: it is the one that makes the set of all that are in that store.
  void note_published(uint64_t step, bool makes_sets);
  /// What became of it: there is the set, as far as the group sees; or there will be none.
  void note_own(uint64_t step, bool saved);

  /// From whatever source: all ranks have theirs; or an earlier run has left it so.
  void note_complete(uint64_t step);
  /// These are all that are complete: of older ones, some nodes may have dropped theirs.
  void note_all_complete(const std::vector<uint64_t>& steps);
  /// It is damaged, or about to be replaced, node by node: it is complete when all tell so again.
  void note_incomplete(uint64_t step);

  /// It is dropped everywhere, while nothing is on its way; the same calls on all ranks. Of others it is not known any
  /// more that they are there: each node, or the store that all share, may have dropped older ones.
  void note_dropped(uint64_t step);
  /// The run goes on from this step; none: from its begin. What is later is none of its sets, complete as it may be.
  void go_on_from(std::optional<uint64_t> step);
  /// The run has loaded this step, which the program may still reject, as it has made no checkpoint since; none: it is
  /// past that.
  void note_on_trial(std::optional<uint64_t> step);
  bool is_on_trial(uint64_t step) const;
  /// The run goes back, and may make the same steps again. Nothing of it is on its way.
  void forget_told();

  /// For an all_max() of all ranks, and what that came to.
  std::vector<uint64_t> tell(bool leads_group) const;
  struct News {
    std::vector<uint64_t> complete, failed;  ///< steps of which that was not known before
    std::vector<uint64_t> all_there;         ///< steps of which all parts are published, and not all sets made
    bool any_saved = false;                  ///< of those that are told of, all groups have one, known before or not
  };
  News learn(std::span<const uint64_t> told);

  bool is_complete(uint64_t step) const;
  /// Some group could not save its part.
  bool is_never_complete(uint64_t step) const;
  /// But for what the run has left behind.
  std::optional<uint64_t> newest_complete() const;

 private:
  /// How far a group is, so that the largest of all groups' is how far the set is.
  enum class Part : uint64_t { saved = 0, to_be_completed = 1, on_its_way = 2, failed = 3 };
  struct Told {
    uint64_t step = 0;
    Part own = Part::on_its_way;
  };

  void note(uint64_t step, Part own);

  mutable Mutex mutex_;
  std::deque<Told> told_ VARVE_GUARDED_BY(mutex_);  ///< oldest first; the same steps on all ranks
  std::set<uint64_t> complete_ VARVE_GUARDED_BY(mutex_), never_complete_ VARVE_GUARDED_BY(mutex_);
  std::set<uint64_t> left_behind_
      VARVE_GUARDED_BY(mutex_);  ///< complete, and later than where the run has gone on from
  std::optional<uint64_t> on_trial_ VARVE_GUARDED_BY(mutex_);
};

/// The sets of `job` of which all nodes have what one earlier run has saved there: from the catalog of each node's own
/// store, which one rank of the node gives; the others none. Collective.
Result<std::vector<uint64_t>> agree_on_complete_sets(Communicator& ranks, const Store* own, Clock& clock,
                                                     const std::string& job, size_t node_count);

}  // namespace varve
