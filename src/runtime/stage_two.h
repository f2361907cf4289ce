#pragma once

#include <functional>
#include <memory>
#include <set>

#include "core/sync.h"
#include "level/levels.h"
#include "runtime/checkpoint_thread.h"
#include "runtime/settings.h"
#include "runtime/snapshot_relay.h"
#include "runtime/stage_one.h"

namespace varve {

/// Stage 2 of a run's checkpoints, on one rank. In the leader of a group it is its checkpoint thread, in a member on
/// another node the relay that sends the snapshots there; in others there is nothing to do. The program's thread only.
class StageTwo {
 public:
  /// All of these outlive it.
  StageTwo(const Settings& settings, LevelWorld& world, StageOne& stage_one, Levels& levels)
      : settings_(settings), world_(world), stage_one_(stage_one), levels_(levels) {}

  struct Callbacks {
    std::function<Status()> may_save{};
    std::function<void(uint64_t step, ByteVector part)> note_published{};
    std::function<void(const DrainReport&)> report{};
  };
  /// Brings this rank and its checkpoint thread together; which calls these, as CheckpointDuty says.
  Status attach(Callbacks callbacks);
  /// `before`: what has failed already, and is returned. A thread does not begin then.
  Status start(Status before);
  /// On each thread beside the program, before it works: where it is to be, and, unless somebody may wait for it, out
  /// of the program's way.
  void place_thread(bool out_of_way) const;

  bool leads_group() const { return thread_ != nullptr; }
  /// Whether the own group makes the sets of what is saved to its store.
  bool makes_sets() const;
  /// The leaders of the groups that save to the own group's store, the first of which makes the sets.
  std::vector<uint32_t> leaders_there() const;
  uint32_t own_ordinal() const;
  // As of CheckpointThread, if it is here
  void note_begin(uint64_t step, double seconds, const LevelDuty& levels);
  void avoid(const std::set<ArenaId>& arenas);
  void note_set(uint64_t step, SetState state);
  void note_parts(uint64_t step, std::vector<ByteVector> parts);
  void cancel();
  void wait_little_for_others();
  /// While it exists, the program waits for stage 2.
  class Hurry {
   public:
    explicit Hurry(StageTwo& stage_two) : stage_two_(stage_two) { stage_two_.hurry(true); }
    ~Hurry() { stage_two_.hurry(false); }
    Hurry(const Hurry&) = delete;
    Hurry& operator=(const Hurry&) = delete;

   private:
    StageTwo& stage_two_;
  };

  /// Ends when all snapshots are dealt with; after `end` what is being written is given up.
  void stop(Moment end);
  /// After that: drops what more sets than are kept, and gives their space back.
  void tidy();

 private:
  Result<std::vector<std::unique_ptr<GroupMember>>> open_members() const;
  CheckpointDuty make_duty() const;
  void hurry(bool waits);

  const Settings& settings_;
  LevelWorld& world_;
  StageOne& stage_one_;
  Levels& levels_;
  std::unique_ptr<CheckpointThread> thread_;
  std::unique_ptr<SnapshotRelay> relay_;
};

}  // namespace varve
