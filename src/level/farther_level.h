#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "core/sync.h"
#include "level/push_queue.h"
#include "level/retention.h"
#include "level/set_completion.h"
#include "level/store_level.h"
#include "varve/session.h"

namespace varve {

/// What one level's sets are pushed from and to, and what else is done about it.
struct PushDuty {
  const Store* from = nullptr;  ///< the nearest store of the run; outlives the push
  /// The level's store, for writing, which outlives the push as well. Asked until it answers, by one thread at a time.
  std::function<Result<const Store*>()> to;
  LevelSpec level;
  std::string job;
  UniqueId run;
  uint32_t ordinal = 0;  ///< of this part among `count`: `from` may have only the ranks of a node
  uint32_t count = 1;
  /// Called once the level is reached, before anything is brought there; where it fails, it is called again.
  std::function<Status(const Store&)> note_reached{};
  /// For parts: whether all nodes have theirs of this set of an earlier run.
  std::function<bool(uint64_t step)> complete_before{};
  /// Asked before anything of the level is changed; none: it may be. busy: another run has taken the job over.
  std::function<Status()> may_bring{};
  /// What a set may do to one of its step that is there.
  std::function<IfExists(uint64_t step)> policy_for{};
  /// Whether the nearest store is to get another set of this step, so that the one that it has is not brought on.
  std::function<bool(uint64_t step)> is_made_anew{};
  Retention::Rules retention{};  ///< of the level
  std::function<void(const Status&)> note_given_up{};
  std::function<void(const SetName&, uint64_t sent_bytes)> note_copied{};
  std::function<void(uint64_t step)> note_there{};
  std::function<void(const LevelNews&)> note_news{};  ///< called on the thread, and by who makes sets
  size_t thread_count = 0;                            ///< that work for it; 0: as many as there are processors
  uint64_t memory_bytes = 256_MiB;                    ///< that it holds at most, about
  std::function<void()> prepare_thread;               ///< run first on the thread: priority, place
};

/// Brings sets of the nearest store to a level behind it, in the background, one after the other in the order in which
/// they were made: first the backlog, which earlier runs could not bring there (level/retention.h). With several parts,
/// a set is there when all have brought theirs. What fails is recorded and tried again with the next set. Whatever is
/// owed stays in the nearest store (LevelPush::owes()); a set is given up only where the level's `backlog` says so, and
/// then note_given_up() says which. Without start(), bring_all() does it at once. Thread-safe.
class LevelPush {
 public:
  LevelPush(PushDuty duty, WarningList& warnings);
  LevelPush(const LevelPush&) = delete;
  LevelPush& operator=(const LevelPush&) = delete;
  ~LevelPush();

  /// resource_limit if there can be no thread.
  Status start();
  /// The set of `step`, which is newer than all before, is complete in the nearest store. It is to go here if it is
  /// due, or if it `must`. One that was noted before is no news.
  void note_set(uint64_t step, uint64_t number, bool must = false);
  /// The set will never be complete in the nearest store: it is owed no more.
  void forget(uint64_t step) { queue_.forget(step); }
  /// Whether the set still has to stay in the nearest store for this level.
  bool owes(uint64_t step, uint64_t number) const { return queue_.owes(step, number); }
  /// PushQueue::has_overlooked().
  bool has_overlooked(uint64_t step, uint64_t number) { return queue_.has_overlooked(step, number); }
  LevelProgress progress() const { return queue_.progress(); }

  /// In place of start(): brings there what is owed, one set after the other, until nothing is left that can be brought
  /// now. The first failure, if it left anything out.
  Status bring_all(ProgressSink& progress);
  /// After that. Not known: neither the level nor the nearest store could tell.
  OwedSteps owed_steps() const { return queue_.owed_steps(); }

  /// Tries everything that waits once more, and returns when nothing is left to try; busy: time ran out first.
  Status finish(Moment end) { return queue_.try_all(end); }
  /// How long the last set took that was brought there; none: there was none.
  std::optional<double> set_seconds() const;
  /// Ends the thread, giving up what is on its way; then looks for the other parts a last time: who still lacks some
  /// gives its own up. After this: the last error, if it left anything out.
  Status end(Ending ending);

 private:
  class Sink;

  void run();
  /// Makes sure that there is a to_.
  Status reach();
  Status note_backlog();
  void give_up(const std::vector<uint64_t>& steps) const;
  /// Pushes the set; OK also if other parts are still missing.
  Status push(uint64_t step);
  Status check_pin(const SetName& name) const;
  Status push_part(uint64_t step, IfExists if_exists);
  void note_outcome(uint64_t step, const Status& outcome);
  void look_for_others();
  Status may_bring() const;
  void confirm(uint64_t step, uint64_t sent_bytes = 0);
  void record(const Status& failure, std::optional<uint64_t> step = std::nullopt);
  void tell(LevelNews news) const;

  const PushDuty duty_;
  WarningList& warnings_;
  const std::unique_ptr<Sink> sink_;
  ProgressSink* progress_;  ///< that, or the caller's
  Retention retention_;
  bool any_is_new_ = false;    ///< a set came here
  const Store* to_ = nullptr;  ///< once it was reached; the thread's, until it has ended
  WaitingParts parts_;         ///< the thread's, until it has ended
  PushQueue queue_;
  std::atomic<double> set_seconds_{0};  ///< of the last set; 0: there was none
  Thread thread_;
};

/// A store behind the nearest one. In a run, sets are brought there in the background: by the rank that speaks for the
/// node, if each has a store of its own, else by rank 0.
class FartherLevel final : public StoreLevel {
 public:
  FartherLevel(const LevelSpec& spec, LevelWorld& world, const Levels& all)
      : StoreLevel(spec, world, /*is_nearest=*/false), all_(all) {}

  Status start() override;
  void accept(const NewSet& set) override;
  void forget(uint64_t step) override;
  bool owes(uint64_t step, uint64_t number) const override;
  bool has_overlooked(uint64_t step, uint64_t number) override;
  LevelProgress progress(const RunNews& run) const override;
  Status finish(const std::optional<NewSet>& last, Moment end) override;
  Status end(Ending ending) override;

  OwedSteps bring_all(const std::string& job, const std::function<Status()>& may_bring, Onward& onward,
                      ProgressSink& progress) override;

 private:
  std::function<Result<const Store*>()> store_to_push_to();
  Status check_in_time() const;

  const Levels& all_;
  std::unique_ptr<LevelPush> push_;   ///< none: another rank's
  bool pauses_ = false;               ///< until start()
  std::vector<NewSet> while_paused_;  ///< accepted meanwhile
};

}  // namespace varve
