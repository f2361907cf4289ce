#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/sync.h"
#include "runtime/stop_requests.h"
#include "varve/communicator.h"

namespace varve {

/// When checkpoints are due.
struct CadenceRule {
  std::optional<uint64_t> every_steps{};    ///< at least 1
  std::optional<double> every_seconds{};    ///< above 0
  double mean_time_between_failures = 0.0;  ///< seconds, above 0: the best interval, if neither of the above is given
};

/// Decides, for the rank that asks, whether a checkpoint is due. With both `every_steps` and `every_seconds`, either
/// makes it due. The clock decides on rank 0 alone (DueTalk); steps decide alike on all ranks.
/// Thread-safe: what the checkpoint thread measured may be told while the program asks.
class Cadence {
 public:
  explicit Cadence(CadenceRule rule, Clock& clock = steady_clock());

  /// Whether all ranks decide alike without talking to each other: only steps count.
  bool by_steps_alone() const { return rule_.every_steps.has_value() && !rule_.every_seconds.has_value(); }
  /// Whether a multiple of `every_steps` was reached since the last checkpoint, or the interval is over.
  bool due(uint64_t step) const;

  /// The run goes on from this step: it counts as a checkpoint that was made now.
  void note_restart(uint64_t step);
  /// A checkpoint of this step was made, and held the program up so long until now.
  void note_checkpoint(uint64_t step, double blocked_seconds);
  /// The checkpoint of this step was left out, because the one before was busy: the next is due as if it had been made.
  void note_skipped(uint64_t step);
  /// A checkpoint took so long from its begin until it was persistent, and disturbed the program, beside the time it
  /// was blocked, as much as `disturbance_seconds` of waiting would have. Intervals by Daly are not shorter than the
  /// former.
  void note_persistent(double seconds_to_persistent, double disturbance_seconds = 0.0);

  /// The interval in effect now: every_seconds, or the best one from what was measured; none if only steps count.
  std::optional<double> interval_seconds() const;
  /// The best interval from what was measured, whatever the rule; none before the first checkpoint.
  std::optional<double> best_interval() const;
  /// How long a checkpoint takes from its begin until it is persistent; none: this rank has not seen one.
  std::optional<double> persistent_seconds() const;

 private:
  double automatic_interval() const VARVE_REQUIRES(mutex_);

  const CadenceRule rule_;
  Clock& clock_;
  mutable Mutex mutex_;
  uint64_t last_step_ VARVE_GUARDED_BY(mutex_) = 0;
  double last_begin_ VARVE_GUARDED_BY(mutex_) = 0;  ///< of the last checkpoint
  double last_end_ VARVE_GUARDED_BY(mutex_) = 0;
  std::optional<double> blocked_seconds_ VARVE_GUARDED_BY(mutex_);     ///< per checkpoint, smoothed
  double disturbance_seconds_ VARVE_GUARDED_BY(mutex_) = 0;            ///< smoothed
  std::optional<double> persistent_seconds_ VARVE_GUARDED_BY(mutex_);  ///< smoothed
};

/// What all ranks do at a step.
struct Due {
  bool checkpoint = false;  ///< make one now
  bool stop = false;        ///< and end after it: some rank was asked to stop; `checkpoint` is true as well
  double seconds_left = std::numeric_limits<double>::infinity();  ///< until it is too late for that, on any rank
  /// Of the numbers that ranks tell each other along with that the largest of each; none: no word has come.
  std::optional<std::vector<uint64_t>> told{};
};

/// How often the ranks talk about what is due: to do so in each step would cost short ones more than they take, so
/// there are calls in between in which nobody does, about as many as pass in kSeconds. All ranks call it equally often,
/// and agree.
class TalkPace {
 public:
  static constexpr double kSeconds = 0.05;
  static constexpr uint64_t kCallsMax = 64;

  explicit TalkPace(Clock& clock) : clock_(clock), last_seconds_(clock.seconds()) {}
  /// Another call has come.
  void note_call() { ++calls_; }
  /// Whether this call is one to talk in.
  bool is_turn() const { return calls_ + 1 >= calls_between_; }
  /// How long a call takes here, with all that the program does between two, in nanoseconds.
  uint64_t call_nanoseconds() const;
  /// What that is on the slowest rank, as they have told each other now. Nothing is known before the second time.
  void learn(uint64_t slowest_nanoseconds);

