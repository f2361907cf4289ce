#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/progress.h"
#include "core/sync.h"
#include "runtime/retention.h"
#include "runtime/set_completion.h"
#include "runtime/warning_list.h"
#include "varve/session.h"

namespace varve {

/// What one level's sets are pushed from and to.
struct PushDuty {
  const Store* from = nullptr;  ///< the nearest store of the run; outlives the push
  /// The level's store, for writing, which outlives the push as well. Asked until it answers, by one thread at a time.
  std::function<Result<const Store*>()> to;
  std::string level;  ///< its name, for people
  std::string job;
  UniqueId run;
  uint32_t ordinal = 0;  ///< of this part among `count`: `from` may have only the ranks of a node
  uint32_t count = 1;
  std::optional<uint64_t> keep;          ///< newest sets that stay in `to`; not for all parts, but for the first alone
  size_t thread_count = 1;               ///< that work for it
  uint64_t memory_bytes = 256_MiB;       ///< that it holds at most, about
  std::function<void()> prepare_thread;  ///< run first on the thread: priority, place
};

/// Brings sets of the nearest store to a level behind it, in the background, one after the other in the order of their
/// steps; with several parts, a set is there when all have brought theirs. What fails is recorded and tried again with
/// the next set; what cannot ever succeed is given up. A level that falls behind leaves sets out, so that never more
/// than kWaitingMax wait, which the nearest store has to keep. Thread-safe.
class LevelPush {
 public:
  static constexpr size_t kWaitingMax = 4;

  LevelPush(PushDuty duty, WarningList& warnings);
  LevelPush(const LevelPush&) = delete;
  LevelPush& operator=(const LevelPush&) = delete;
  ~LevelPush();

  /// resource_limit if there can be no thread.
  Status start();
  /// The set of `step`, which is newer than all before, is complete in the nearest store, and is to go here. One that
  /// was noted before is no news. `of_end`: the last of a run goes here however many wait.
  void note_set(uint64_t step, bool of_end = false);
  /// Whether the set still has to stay in the nearest store.
  bool waits_for(uint64_t step) const;
  /// Sets of these steps are damaged here: new ones may take their places.
  void allow_replacement(uint64_t step);
  LevelProgress progress() const;

  /// Tries everything that waits once more, and returns when nothing is left to try; busy: time ran out first.
  Status finish(std::chrono::nanoseconds limit);
  /// Ends the thread, giving up what is on its way; then looks for the other parts a last time: who still lacks some
  /// gives its own up. After this: the last error, if it left anything out.
  Status end();

 private:
  class Sink;
  struct Published {
    uint64_t step = 0;
    std::unique_ptr<SetCompletion> completion;
  };

  void run();
  /// Makes sure that there is a to_.
  Status reach();
  std::optional<uint64_t> await_turn();
  Result<bool> has_it(uint64_t step) const;
  /// Pushes the set; OK also if other parts are still missing.
  Status push(uint64_t step);
  Status push_part(uint64_t step, IfExists if_exists);
  void note_outcome(uint64_t step, const Status& outcome);
  void look_for_others();
  void confirm(uint64_t step);
  void record(const Status& failure);
  IfExists policy_for(uint64_t step) const;

  const PushDuty duty_;
  WarningList& warnings_;
  const std::unique_ptr<Sink> sink_;
  Retention retention_;
  const Store* to_ = nullptr;           ///< once it was reached; the thread's, until it has ended
  std::deque<Published> published_;     ///< the thread's, until it has ended: own parts of sets that lack others
  std::chrono::milliseconds pause_{0};  ///< the thread's: until it looks for them again
  mutable Mutex mutex_;                 ///< guards all below but the thread
  ConditionVariable changed_;
  std::optional<uint64_t> noted_;
  std::deque<uint64_t> waiting_;  ///< the first one is being pushed, perhaps
  size_t published_count_ = 0;
  std::set<uint64_t> replaceable_;
  std::optional<uint64_t> newest_;
  Status last_error_;
  bool last_failed_ = false;  ///< the first of those that wait: it is left alone until there is a reason to try again
  bool left_out_ = false;     ///< the newest set, as too many were waiting
  bool stopping_ = false;
  Thread thread_;
};

}  // namespace varve
