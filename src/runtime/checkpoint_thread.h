#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/progress.h"
#include "core/sync.h"
#include "engine/save.h"
#include "level/level.h"
#include "level/level_spec.h"
#include "level/retention.h"
#include "level/set_completion.h"
#include "level/stored_image.h"
#include "runtime/group_member.h"
#include "snapshot/control_block.h"
#include "store/commit.h"

namespace varve {

/// How far a group is with a checkpoint: counts what the engine has dealt with, and has it told to the members now and
/// then. Thread-safe.
class GroupProgress final : public ProgressSink {
 public:
  using Post = std::function<void(const GroupNews&)>;
  /// `post` tells the members; it is called by one thread at a time.
  GroupProgress(Post post, WarningList& warnings, Clock& clock)
      : post_(std::move(post)), warnings_(warnings), clock_(clock) {}

  /// A checkpoint of so many bytes begins.
  void begin(uint64_t bytes);
  /// All bytes of it are dealt with.
  void wrote();
  /// It ended: persistent, or as `outcome` says.
  void end(uint64_t step, const Status& outcome);
  /// Nothing more will be tried for any checkpoint up to `step`.
  void finish(uint64_t step);
  /// From now on the engine is asked to stop at the next convenient point.
  void cancel() { cancelled_ = true; }

  void total(uint64_t) override {}
  void advance(uint64_t bytes) override;
  void phase(std::string_view) override {}
  void warning(const Status& what) override { warnings_.add(what); }
  bool cancelled() const override { return cancelled_; }

 private:
  const Post post_;
  WarningList& warnings_;
  Clock& clock_;
  std::atomic<bool> cancelled_{false};
  std::atomic<uint64_t> written_{0};
  Mutex mutex_;  ///< held while `post_` runs
  GroupNews news_ VARVE_GUARDED_BY(mutex_);
  double posted_ VARVE_GUARDED_BY(mutex_) = 0;  ///< when
};

/// What stage 2 of one checkpoint cost, and what came of it.
struct DrainReport {
  uint64_t step = 0;
  Status outcome;                ///< OK: the set is complete in the store
  uint64_t bytes = 0;            ///< of the group
  uint64_t stored_bytes = 0;     ///< written for it
  double begin_seconds = 0;      ///< by the clock: the leader's checkpoint() began
  double end_seconds = 0;        ///< the set was complete
  double drain_seconds = 0;      ///< at work
  double processor_seconds = 0;  ///< used by the thread and its workers
};

/// What a group's checkpoint thread is to do.
struct CheckpointDuty {
  UniqueId run;
  std::string job;
  uint32_t ordinal = 0;  ///< of the group among those that save to this store
  uint32_t group_count = 1;
  SaveOptions save;
  std::optional<SetOrigin> origin;  ///< to be told in sets that have not all ranks
  Retention::Rules retention;       ///< of the store, if this group keeps it for all: the first one there
  double wait_seconds = 0;          ///< at most, for the other groups' parts of a set
  std::function<std::string(uint32_t ordinal)> group_name;  ///< of one among those that save to this store, for people
  /// What keeps older sets from making room: "3 sets wait for dir:/far". Empty: nothing.
  std::function<std::string()> what_waits;
  std::vector<SegmentOwner> siblings;  ///< leaders of other groups on this node
  /// What a set may do to one of its step that is there.
  std::function<IfExists(uint64_t step)> policy_for;
  std::function<Status()> may_save;                ///< asked before a part is saved, and before its set is made
  std::function<void()> prepare_thread;            ///< run first on the thread: priority, place
  std::function<void(const DrainReport&)> report;  ///< called on the thread after each checkpoint
  /// Called on the thread for each checkpoint that was to be saved, before older sets are dropped; of those of which
  /// nobody had a snapshot, with the next one.
  std::function<void(const NewSet&)> accept;
};

/// A group's checkpoint thread (stage 2): waits until the snapshots of all members are full for the same step, saves
/// them as a part of the set, and gives them back. Sets are completed as the other groups' parts come, while it goes on
/// with the next checkpoint: no group waits for another (but one that has members on other nodes). What fails is told
/// to the members, and to the other groups (by a part that says why), and the next checkpoint is tried. Works however
/// little the program calls us.
class CheckpointThread {
 public:
  /// One member at least is on this node. The bell is the one that members ring: the leader's own. `store` outlives it.
  CheckpointThread(const Store& store, CheckpointDuty duty, std::vector<std::unique_ptr<GroupMember>> members,
                   Bell& bell, WarningList& warnings, Clock& clock);
  CheckpointThread(const CheckpointThread&) = delete;
  CheckpointThread& operator=(const CheckpointThread&) = delete;
  ~CheckpointThread();

