#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/sync.h"
#include "level/checkpoint_parts.h"
#include "level/level.h"
#include "level/level_spec.h"
#include "level/retention.h"
#include "level/store_access.h"
#include "store/commit.h"
#include "store/condemn.h"
#include "store/store.h"

namespace varve {

class FileParts;

/// A set that was copied to a level.
struct LevelCopy {
  std::string level;  ///< its name
  SetName name;
  uint64_t sent_bytes = 0;
};

/// What became of a job's sets after one was saved to the nearest store.
struct Onward {
  std::vector<LevelCopy> copies;
  std::vector<Status> failures;
  std::vector<Status> given_up;  ///< sets that a level does not get, as its `backlog` says
  OwedSteps owed;
};

/// A level that is a store: of each node, or one that all share, in a folder or on servers. The nearest of these is
/// what a run saves to; one behind it is a FartherLevel.
class StoreLevel : public Level {
 public:
  StoreLevel(const LevelSpec& spec, LevelWorld& world, bool is_nearest)
      : Level(spec, world), access_(spec_, world, is_nearest) {}

  StoreLevel* as_store() override { return this; }
  /// How this rank reaches the store.
  StoreAccess& access() { return access_; }
  const StoreAccess& access() const { return access_; }

  Status look() override { return access_.look(); }
  Status prepare_on_node() override { return access_.prepare_on_node(); }
  Status open() override { return access_.open(); }

  Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate, const RankWish& wish) override;
  /// Of a store that all share, rank 0 tells; of a node's own, who speaks for the node.
  Result<std::map<uint32_t, ImageTable>> tables(const RestartCandidate& candidate) override;
  /// Makes a set whole again from the others, if this rank does it for all who share the level. False: there was
  /// nothing to mend.
  Result<bool> mend(uint64_t step, std::span<StoreLevel* const> all);
  void note_found(const Level& at, uint64_t step, Found found) override;
  void accept(const NewSet& set) override;
  /// Arenas of which this rank could not read something that it needed. They may be whole.
  const std::set<ArenaId>& unreadable_arenas() const { return unreadable_arenas_; }

  // What numbers its sets have, where that could not be asked when the run began: later ones are counted on from there

  /// The same on all ranks.
  void note_unasked() { is_unasked_ = true; }
  /// Whether this rank is the one to ask, and could not yet. Any thread, as the next.
  bool is_unasked() const { return is_unasked_; }
  /// What number comes next, by what was found since; 0: nothing was.
  uint64_t next_number() const { return next_number_; }

  /// What a new set of this step may do to one that is there. Any thread.
  IfExists policy_for(uint64_t step) const;
  /// Whether the run makes a set of this step in the place of one that is there: that one is none of its own.
  bool is_made_anew(uint64_t step) const { return policy_for(step) == IfExists::replace; }
  /// A new set has taken the place of whatever was there. Any thread.
  void note_replaced(uint64_t step);
  /// When its sets may go, as far as that is said here (Retention).
  Retention::Rules rules(const std::string& job) const;

  LevelProgress progress(const RunNews& run) const override;

  /// For a command, without a thread: copies what the level lacks of a job's sets (the one that was just saved to the
  /// nearest, and the backlog), oldest first. Returns what it is still owed then.
  virtual OwedSteps bring_all(const std::string& /*job*/, const std::function<Status()>& /*may_bring*/,
                              Onward& /*onward*/, ProgressSink& /*progress*/) {
    return {};
  }
  /// After that: drops old sets that nobody is owed.
  Status retain(const std::string& job, const OwedSteps& owed, ProgressSink& progress);
  Result<LevelContents> contents(const Store* nearest) override;

 protected:
  /// The level is back: what it has that the run could not see when it began is none of its course.
  Status ask(const Store& store);
  void ask_nothing() { is_unasked_ = false; }

 private:
  class Image;
  class Parts;
  class SharedParts;

  Result<SetRecord> read_record(const Store& store, uint64_t step) const;
  Result<SetRecord> own_record(uint64_t step);
  /// Of a store that all share: the first rank reads it for all, as it has something of each group. Collective.
  Result<SetRecord> told_record(uint64_t step);
  Result<std::unique_ptr<RankImage>> own_image(const Result<SetRecord>& record, const RankWish& wish);
  Result<std::unique_ptr<RankImage>> shared_image(const Result<SetRecord>& record, const RankWish& wish);
  /// What all ranks have saved in a set that they share, of which each reads some tables for all. Collective.
  Result<std::unique_ptr<SharedParts>> shared_parts(const Result<SetRecord>& of_set);
  Result<std::unique_ptr<FileParts>> files_of(const SetRecord& record, const RankWish* wish);
  Result<std::unique_ptr<HeldParts>> parts_of_node(uint64_t step);
  struct NodeImages {
    std::map<uint32_t, std::unique_ptr<StoredImage>> images{};  ///< by rank
    uint64_t number = 0;                                        ///< SetRecord::number
  };
  Result<NodeImages> images_of_node(const Store& store, uint64_t step) const;
  void condemn_damaged(const CopyFaults& faults);

  StoreAccess access_;
  std::set<ArenaId> unreadable_arenas_;
  std::atomic<bool> is_unasked_{false};
  std::atomic<uint64_t> next_number_{0};
  mutable Mutex mutex_;
  /// Steps of which another set may take the place: of one that is not whole, or was left behind.
  std::set<uint64_t> not_whole_ VARVE_GUARDED_BY(mutex_), left_behind_ VARVE_GUARDED_BY(mutex_);
};

/// How many sets of `job` a store has got since the last of them that is elsewhere, too, as `is_there` says: all, if
/// none is. They count in the order in which they came, which need not be that of their steps: what falls back and goes
/// on has new sets with lower ones.
Result<uint64_t> sets_ahead(const Store& store, const std::string& job,
                            const std::function<bool(uint64_t step)>& is_there);

}  // namespace varve
