#include "runtime/cadence.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/report.h"

namespace varve {

namespace {
/// Cheaper checkpoints are taken to cost so much: a clock's noise must not make the interval nothing.
constexpr double kCostSecondsMin = 0.001;
/// Until a checkpoint's cost is known, the first one is due after this, or this share of the time between failures.
constexpr double kFirstSecondsMax = 600;
constexpr double kFirstShare = 0.01;

/// The mean with what was before, so that one slow checkpoint neither counts for nothing nor for long.
double smoothed(double before, double now) { return (before + now) / 2; }
}  // namespace

Cadence::Cadence(CadenceRule rule, Clock& clock)
    : rule_(rule), clock_(clock), last_begin_(clock.seconds()), last_end_(last_begin_) {}

bool Cadence::due(uint64_t step) const {
  const MutexLock lock(mutex_);
  if (rule_.every_steps && step > last_step_ && step / *rule_.every_steps > last_step_ / *rule_.every_steps)
    return true;
  if (rule_.every_seconds) return clock_.seconds() - last_begin_ >= *rule_.every_seconds;
  if (rule_.every_steps) return false;
  return clock_.seconds() - last_end_ >= automatic_interval();
}

void Cadence::note_restart(uint64_t step) {
  const MutexLock lock(mutex_);
  last_step_ = step;
  last_begin_ = last_end_ = clock_.seconds();
}

void Cadence::note_checkpoint(uint64_t step, double blocked_seconds) {
  const MutexLock lock(mutex_);
  last_step_ = step;
  last_end_ = clock_.seconds();
  last_begin_ = last_end_ - blocked_seconds;
  blocked_seconds_ = blocked_seconds_ ? smoothed(*blocked_seconds_, blocked_seconds) : blocked_seconds;
}

void Cadence::note_skipped(uint64_t step) {
  const MutexLock lock(mutex_);
  last_step_ = step;
  last_begin_ = last_end_ = clock_.seconds();
}

void Cadence::note_persistent(double seconds_to_persistent, double disturbance_seconds) {
  const MutexLock lock(mutex_);
  const bool first = !persistent_seconds_;
  persistent_seconds_ = first ? seconds_to_persistent : smoothed(*persistent_seconds_, seconds_to_persistent);
  disturbance_seconds_ = first ? disturbance_seconds : smoothed(disturbance_seconds_, disturbance_seconds);
}

std::optional<double> Cadence::interval_seconds() const {
  const MutexLock lock(mutex_);
  if (rule_.every_seconds) return rule_.every_seconds;
  if (rule_.every_steps) return std::nullopt;
  return automatic_interval();
}

std::optional<double> Cadence::best_interval() const {
  const MutexLock lock(mutex_);
  if (!blocked_seconds_) return std::nullopt;
  return automatic_interval();
}

std::optional<double> Cadence::persistent_seconds() const {
  const MutexLock lock(mutex_);
  return persistent_seconds_;
}

double Cadence::automatic_interval() const {
  const double mtbf = rule_.mean_time_between_failures;
  if (!blocked_seconds_) return std::min(kFirstSecondsMax, mtbf * kFirstShare);
  const double cost = std::max(kCostSecondsMin, *blocked_seconds_ + disturbance_seconds_);
  return std::max(best_interval_seconds(cost, mtbf), persistent_seconds_.value_or(0));
}

uint64_t TalkPace::call_nanoseconds() const {
  return static_cast<uint64_t>(1e9 * (clock_.seconds() - last_seconds_) /
                               static_cast<double>(std::max<uint64_t>(calls_, 1)));
}

void TalkPace::learn(uint64_t slowest_nanoseconds) {
  // A clock that does not go tells nothing.
  const double calls = slowest_nanoseconds == 0 ? 1 : kSeconds * 1e9 / static_cast<double>(slowest_nanoseconds);
  calls_between_ = std::clamp<uint64_t>(static_cast<uint64_t>(calls), 1, kCallsMax);
  calls_ = 0;
  last_seconds_ = clock_.seconds();
}

namespace {
/// What ranks say of what is due; what they tell along with it comes behind.
constexpr size_t kVotes = 4;
/// Longer is as good as for ever.
constexpr double kLeftSecondsMax = 1e9;

// For an all_max(), so that the least time counts; 0: not known.
uint64_t encode_left(double seconds) {
  if (seconds > kLeftSecondsMax) return 0;
  return static_cast<uint64_t>(1000 * (kLeftSecondsMax - std::max(0.0, seconds))) + 1;
}
double decode_left(uint64_t told) {
  if (told == 0) return std::numeric_limits<double>::infinity();
  return kLeftSecondsMax - static_cast<double>(told - 1) / 1000;
}
}  // namespace

Result<Due> DueTalk::ask(Communicator& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step,
                         std::span<const uint64_t> tell) {
  const bool alone = ranks.rank_count() == 1, by_steps = cadence.by_steps_alone();
  if (alone || (by_steps && !stop.possible())) {
    const bool stops = stop.requested();
    return Due{.checkpoint = cadence.due(step) || stops, .stop = stops, .seconds_left = stop.seconds_left()};
  }
  pace_.note_call();
  const uint64_t call_nanoseconds = pace_.call_nanoseconds();
  Due due;
  if (is_on_) {
    VARVE_ASSIGN(due, end(ranks));
  }
  // After the checkpoint it is another question.
  const bool is_answered = due.checkpoint;
  if (by_steps) due.checkpoint = due.checkpoint || cadence.due(step);
  if (is_answered || !pace_.is_turn()) return due;
  // Clocks differ: where time counts, one rank decides.
  const bool is_due = !by_steps && ranks.rank() == 0 && cadence.due(step);
  votes_ = {is_due, stop.requested(), call_nanoseconds, encode_left(stop.seconds_left())};
  votes_.insert(votes_.end(), tell.begin(), tell.end());
  VARVE_TRY(ranks.begin_all_max(votes_));
  is_on_ = true;
  begun_seconds_ = clock_.seconds();
  return due;
}

Result<Due> DueTalk::end(Communicator& ranks) {
  is_on_ = false;
  VARVE_TRY(ranks.finish_all_max(votes_));
  pace_.learn(votes_[2]);
  return Due{.checkpoint = votes_[0] != 0 || votes_[1] != 0,
             .stop = votes_[1] != 0,
             .seconds_left = decode_left(votes_[3]) - (clock_.seconds() - begun_seconds_),
             .told = std::vector<uint64_t>(votes_.begin() + kVotes, votes_.end())};
}

void RunCourse::restart_at(std::optional<uint64_t> step) {
  is_due_ = false;
  // At its begin there is nothing that a checkpoint has to come after, and no time has passed since one.
  if (!step && !last_step_) return;
  last_step_ = step;
  cadence_.note_restart(step.value_or(0));
}

Status RunCourse::go_on_to(uint64_t step) {
  if (last_step_ && step <= *last_step_)
    return Status::invalid_argument(fmt::format("step {} does not come after step {}", step, *last_step_));
  last_step_ = step;
  return {};
}

void RunCourse::learn(const Due& due) {
  is_due_ = is_due_ || due.checkpoint;
  stop_agreed_ = stop_agreed_ || due.stop;
  end_ = std::min(end_, clock_.seconds() + due.seconds_left);
}

Result<Due> RunCourse::agree(Communicator& ranks, uint64_t step, std::span<const uint64_t> tell) {
  VARVE_ASSIGN(Due due, talk_.ask(ranks, cadence_, *stop_, step, tell));
  learn(due);
  due.checkpoint = is_due_ || (stop_agreed_ && !should_stop_);
  return due;
}

Result<std::optional<std::vector<uint64_t>>> RunCourse::end_talk(Communicator& ranks) {
  if (!talk_.is_on()) return std::optional<std::vector<uint64_t>>();
  VARVE_ASSIGN(Due due, talk_.end(ranks));
  learn(due);
  return std::move(due.told);
}

}  // namespace varve