  /// resource_limit if there can be no thread.
  Status start();
  /// When the leader's checkpoint() of this step began, by the clock, and where it goes; the latter as for all leaders.
  void note_begin(uint64_t step, double seconds, const LevelDuty& levels);
  /// New sets are not to refer to these arenas: they could not be read, and may never be again.
  void avoid(std::set<ArenaId> arenas);
  /// The set of this step, if it is not complete, will not be: another group failed. Thread-safe, as are these all.
  void give_up(uint64_t step);
  /// Gives up what is being written at the next convenient point.
  void cancel();
  /// Ends the thread when no snapshot of all members waits; the others are given back. Members on other nodes must be
  /// stopped, too. After `limit` it is cancelled.
  void stop(std::chrono::nanoseconds limit);
  /// After that: drops what more sets than are kept, and gives their space back.
  void tidy();

 private:
  struct Begin {
    double seconds = 0;
    LevelDuty levels;
  };
  /// A part that was published, of a set that others' parts are still to come for.
  struct Published {
    DrainReport report;
    LevelDuty levels;
    std::unique_ptr<SetCompletion> completion;
    double since = 0;  ///< by the clock
  };

  void run();
  std::optional<uint64_t> next_step();
  std::optional<uint64_t> oldest_local_step();
  bool catch_up(GroupMember& member, uint64_t step);
  void lose_step(uint64_t step, const Status& why);
  void release_all();

  void drain(uint64_t step);
  Result<SetRecord> save(uint64_t step, const LevelDuty& levels, DrainReport& report);
  Result<SetRecord> save_images(uint64_t step, const LevelDuty& levels, DrainReport& report);
  Status make_room(const Status& full);
  void tell_others(uint64_t step, const Status& failure);
  void look_at_published();
  std::optional<Status> outcome_of(Published& part);
  Status late(const Published& part) const;
  void conclude(DrainReport report, const LevelDuty& levels);
  void leave_in_memory(uint64_t step);

  PartName part_of(uint64_t step) const { return {{duty_.job, step}, duty_.run, duty_.ordinal, duty_.group_count}; }
  bool is_given_up(uint64_t step);
  SaveOptions save_options(const LevelDuty& levels);
  Begin take_begin(uint64_t step);
  void tell(uint64_t step, const LevelDuty& levels, const Status& outcome);
  /// Whether older sets are this group's concern.
  bool applies_retention() const { return duty_.ordinal == 0; }
  void note_retention(const Status& outcome);

  const Store& store_;
  const CheckpointDuty duty_;
  const std::vector<std::unique_ptr<GroupMember>> members_;
  Bell& bell_;
  WarningList& warnings_;
  Clock& clock_;
  GroupProgress progress_;
  Retention retention_;
  const bool has_remote_;
  std::optional<uint64_t> settled_;  ///< the newest step whose snapshots were dealt with
  std::deque<Published> published_;
  std::vector<PartName> told_failures_;  ///< to the other groups
  bool any_complete_ = false;
  std::optional<GroupSiblings> siblings_;
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::map<uint64_t, Begin> begin_of_ VARVE_GUARDED_BY(mutex_);
  std::set<ArenaId> avoided_ VARVE_GUARDED_BY(mutex_);
  std::set<uint64_t> given_up_ VARVE_GUARDED_BY(mutex_);
  bool ended_ VARVE_GUARDED_BY(mutex_) = false;
  ConditionVariable ended_bell_;
  Thread thread_;
};

}  // namespace varve
