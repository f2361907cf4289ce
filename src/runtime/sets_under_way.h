#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/bytes.h"
#include "core/sync.h"
#include "level/level_spec.h"
#include "level/levels.h"
#include "level/set_completion.h"
#include "runtime/stage_one.h"
#include "runtime/stage_two.h"

namespace varve {

/// The sets of a run on their way to the nearest store, as its program sees them: which checkpoints become sets, what
/// all ranks know of them (JobSets), and what became of them. The program's thread only, but for note_published() and
/// note_drained().
class SetsUnderWay {
 public:
  /// All of these outlive it.
  SetsUnderWay(const std::vector<LevelSpec>& specs, LevelWorld& world, Levels& levels, StageOne& stage_one,
               StageTwo& stage_two)
      : world_(world), levels_(levels), stage_one_(stage_one), stage_two_(stage_two), schedule_(specs) {}

  /// The number of the next set, or at least that; the same on all ranks.
  void go_on_from(uint64_t number) { schedule_.go_on_from(number); }
  void go_on_behind(uint64_t number) { schedule_.go_on_behind(number); }
  /// Some level may have sets of higher numbers, which are learnt when it is back. The same on all ranks.
  void await_numbers();
  /// Of the next set.
  uint64_t next_number() const { return schedule_.next_number(); }
  /// The run goes on from a set of the store, of this step; none: from none.
  void note_restarted(std::optional<uint64_t> step) { restarted_ = step; }
  /// The set of this step is dropped from all levels: the last one is what is left.
  Status note_dropped(uint64_t step);
  /// The run goes back: what it has made is what an earlier run has made. Nothing is under way.
  void turn_back();

  // What the ranks tell each other

  /// For an all_max() of all ranks; nothing if each sees all of it by itself. And what that came to.
  std::vector<uint64_t> tell() const;
  /// Where all parts of a set are there, their writers tell the group that makes it what they say. Collective.
  Status learn(std::span<const uint64_t> told);
  /// If that was not done since the last checkpoint, and is needed. Collective.
  Status exchange();

  // One checkpoint

  /// Where the next one goes. `must_last`: to the nearest store, whatever its turn is; `everywhere`: to all levels.
  LevelDuty begin(uint64_t step, bool must_last, bool everywhere);
  /// There is a snapshot of it.
  void note_copied(uint64_t step, const LevelDuty& duty);
  /// There is none on this rank: so its group has no part of the set. Its thread may come to know that much later.
  void note_not_copied(uint64_t step);
  /// What became of checkpoints before since this was asked last: OK, or the last failure of the own group.
  Status take_failure(uint64_t step);
  /// All ranks have been told of this outcome of `step`, or of the last set.
  void note_told(const Status& outcome, uint64_t step);
  void note_told(const Status& outcome);
  // By the checkpoint thread: the own group's part is published, and what became of it

  void note_published(uint64_t step, ByteVector part);
  void note_drained(uint64_t step, bool saved);

  /// All ranks together: until the last set is complete, or has failed. Collective.
  Status settle(std::chrono::nanoseconds limit);
  /// Whether a set that this run has made is whole in a store, on all nodes. Any thread.
  bool has_saved() const { return has_saved_; }
  /// The last set; none: there is none yet.
  const std::optional<NewSet>& last() const { return last_; }

  /// Adds to `progress`, in which is the newest snapshot, how far they are.
  void add_progress(SessionProgress& progress) const;

 private:
  /// Whether no rank sees by itself which sets are complete.
  bool must_tell() const { return stage_one_.plan().count() > 1; }
  bool has_to_talk() const { return must_tell() || awaits_numbers_; }
  /// Whether what the own group knows of its store is true of the job.
  bool sees_all() const { return !world_.has_node_level || stage_one_.plan().nodes.size() == 1; }
  Status talk();
  Status tell_part(uint64_t step);
  /// Waits until the own group has dealt with its part of `step`, and returns how it went.
  Status await_part(uint64_t step, std::chrono::nanoseconds limit) const;
  std::optional<Status> part_outcome(uint64_t step) const;
  Status outcome_of(uint64_t step) const;

  LevelWorld& world_;
  Levels& levels_;
  StageOne& stage_one_;
  StageTwo& stage_two_;
  LevelSchedule schedule_;
  bool awaits_numbers_ = false;           ///< some rank has to ask a level what numbers its sets have; on all the same
  std::optional<bool> sends_;             ///< all ranks can send messages
  std::set<uint64_t> parts_told_;         ///< of sets of these steps, some of the newest; the same on all ranks
  bool were_told_ = false;                ///< since the last checkpoint
  std::optional<uint64_t> told_failure_;  ///< of which a checkpoint() has told
  std::optional<NewSet> last_;
  std::optional<uint64_t> copied_;  ///< the newest step of which the run has made a snapshot for a store
  std::atomic<bool> has_saved_ = false;
  std::optional<uint64_t> restarted_;  ///< the set of the store that the run goes on from, or has left after a drop
  std::set<uint64_t> dropped_;         ///< steps that were not made again since
  Mutex published_mutex_;
  std::map<uint64_t, ByteVector> published_ VARVE_GUARDED_BY(published_mutex_);  ///< the own group's parts, the newest
};

}  // namespace varve
