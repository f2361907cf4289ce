#pragma once

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/sync.h"
#include "core/unique_id.h"
#include "level/level.h"
#include "level/level_spec.h"
#include "level/retention.h"
#include "service/location.h"
#include "store/commit.h"
#include "store/condemn.h"
#include "store/store.h"
#include "varve/communicator.h"

namespace varve {

/// The store of a level, as one process has it open. Thread-safe, as stores are.
class LevelStore {
 public:
  /// Where the level is, for a rank on a node of this name; `node` is empty unless VARVE_NODE says it: nodes that are
  /// named so may be on one machine, and each has a folder of its own.
  static std::string path_of(const LevelSpec& spec, const std::string& node);
  /// Makes the folder that `path` is to be in, if it is one that path_of() has added.
  static Status prepare_parent(FileSystem& files, const LevelSpec& spec, const std::string& path);
  /// Makes the level if it is not there, and says by which path it is known from everywhere. For one rank of those that
  /// see it.
  static Result<std::string> prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                     const ReachOptions& reach);
  /// The same, of a level that is there.
  static std::string known_path(const LevelSpec& spec, const std::string& path);
  /// Opens what was prepared. `files` and `clock` outlive it.
  static Result<std::unique_ptr<LevelStore>> open(FileSystem& files, const LevelSpec& spec, const std::string& path,
                                                  const ReachOptions& reach, Clock& clock);

  /// Whether a level that failed so is out of reach, and may be there again later, rather than named wrongly.
  static bool is_away(const Status& failure);

  /// For reading.
  const Store& store() const { return *store_; }
  /// For writing, no faster than the level allows. For one thread's work, as it is slowed as a whole.
  const Store& slowed() const { return slowed_ ? *slowed_ : *store_; }

 private:
  explicit LevelStore(std::unique_ptr<StorePlace> place) : place_(std::move(place)) {}

  const std::unique_ptr<StorePlace> place_;  ///< on servers; none: a folder
  std::unique_ptr<Backend> throttled_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Store> slowed_;  ///< if there is a limit
};

/// invalid_argument, on all ranks, if two nodes see the same folder where each should have its own: a path on a file
/// system that they share was taken for a local one. `store` is the path of each node's store, which is there; `run`
/// names the run. Collective.
Status check_own_folders(Communicator& ranks, const RankSeat& seat, FileSystem& files, const std::string& store,
                         const UniqueId& run);

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
/// what a run saves to; one behind it is a FartherLevel. A store that all share may be away, if it is not the nearest:
/// then a run goes on without it until it is back.
class StoreLevel : public Level {
 public:
  StoreLevel(const LevelSpec& spec, LevelWorld& world, bool is_nearest);

  StoreLevel* as_store() override { return this; }
  /// Whether each node has a store of its own here.
  bool is_of_node() const { return spec_.is_of_node(); }
  bool is_nearest() const { return is_nearest_; }
  /// Whether this rank alone, of those that share the level, does what one has to do there.
  bool speaks() const { return is_of_node() ? world_.speaks_for_node() : world_.ranks.rank() == 0; }
  /// Whether this rank has to do with it also while the program computes. Servers need not know those who have not.
  bool is_at_work() const;

  /// As all ranks know it; of a node's own, as the node does; empty: not known yet.
  const std::string& path() const { return path_; }
  /// Where this rank would look for it.
  std::string own_path() const { return LevelStore::path_of(spec_, world_.node); }

  Status look() override;
  Status prepare_on_node() override;
  Status open() override;
  /// Without others: makes it if `makes` and it is not there, and opens it. What is wrong is why_away() then.
  Status reach(bool makes);
  /// Closes what this rank does not work with.
  void close_if_idle();

  /// Out of reach for rank 0. The same on all ranks after each collective call.
  bool is_away() const { return away_; }
  /// On the rank that speaks for it.
  const Status& why_away() const { return why_away_; }

  /// The store, which this rank opens if it needs it.
  Result<const Store*> store();
  /// None: this rank has not opened it.
  const Store* opened() const { return store_ ? &store_->store() : nullptr; }
  /// For writing, no faster than the level allows. It is open.
  const Store& slowed() const { return store_->slowed(); }

  /// Makes sets of parts that runs have left, if all are there; on the rank that speaks for it.
  void complete_leftovers();
  /// The steps of the job's sets, as this rank sees them. Collective.
  Result<std::vector<uint64_t>> list();
  Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate) override;
  /// For the nodes' own stores: whether these sets (at least one) never were whole, as the job's very first run ended
  /// before all nodes had saved the first one: some node lacks each of them, no node's store is new, and the oldest is
  /// the first that the job made. Collective.
  Result<bool> never_were_whole(const std::vector<uint64_t>& steps);
  /// Makes a set whole again from the others, if this rank does it for all who share the level.
  Status mend(uint64_t step, std::span<StoreLevel* const> all);
  void note_found(const Level& at, uint64_t step, Found found) override;
  void accept(const NewSet& set) override;
  /// Arenas of which this rank could not read something that it needed. They may be whole.
  const std::set<ArenaId>& unreadable_arenas() const { return unreadable_arenas_; }

  /// What a new set of this step may do to one that is there. Any thread.
  IfExists policy_for(uint64_t step) const;
  /// When its sets may go, as far as that is said here (Retention).
  Retention::Rules rules(const std::string& job) const;

  LevelProgress progress(const RunNews& run) const override;

  /// For a command, without a thread: copies what the level lacks of a job's sets (the one that was just saved to the
  /// nearest, and the backlog), oldest first. Returns what it is still owed then.
  virtual OwedSteps bring_all(const std::string& /*job*/, Onward& /*onward*/, ProgressSink& /*progress*/) { return {}; }
  /// After that: drops old sets that nobody is owed.
  Status retain(const std::string& job, const OwedSteps& owed, ProgressSink& progress);
  Result<LevelContents> contents(const Store* nearest) override;

 private:
  class Image;

  Status share_away();
  void note_away(const Status& why);
  bool may_be_away(const Status& failure) const { return !is_nearest_ && LevelStore::is_away(failure); }
  void condemn_damaged(const CopyFaults& faults);

  const bool is_nearest_;
  std::string path_;
  bool away_;
  Status why_away_;
  bool was_there_ = true;  ///< the node's own store, before it was prepared
  std::unique_ptr<LevelStore> store_;
  std::set<ArenaId> unreadable_arenas_;
  mutable Mutex mutex_;
  std::set<uint64_t> replaceable_ VARVE_GUARDED_BY(mutex_);
};

/// How many sets of `job` a store has got since the last of them that is also elsewhere, where `there`, ascending, are:
/// all, if none is. They count in the order in which they came, which need not be that of their steps: what falls back
/// and goes on has new sets with lower ones.
Result<uint64_t> sets_ahead(const Store& store, const std::string& job, const std::vector<uint64_t>& there);

}  // namespace varve
