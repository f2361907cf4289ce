#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/clock.h"
#include "core/progress.h"
#include "level/set_completion.h"
#include "runtime/checkpoint_duty.h"

namespace varve {

/// The parts that a group has published, until their sets are complete or never will be; and what it has published in
/// place of parts that will not come. The first group makes the sets, as soon as it finds or is told that all parts are
/// there; the others are told by it, through what all ranks exchange, and look for themselves only if that takes long.
/// The checkpoint thread's alone.
class PublishedParts {
 public:
  /// All of these outlive it. Whoever cancels `progress` gives up waiting for other groups.
  PublishedParts(const Store& store, const CheckpointDuty& duty, CheckpointNotes& notes, const ProgressSink& progress,
                 Clock& clock)
      : store_(store), duty_(duty), notes_(notes), progress_(progress), clock_(clock) {}

  /// Before anything else, when the other groups' leaders on this node have their memory.
  void meet_siblings() { siblings_.emplace(duty_.siblings); }

  bool empty() const { return parts_.empty(); }
  /// Up to which step nothing more will be tried, if up to `newest` each checkpoint has ended or is one of these.
  uint64_t finished_step(uint64_t newest) const { return empty() ? newest : parts_.front().report.step - 1; }

  /// For the others' parts, in place of the duty's time if that is longer.
  void wait_at_most(double seconds) { wait_seconds_ = std::min(wait_seconds_, seconds); }
  /// A part was published; `record` is its record.
  void add(DrainReport report, const LevelDuty& levels, SetRecord record);
  /// Who makes no sets looks into the store from now on as who makes them, instead of waiting to be told.
  void look_early();
  /// Sees which sets have all their parts by now, or never will: `conclude` is called for each, with what became of it.
  /// `hears_more`: the ranks may still tell each other how far they are.
  void look(bool hears_more, const std::function<void(DrainReport report, const LevelDuty& levels)>& conclude);

  /// A part of ours will not come, for this reason: so nobody waits for it. If the store does not take even that,
  /// others learn of it from the next exchange of all ranks, or give it up in time.
  void tell_others(uint64_t step, const Status& failure);
  /// At the end, when nobody waits any more: takes back what was told.
  void forget_told();

 private:
  struct Part {
    DrainReport report;
    LevelDuty levels;
    std::unique_ptr<SetCompletion> completion;
    double since = 0;         ///< by the clock
    double next_look = 0;     ///< for who makes no sets: into the store
    double next_listing = 0;  ///< the same, of all parts
    SetState state = SetState::on_its_way;
    bool is_look_due = false;   ///< it is time to look into the store, which costs all who share it
    bool awaits_nodes = false;  ///< CheckpointDuty::replaces_on_nodes(), and it is not known yet that all have theirs
  };
  void see_what_is_due();
  std::optional<Status> outcome_of(Part& part, bool hears_more);
  std::optional<Status> outcome_before_all_have_theirs(Part& part, bool hears_more) const;
  Status late(const Part& part) const;

  const Store& store_;
  const CheckpointDuty& duty_;
  CheckpointNotes& notes_;
  const ProgressSink& progress_;
  Clock& clock_;
  std::optional<GroupSiblings> siblings_;
  std::deque<Part> parts_;
  double wait_seconds_ = duty_.wait_seconds;
  std::vector<PartName> told_failures_;
};

}  // namespace varve