 private:
  Clock& clock_;
  double last_seconds_;  ///< when they talked
  uint64_t calls_ = 0;   ///< since, this one included unless they talk in it
  uint64_t calls_between_ = 1;
};

/// How all ranks come to the same answer. Where each knows it by itself (steps alone count, and nobody can ask for a
/// stop; or there is one rank), nothing is said. Else they begin an all_max() now and then, and go on computing: what
/// it comes to they learn with the next step. So a stop, or a checkpoint that the clock makes due, waits for its turn
/// and for one step more; but nobody waits for a rank that is less than a step behind.
class DueTalk {
 public:
  explicit DueTalk(Clock& clock) : clock_(clock), pace_(clock) {}

  /// Once in a step. The rules of `cadence` and `stop`, and the size of `tell`, which travels with the votes, are the
  /// same on all ranks. Collective.
  Result<Due> ask(Communicator& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step,
                  std::span<const uint64_t> tell = {});
  /// Whether a word is on its way; the same on all ranks.
  bool is_on() const { return is_on_; }
  /// What that comes to. Collective.
  Result<Due> end(Communicator& ranks);

 private:
  Clock& clock_;
  TalkPace pace_;
  bool is_on_ = false;
  double begun_seconds_ = 0;     ///< by the clock
  std::vector<uint64_t> votes_;  ///< what the ranks say; stays as it is while the talk is on
};

/// The course of a run on one rank: at which step it is, when its next checkpoint is due, and whether it is to end. The
/// program's thread only, but for the cadence.
class RunCourse {
 public:
  RunCourse(const CadenceRule& rule, Clock& clock) : clock_(clock), cadence_(rule, clock), talk_(clock) {}

  Cadence& cadence() { return cadence_; }
  /// Stops can be asked for from now on.
  void watch_for_stops(StopRequests stop) { stop_.emplace(std::move(stop)); }
  /// The run has ended: signals are again what they were before.
  void end() { stop_.reset(); }

  /// It goes on from a checkpoint of this step; none: from its begin.
  void restart_at(std::optional<uint64_t> step);
  /// The next checkpoint is of this step. invalid_argument: it does not come after the one before.
  Status go_on_to(uint64_t step);
  /// Whether the checkpoint of this step, from which the run went on or that it just made, is its last one: a stop was
  /// asked for right after it.
  bool ends_at(uint64_t step) const { return stop_agreed_ && last_step_ == step; }

  /// DueTalk::ask(), while stops can be asked for; one that the ranks have agreed on is remembered. Collective.
  Result<Due> agree(Communicator& ranks, uint64_t step, std::span<const uint64_t> tell);
  /// Before anything else is agreed on: what was told in a talk that is on. Collective.
  Result<std::optional<std::vector<uint64_t>>> end_talk(Communicator& ranks);
  /// The next checkpoint is the run's last one. The same on all ranks.
  bool stop_is_agreed() const { return stop_agreed_; }
  /// Until the run is ended, once a stop is agreed on; infinite: nobody has said. By the own clock: what follows from
  /// it has to be agreed on.
  double seconds_left() const { return end_ - clock_.seconds(); }
  /// What asked for the stop, as this rank knows it; empty: another rank was asked.
  std::string stop_reason() const { return stop_ ? stop_->reason() : std::string(); }
  /// A checkpoint was made, or could not be made: was it the last one, the program should stop.
  void note_made() {
    should_stop_ = should_stop_ || stop_agreed_;
    is_due_ = false;
  }
  bool should_stop() const { return should_stop_; }

 private:
  void learn(const Due& due);

  Clock& clock_;
  Cadence cadence_;
  DueTalk talk_;
  std::optional<StopRequests> stop_;
  std::optional<uint64_t> last_step_;  ///< restarted from, or of the last checkpoint
  bool is_due_ = false;                ///< the ranks have agreed on that, and there was no checkpoint since
  bool stop_agreed_ = false;
  bool should_stop_ = false;
  double end_ = std::numeric_limits<double>::infinity();  ///< of the run, by the clock
};

}  // namespace varve
