#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "level/level.h"
#include "level/levels.h"
#include "runtime/blocked_time.h"
#include "runtime/group_plan.h"
#include "runtime/placement.h"
#include "runtime/report.h"
#include "runtime/settings.h"
#include "snapshot/snapshot.h"
#include "snapshot/snapshot_reader.h"
#include "snapshot/variable_table.h"
#include "varve/session.h"

namespace varve {

struct SessionEnvironment;

/// A limit that can be reckoned with: neither below 0 nor above a hundred years.
std::chrono::nanoseconds bounded_limit(std::chrono::duration<double> limit);

/// Where a run with these settings would have snapshots that have no room in memory, as far as a process can tell that
/// is no part of it.
std::vector<std::string> expected_spill_folders(const Settings& settings, const SettingsSources& sources);

/// What dead runs of the job left in the memory of this node.
class LeftMemory {
 public:
  explicit LeftMemory(WarningList& warnings) : warnings_(warnings) {}

  /// In the places where runs of the job have their memory, after this one has made its own in one of them: of two that
  /// start together, at least one sees the other. busy: one lives.
  Status find(const std::vector<SegmentFamily>& places, const UniqueId& own_run);
  const LeftRuns& runs() const { return runs_; }
  /// The run itself may go back to these; in place of those that were added before. No thread is at work with it.
  void add_own(std::vector<LeftSnapshot> snapshots);

  /// Whether it may be all that there is of the newest checkpoint; true until a restart knows better.
  bool is_useful() const { return useful_; }
  void note_useful(bool useful) { useful_ = useful; }
  /// Whether dead runs that were on other nodes, too, have left something that was made after `taken` (none: after
  /// anything) and is not of the `rejected`: those nodes may have the rest of it, though they are not this run's.
  bool has_newer_than(const std::optional<RestartCandidate>& taken,
                      const std::vector<RestartCandidate>& rejected) const;
  /// Of a step, what dead runs have of it; `removes`: this rank does it for its node. Whether there was any. No thread
  /// is at work with it.
  Result<bool> drop(uint64_t step, bool removes);
  /// When a newer set is in the store. By the checkpoint thread while there is one.
  void remove();

 private:
  WarningList& warnings_;
  std::vector<SegmentFamily> places_;
  LeftRuns runs_;
  size_t own_count_ = 0;  ///< of the snapshots, at the end
  std::atomic<bool> remains_ = false;
  bool useful_ = true;
};

/// Stage 1 of a run's checkpoints, on one rank: what the program protects, and the memory into which it is copied; who
/// shares that memory, and a checkpoint thread, with whom. The program's thread only.
class StageOne {
 public:
  /// `notice` gets warnings that a user would easily miss. All of these outlive it.
  StageOne(const Settings& settings, LevelWorld& world, BlockedTime& blocked, std::function<void(const Status&)> notice)
      : settings_(settings), world_(world), blocked_(blocked), notice_(std::move(notice)) {}

  /// Makes the memory, where there is room, and finds out who is where, which it says in the world. After
  /// Levels::look(). Collective.
  Status open(const SessionEnvironment& environment, const Levels& levels);

  // After that

  const GroupPlan& plan() const { return plan_; }
  const SegmentFamily& family() const { return family_; }
  /// Where runs of the job may have their memory on this node, this one among them.
  const std::vector<SegmentFamily>& places() const { return places_; }
  SegmentOwner owner_of(uint32_t rank) const { return {family_, run_, rank}; }
  /// For threads beside the program, if this rank leads a group.
  const ProcessorSet& free_processors() const { return free_processors_; }
  SnapshotMemory& memory() const { return *memory_; }
  VariableTable& variables() { return variables_; }
  /// How long the program waits for stage 2 at most.
  std::chrono::nanoseconds wait_limit() const {
    return bounded_limit(std::chrono::duration<double>(settings_.snapshots.wait_limit));
  }

  /// Has the memory for checkpoints made behind the program's back. What is short is told by the first checkpoint.
  void reserve();
  /// Whether the checkpoint is to be made: there is a free slot then. The same on all ranks. Collective.
  Result<bool> take_slot(Persistence persistence);
  /// It is not to be made.
  void skip(uint64_t step);
  /// Copies what is protected, or, where there is no room for that, has it saved before it returns. What it cost;
  /// `begin_seconds`: when checkpoint() began, by the world's clock.
  Result<SnapshotCost> copy(const CheckpointId& checkpoint, double begin_seconds);
  /// Whether the run has made a snapshot since it began, or went back, or has kept one of before.
  bool has_snapshots() const { return has_snapshots_; }
  /// What the ranks of this node have in memory, none of which is being written.
  Result<std::vector<LeftSnapshot>> own_snapshots() const;
  /// The run begins anew, and has nothing in its memory any more but `kept`. Nobody else reads what is there.
  void forget_snapshots(const std::optional<CheckpointId>& kept = {});

 private:
  Status make_memory(const SessionEnvironment& environment, const std::string& folder, bool restartable);
  Status fill(const CheckpointId& checkpoint);
  Status tell_shortage();

  const Settings& settings_;
  LevelWorld& world_;
  BlockedTime& blocked_;
  const std::function<void(const Status&)> notice_;
  UniqueId run_;  ///< as which it has its memory, also after it has gone back and begun anew
  SegmentFamily family_;
  std::vector<SegmentFamily> places_;
  GroupPlan plan_;
  ProcessorSet free_processors_;
  VariableTable variables_;
  std::unique_ptr<SnapshotMemory> memory_;
  bool has_snapshots_ = false;
  /// What the memory that the first restart has made lacks: ranks tell each other at the first checkpoint; later, what
  /// is short is told by the checkpoint that finds it.
  enum class Shortage : uint8_t { unknown, to_be_told, told };
  Shortage shortage_ = Shortage::unknown;
};

}  // namespace varve
