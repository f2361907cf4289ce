#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/progress.h"
#include "level/levels.h"
#include "runtime/blocked_time.h"
#include "runtime/cadence.h"
#include "runtime/placement.h"
#include "runtime/report.h"
#include "runtime/restart.h"
#include "runtime/run_lease.h"
#include "runtime/run_monitor.h"
#include "runtime/run_note.h"
#include "runtime/sets_under_way.h"
#include "runtime/settings.h"
#include "runtime/stage_one.h"
#include "runtime/stage_two.h"
#include "snapshot/node_note.h"
#include "varve/session.h"

namespace varve {

/// What a session takes from the world, so that tests can give it another.
struct SessionEnvironment {
  FileSystem* files = &posix_file_system();  ///< where stores are that are folders
  SettingsSources sources = SettingsSources::of_process();
  Clock* clock = &steady_clock();
  std::function<Result<RankPlace>(const std::string& shared_folder)> find_place = find_rank_place;
};

/// How long the end of a session waits that nobody has asked for.
constexpr std::chrono::hours kSessionEndPatience(1);

/// A session (varve/session.h says what its functions do): it puts the parts of the runtime together, and tells the
/// story of a run. The program's thread only.
class RunSession {
 public:
  static Result<std::unique_ptr<RunSession>> open(std::unique_ptr<Communicator> ranks, const SessionOptions& options,
                                                  SessionEnvironment environment = {});
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;
  ~RunSession();

  VariableTable& variables() { return stage_one_.variables(); }
  Result<std::byte*> make_grid(std::string_view name, uint64_t bytes);
  Result<std::byte*> lend(std::string_view name, std::byte* grid);

  Result<std::optional<uint64_t>> restart(const RestartChoice& choice = {});
  Result<std::optional<uint64_t>> reject();
  Result<std::vector<RestartPoint>> restart_points();
  Result<std::vector<SavedVariable>> saved_variables(uint64_t step);
  Status drop(uint64_t step);
  bool due(uint64_t step);
  Status checkpoint(uint64_t step, Persistence persistence);
  bool should_stop() const { return course_.should_stop(); }
  Status wait();
  Status finish(std::chrono::duration<double> limit);
  Status abandon();
  /// An exception has taken this rank out of something that all do together: the others are not to wait for it.
  void break_off();

  SessionProgress progress() const;
  std::vector<Status> warnings() { return warnings_.take(); }
  std::string effective_options() const;
  std::string report() const;
  std::string report_json() const;

 private:
  RunSession(std::unique_ptr<Communicator> ranks, Settings settings, const SessionEnvironment& environment);

  Status start(const SessionEnvironment& environment);
  Result<std::optional<uint64_t>> go_on_from(const RestartSelection& selection);
  Status settle_before_restart();
  Status look_at_levels();
  Status settle(std::string_view failed_while);
  Result<bool> any_has_snapshots();
  Status end_talk();
  Status stop_stage_two();
  Status drop_everywhere(uint64_t step);
  Status turn_back(const std::optional<CheckpointId>& kept);
  void note_course(const UniqueId& made_as, const RunRestart& restart);
  /// On each node, before any saves; `anew`: behind parts of checkpoints that never were whole.
  void note_beginning(bool anew);
  Status start_stage_two();
  /// `saves`: whatever the nearest store's turn is.
  Result<bool> take_slot(Persistence persistence);
  Status make_checkpoint(uint64_t step, Persistence persistence, bool saves);
  Result<bool> take_last_slot();
  Status settle_in_time(uint64_t step);
  Status stay_in_memory(uint64_t step, const Status& why);
  Status await_drain();
  bool has_in_memory(uint64_t step) const;
  void write_note();
  void note_end(const Status& settled);
  std::string newest_place() const;
  void note_drained(const DrainReport& report);
  void accept_loaded();
  void leave_the_others();
  /// Whether the other ranks end their sessions together with this one, or are left.
  enum class Company : uint8_t { together, left };
  void close(const Status& outcome, Company company = Company::together);
  bool has_unsaved_snapshot() const;
  void note_ended(const Status& outcome);
  void start_monitor(FileSystem& files);
  RunSample sample() const;
  Result<std::optional<uint64_t>> take_up(const RestartSelection& selection);
  Result<RunRestart> load(const RestartSelection& selection);

  const std::unique_ptr<Communicator> ranks_;
  const Settings settings_;
  WarningList warnings_;
  BlockedTime blocked_;
  RunLedger ledger_;
  RunMonitor monitor_;  ///< is told by threads of all that follow
  JobSets job_sets_;
  LeftMemory left_;
  LevelWorld world_;
  Levels levels_;
  RunLease lease_;
  StageOne stage_one_;
  RunCourse course_;
  SetsUnderWay sets_;
  StageTwo stage_two_;
  RestartSelection selection_;  ///< of which only what was rejected counts
  /// By the last restart, while there was no checkpoint since; and the set that it was saved as, if it was in memory
  /// alone.
  std::optional<RestartCandidate> loaded_, saved_as_;
  /// The last checkpoint, where the time was too short to save it: it stays in memory, also when the run has ended.
  std::optional<uint64_t> memory_alone_;
  std::vector<NodeNote::Earlier> earlier_;  ///< as which it has made what it went on from
  std::optional<CheckpointId> copies_;      ///< what it went on from, if it saves that anew
  bool loaded_alone_ = false;               ///< what it went on from was in its own memory alone
  bool gave_up_saving_ = false;             ///< for that, on all ranks
  /// Where the program goes on without a restart(), its sets have at least this number.
  uint64_t number_behind_memory_ = 1;
  bool has_chosen_ = false;  ///< what to go on from, or that it begins anew
  RunNote note_;
  Status last_error_;     ///< of due() and checkpoint() themselves
  bool finished_ = true;  ///< or not open yet
};

}  // namespace varve
