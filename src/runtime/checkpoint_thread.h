#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/progress.h"
#include "core/sync.h"
#include "level/retention.h"
#include "runtime/checkpoint_duty.h"
#include "runtime/group_member.h"
#include "runtime/published_parts.h"
#include "snapshot/control_block.h"
#include "store/kept_index.h"

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

/// The older sets of the nearest store, which the first group there keeps for all: of other groups this does nothing.
/// One thread at a time.
class OlderSets {
 public:
  OlderSets(const Store& store, const CheckpointDuty& duty, ProgressSink& progress, WarningList& warnings)
      : store_(store),
        is_ours_(duty.group.ordinal == 0),
        progress_(progress),
        warnings_(warnings),
        retention_(duty.retention) {}

  /// A new set is complete: drops those that it pushes out.
  void make_way();
  /// The disk is full: what may go goes at once. Whether it is worth another try.
  bool make_room();
  /// At the end: drops what more sets than are kept, and gives their space back.
  void tidy();

 private:
  void note(const Status& outcome);

  const Store& store_;
  const bool is_ours_;
  ProgressSink& progress_;
  WarningList& warnings_;
  Retention retention_;
  bool any_is_new_ = false;
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
  // As CheckpointNotes. Thread-safe, as are these all
  void note_begin(uint64_t step, double seconds, const LevelDuty& levels) {
    notes_.note_begin(step, {seconds, levels});
  }
  void avoid(std::set<ArenaId> arenas) { notes_.avoid(std::move(arenas)); }
  void note_set(uint64_t step, SetState state);
  void note_parts(uint64_t step, std::vector<ByteVector> parts) { notes_.note_parts(step, std::move(parts)); }
  /// The program waits for what is being written, or does no more. As often each.
  void hurry(bool waits);
  /// Gives up what is being written at the next convenient point.
  void cancel();
  /// For parts of other groups, which may never come.
  void wait_little_for_others() { waits_little_ = true; }
  /// Ends the thread when no snapshot of all members waits; the others are given back. Members on other nodes must be
  /// stopped, too. After `limit` it is cancelled.
  void stop(std::chrono::nanoseconds limit);
  /// After that: drops what more sets than are kept, and gives their space back.
  void tidy();

 private:
  void run();
  void lose_step(uint64_t step, const Status& why);
  void drain(uint64_t step);
  void leave_in_memory(uint64_t step);
  Status make_part_durable(uint64_t step) const;
  Result<SetRecord> save_at_its_pace(uint64_t step, const CheckpointNotes::Begin& begin, DrainReport& report);
  Result<SetRecord> save(uint64_t step, const LevelDuty& levels, DrainReport& report);
  void warn_of_replaced_files(const SetName& name);
  Result<SetRecord> save_images(uint64_t step, SnapshotSource& source, const LevelDuty& levels, DrainReport& report);
  void look_at_published();
  void conclude(DrainReport report, const LevelDuty& levels);
  CheckpointNotes::Begin take_begin(uint64_t step);
  void tell(uint64_t step, const LevelDuty& levels, const Status& outcome);

  const Store& store_;
  const CheckpointDuty duty_;
  Bell& bell_;
  WarningList& warnings_;
  Clock& clock_;
  CheckpointNotes notes_;
  GroupSnapshots snapshots_;
  GroupProgress progress_;
  OlderSets older_sets_;
  PublishedParts published_;
  KeptIndex index_;
  DrainPace pace_;
  EffortPace effort_;
  KeptEncoders encoders_;
  std::atomic<bool> stopping_{false}, waits_little_{false};
  Mutex mutex_;
  bool ended_ VARVE_GUARDED_BY(mutex_) = false;
  ConditionVariable ended_bell_;
  Thread thread_;
};

}  // namespace varve
