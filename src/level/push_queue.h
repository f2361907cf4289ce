#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "core/sync.h"
#include "level/level_spec.h"
#include "level/retention.h"
#include "varve/session.h"
#include "varve/status.h"

namespace varve {

/// The sets that a farther level is owed, in the order in which they go there, and what became of them: whoever makes
/// sets notes them, and one thread takes them up, one after the other. What fails for a reason that may pass is left
/// alone until there is a new reason to try. Of more than the level's `backlog`, the oldest are given up, but for the
/// one that is on its way. Thread-safe.
class PushQueue {
 public:
  /// `level` outlives it.
  explicit PushQueue(const LevelSpec& level) : level_(level) {}

  // Who makes sets

  /// The set of `step`, which is newer than all before, is to go there if it is due, or if it `must`. One that was
  /// noted before is no news. Returns the steps that are given up by it.
  std::vector<uint64_t> note(uint64_t step, uint64_t number, bool must);
  /// The set will never be complete: it is owed no more.
  void forget(uint64_t step);
  bool owes(uint64_t step, uint64_t number) const;
  /// Whether the set, which is in the nearest store and due, came there since the backlog was looked for, by somebody
  /// else than who notes sets. It may be owed, and the backlog is looked for once more.
  bool has_overlooked(uint64_t step, uint64_t number);
  /// Not known: nobody has looked for the backlog.
  OwedSteps owed_steps() const;
  LevelProgress progress() const;
  /// Has everything that waits tried once more, and the first failure that may pass once again: nobody comes later.
  /// Returns when nothing is left to try; busy: time ran out first.
  Status try_all(Moment end);
  /// Ends await().
  void stop();

  // Who brings them there: one thread

  /// What was found when the backlog was looked for: what earlier runs could not bring there comes before what this one
  /// has made. `all`: there is no more of it, else whatever is due may be owed. Returns the steps that are given up by
  /// it.
  std::vector<uint64_t> take_up(const LevelBacklog& backlog, bool all);
  bool knows_backlog() const;
  /// The set whose turn it is, which is on its way then; none: nothing is left to try.
  std::optional<uint64_t> next();
  struct Turn {
    std::optional<uint64_t> step{};  ///< as next()
    bool stopped = false;
    bool timed_out = false;
    bool looks = false;  ///< for the backlog once more
  };
  /// Waits for the next set, for something that was overlooked, or for stop(). With a `pause`, waits once, so long at
  /// most, whatever it is woken for.
  Turn await(std::optional<std::chrono::milliseconds> pause);
  /// What became of the set that was on its way; `gone`: it is not in the nearest store any more, and so owed no more.
  void note_outcome(uint64_t step, const Status& outcome, bool gone);
  /// The own part of the set is there, and lacks others.
  void note_published(uint64_t step);
  /// What became of sets of parts.
  void note_parts(const std::vector<uint64_t>& complete, const std::vector<uint64_t>& failed);
  /// The set is there.
  void note_there(uint64_t step);
  /// False: it is what was wrong before.
  bool note_failure(const Status& failure);
  /// Parts that lack others were withdrawn: their sets are owed as before. The last error, if anything is left out.
  Status end();

 private:
  enum class Backlog : uint8_t { not_looked_for, not_known, known };
  struct Attempts {
    /// The first of those that wait failed: it is left alone until there is a reason to try again.
    bool last_failed = false;
    uint64_t reasons = 0;           ///< to try again what failed, so far
    uint64_t reasons_at_begin = 0;  ///< of the push that is on its way, or was the last one
    bool is_one_more_left = false;  ///< a failure is tried again at once: nothing comes after the end of a run
  };

  std::vector<uint64_t> give_up_too_many() VARVE_REQUIRES(mutex_);
  std::optional<uint64_t> next_turn() VARVE_REQUIRES(mutex_);

  const LevelSpec& level_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::deque<OwedSet> waiting_ VARVE_GUARDED_BY(mutex_);      ///< in the order in which they go there
  std::optional<uint64_t> pushing_ VARVE_GUARDED_BY(mutex_);  ///< the first of them, while it is on its way
  /// That cannot be brought there as things are; owed all the same.
  std::set<uint64_t> refused_ VARVE_GUARDED_BY(mutex_);
  std::set<uint64_t> published_ VARVE_GUARDED_BY(mutex_);  ///< own parts of sets that lack others
  std::set<uint64_t> noted_ VARVE_GUARDED_BY(mutex_), given_up_ VARVE_GUARDED_BY(mutex_);
  SeenSets seen_ VARVE_GUARDED_BY(mutex_);  ///< noted, due or not, or found when the backlog was looked for
  Backlog backlog_ VARVE_GUARDED_BY(mutex_) = Backlog::not_looked_for;
  bool is_to_look_ VARVE_GUARDED_BY(mutex_) = false;  ///< for the backlog once more
  std::optional<uint64_t> newest_ VARVE_GUARDED_BY(mutex_);
  Status last_error_ VARVE_GUARDED_BY(mutex_);
  Attempts attempts_ VARVE_GUARDED_BY(mutex_);
  bool stopping_ VARVE_GUARDED_BY(mutex_) = false;
};

}  // namespace varve
