#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "level/level_spec.h"
#include "sim/oracle.h"
#include "sim/promises.h"
#include "sim/world.h"
#include "varve/session.h"

namespace varve {
class RunSession;
}

namespace varve::sim {

/// A job of the cluster: a program on several nodes that is run again and again, and what it was promised.
struct JobPlan {
  std::string levels;
  uint32_t node_count = 2, ranks_per_node = 1;
  std::string group = "node";
  size_t cells = 100;  ///< of each rank's model
  bool two_slots = false;
};

/// What one run of it does.
struct RunPlan {
  uint64_t steps = 6;         ///< more than it restarts from
  double step_seconds = 1;    ///< at most, of virtual time
  double now_chance = 0;      ///< of a checkpoint that waits for itself
  double wait_chance = 0;     ///< of a wait() after a checkpoint
  double drop_chance = 0;     ///< of dropping one of the last steps
  double back_chance = 0;     ///< of going back after a checkpoint, to compute what was computed in another way
  bool may_lose = false;      ///< faults are at work that may hide what was promised
  bool may_fail = false;      ///< or make calls fail
  bool all_is_whole = false;  ///< nothing that was durable has been lost or spoiled
  bool finishes = true;
};

/// What a program computes until it goes back; then it goes on in another way from there.
struct Course {
  size_t before = 0;  ///< the course that it goes on from
  uint64_t from = 0;  ///< the step of that one
};

/// One level of a job's specification, as far as the checks need it; memory is one.
struct JobLevel {
  LevelSpec spec;
  size_t ordinal = 0;  ///< in SessionProgress::levels
  Floor floor = Floor::memory;

  bool of_node() const { return spec.is_of_node(); }
};

class Job {
 public:
  Job(World& world, JobPlan plan);

  /// Starts the ranks, each a process. They live as long as they are needed.
  void start_run(const RunPlan& plan);
  const std::vector<Process*>& processes() const { return processes_; }
  /// Waits until all ranks have ended, or were killed.
  void await_run();
  /// mpirun ends all ranks when one has died.
  void kill_run();
  bool running() const;

  /// Of what was promised, only what such a loss leaves is promised from now on.
  void note_loss(Loss loss, uint32_t lost_nodes = 1);
  const std::vector<JobLevel>& levels() const { return levels_; }
  /// The same, as the library has them.
  std::vector<LevelSpec> specs() const;
  const JobLevel& nearest_store() const;
  const JobPlan& plan() const { return plan_; }
  /// The last step that its last run has come to: what is later, it has left behind.
  uint64_t last_step() const { return last_step_; }

 private:
  struct Run;
  struct Model;
  void be_rank(const std::shared_ptr<Run>& run, uint32_t rank);
  /// Who made the step of this course: it, or one that it goes on from.
  CourseStep origin_of(size_t course, uint64_t step) const;
  Model model_of(uint32_t rank, CourseStep made) const;
  /// What a rank has got for that step; ends the schedule if it is nothing that the job has ever computed.
  CourseStep recognise(const Model& model, uint32_t rank, uint64_t step) const;
  /// The program goes back behind its last steps. Returns what it goes on from; none: there is nothing, and it goes on
  /// from where it is.
  Result<std::optional<CourseStep>> go_back(RunSession& session, Model& model, uint32_t rank, uint64_t to);
  /// The program is done with a step. Whether it was dropped.
  Result<bool> drop(RunSession& session, uint64_t step);
  void check_restart(const Run& run, uint32_t rank, std::optional<CourseStep> from);
  /// Fails if the call that a rank is in has taken more time than any may.
  void check_call(uint32_t rank) const;
  void report_persistent(uint32_t rank, CourseStep made);
  void report_progress(uint32_t rank, size_t course, const SessionProgress& progress);
  void forget_memory();
  /// Such steps are gone, or may be made anew. Older ones may have left every level that does not keep all.
  void forget(const std::function<bool(uint64_t step)>& such);
  void forget_behind(uint64_t step);
  void note_warnings(RunSession& session, uint32_t rank, const RunPlan& plan);

  World& world_;
  const JobPlan plan_;
  std::vector<JobLevel> levels_;
  std::vector<Course> courses_ = {Course{}};  ///< of all runs
  std::set<CourseStep> dropped_;
  Promises promises_;
  std::vector<Process*> processes_;
  uint32_t run_count_ = 0;
  uint64_t last_step_ = 0;
  uint32_t memory_of_run_ = 0;  ///< which run it was that promised what is in memory
  struct Call {
    const char* name = nullptr;
    Moment began{};
  };
  std::vector<Call> calls_;  ///< of each rank, that it is in
};

}  // namespace varve::sim
