#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/progress.h"
#include "core/sync.h"
#include "level/level_spec.h"
#include "level/levels.h"
#include "runtime/cadence.h"
#include "runtime/checkpoint_thread.h"
#include "runtime/group_plan.h"
#include "runtime/placement.h"
#include "runtime/report.h"
#include "runtime/restart.h"
#include "runtime/settings.h"
#include "runtime/snapshot_relay.h"
#include "runtime/stop_requests.h"
#include "snapshot/snapshot.h"
#include "snapshot/snapshot_reader.h"
#include "snapshot/variable_table.h"
#include "store/job_lease.h"
#include "varve/session.h"

namespace varve {

/// What a session takes from the world, so that tests can give it another.
struct SessionEnvironment {
  FileSystem* files = &posix_file_system();  ///< where stores are that are folders
  SettingsSources sources = SettingsSources::of_process();
  Clock* clock = &steady_clock();
  std::function<Result<RankPlace>(const std::string& shared_folder)> find_place = find_rank_place;
};

/// A session (varve/session.h says what its functions do): it puts the parts of the runtime together, and tells the
/// story of a run. The program's thread only.
class RunSession {
 public:
  static Result<std::unique_ptr<RunSession>> open(std::unique_ptr<Communicator> ranks, const SessionOptions& options,
                                                  SessionEnvironment environment = {});
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;
  ~RunSession();

  VariableTable& variables() { return variables_; }
  Result<std::byte*> make_grid(std::string_view name, uint64_t bytes);
  Result<std::byte*> lend(std::string_view name, std::byte* grid);

  Result<std::optional<uint64_t>> restart();
  bool due(uint64_t step);
  Status checkpoint(uint64_t step, Persistence persistence);
  bool should_stop() const { return should_stop_; }
  Status wait();
  Status finish(std::chrono::duration<double> limit);

  SessionProgress progress() const;
  std::vector<Status> warnings() { return warnings_.take(); }
  std::string effective_options() const;
  std::string report() const;
  std::string report_json() const;

 private:
  RunSession(std::unique_ptr<Communicator> ranks, Settings settings, SessionEnvironment environment);

  // Parts of open(), in this order
  Status agree_on_run();
  Status prepare_memory();
  Status make_memory_in(const std::string& folder, bool restartable);
  Result<std::vector<std::string>> choose_spill_folders();
  void take_seat();
  Status take_shared_lease();
  Status take_node_lease();
  Status take_lease(StoreLevel& level);
  Status prepare_stage_two();
  Status attach();
  Result<std::unique_ptr<CheckpointThread>> make_thread();
  CheckpointDuty make_duty();
  std::string group_name(uint32_t ordinal) const;
  void place_thread();
  uint32_t worker_count() const;
  SegmentOwner owner_of(uint32_t rank) const { return {family_, world_.run, rank}; }

  Status check_running() const;
  /// busy: another run has taken the job over. Any thread, while the level of the lease is open.
  Status check_lease(const Store* store) const;
  /// A warning that a user would easily miss. On rank 0 it is printed, unless the options say otherwise.
  void notify(const Status& warning);
  /// Whether no rank sees by itself which sets are complete in the nearest store.
  bool must_tell_sets() const { return world_.has_node_level && plan_.nodes.size() > 1; }

  Result<std::optional<uint64_t>> restart_from_levels();
  void note_findings(const RestartDecision& decision, const std::vector<RestartCandidate>& candidates);
  Status avoid_unreadable(const std::set<ArenaId>& mine);
  /// Brings what was in the memory of dead runs alone, and is now in what is protected, to the store.
  void save_restarted(uint64_t step);
  void learn(std::span<const uint64_t> told);
  /// What became of checkpoints before since this was asked last: OK, or the last failure of the own group.
  Status take_failure(uint64_t step);
  void note_told(const Status& outcome, uint64_t step);
  /// `saves`: whatever the nearest store's turn is.
  Status make_checkpoint(uint64_t step, Persistence persistence, bool saves);
  /// Whether the checkpoint is to be made: there is a free slot then. The same on all ranks.
  Result<bool> take_slot(Persistence persistence);
  Status snapshot(uint64_t step, double begin_seconds, const LevelDuty& levels);
  /// Copies what is protected, or, where there is no room for that, has it saved before it returns.
  Status take_snapshot(uint64_t step);
  /// Makes the memory for checkpoints, and says what is short. Collective.
  Status reserve_memory();
  /// Waits until the own group has dealt with its part of `step`, and returns how it went.
  Status await_part(uint64_t step, std::chrono::nanoseconds limit) const;
  std::optional<Status> part_outcome(uint64_t step) const;
  /// All ranks together: until the set of the last snapshot is complete, or has failed. Collective.
  Status settle(std::chrono::nanoseconds limit);
  Status outcome_of(uint64_t step) const;
  void note_drained(const DrainReport& report);
  void forget_left_runs();
  std::optional<uint64_t> newest_persistent(const GroupNews& news) const;
  std::chrono::nanoseconds wait_limit() const;
  void close();
  RunNews run_news(const SessionProgress& progress, const GroupNews& news) const;
  ReportContext report_context() const;

  const std::unique_ptr<Communicator> ranks_;
  const Settings settings_;
  const SessionEnvironment environment_;
  Clock& clock_;
  WarningList warnings_;
  JobSets job_sets_;
  LeftRuns left_;  ///< of dead runs
  LevelWorld world_;
  Levels levels_;
  StoreLevel* lease_level_ = nullptr;  ///< where the job's lease is
  std::unique_ptr<JobLease> lease_;    ///< in the rank that speaks for that level
  SegmentFamily family_;
  GroupPlan plan_;
  ProcessorSet free_processors_;  ///< for the checkpoint thread, if this rank leads a group
  bool left_runs_remain_ = false;
  bool left_runs_useful_ = true;  ///< nothing in the store is as new, as far as is known
  VariableTable variables_;
  std::unique_ptr<SnapshotMemory> memory_;
  Cadence cadence_;
  RunLedger ledger_;
  std::optional<StopRequests> stop_;
  LevelSchedule schedule_;
  std::unique_ptr<CheckpointThread> thread_;  ///< in the group's leader
  std::unique_ptr<SnapshotRelay> relay_;      ///< in a member on another node than its leader
  std::optional<uint64_t> restarted_set_;     ///< of the store, that the run goes on from
  std::optional<uint64_t> last_step_;         ///< restarted from, or of the last checkpoint()
  std::optional<uint64_t> last_taken_;        ///< whose snapshot was made
  std::optional<uint64_t> last_saved_;        ///< of these, that goes to the nearest store
  uint64_t last_number_ = 0;                  ///< of that: SetRecord::number
  std::optional<uint64_t> told_failure_;      ///< of which checkpoint() has told
  bool sets_were_told_ = false;               ///< since the last checkpoint
  Status last_error_;                         ///< of checkpoint() itself
  uint64_t skipped_ = 0;
  bool stop_agreed_ = false;
  bool should_stop_ = false;
  bool finished_ = true;  ///< or not open yet
};

}  // namespace varve
