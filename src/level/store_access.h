#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/unique_id.h"
#include "level/level.h"
#include "level/level_spec.h"
#include "service/location.h"
#include "store/job_lease.h"
#include "store/store.h"
#include "varve/communicator.h"
#include "varve/status.h"

namespace varve {

/// The store of a level, as one process has it open. Thread-safe, as stores are.
class LevelStore {
 public:
  /// Where the level is, for a rank on a node of this name; `node` is empty unless VARVE_NODE says it: nodes that are
  /// named so may be on one machine, and each has a folder of its own.
  static std::string path_of(const LevelSpec& spec, const std::string& node);
  /// Makes the folder that `path` is to be in, if it is one that path_of() has added.
  static Status prepare_parent(FileSystem& files, const LevelSpec& spec, const std::string& path);
  struct Prepared {
    std::string path;   ///< by which it is known from everywhere
    bool made = false;  ///< it was not there
  };
  /// Makes the level if it is not there. For one rank of those that see it.
  static Result<Prepared> prepare(FileSystem& files, const LevelSpec& spec, const std::string& path,
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
  /// From now on nothing waits for that: what is written has been given up. From any thread.
  void stop_slowing() { is_slowed_ = false; }
  /// Another process has made the store's own name durable.
  void note_durable() const;

 private:
  explicit LevelStore(std::unique_ptr<StorePlace> place) : place_(std::move(place)) {}

  const std::unique_ptr<StorePlace> place_;  ///< on servers; none: a folder
  std::atomic<bool> is_slowed_{true};
  std::unique_ptr<Backend> throttled_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Store> slowed_;  ///< if there is a limit
};

/// invalid_argument, on all ranks, if two nodes see the same folder where each should have its own: a path on a file
/// system that they share was taken for a local one. `store` is the path of each node's store, which is there; `run`
/// names the run. Collective.
Status check_own_folders(Communicator& ranks, const RankSeat& seat, FileSystem& files, const std::string& store,
                         const UniqueId& run);

/// How one rank reaches the store of a level: where it is, whether it is away, and the store once it is open. A store
/// that all ranks share may be away, if it is not the nearest: then a run goes on without it until it is back. What is
/// opened and closed is so on the program's thread.
class StoreAccess {
 public:
  /// Both outlive it.
  StoreAccess(const LevelSpec& spec, LevelWorld& world, bool is_nearest)
      : spec_(spec), world_(world), is_nearest_(is_nearest), away_(!spec.is_of_node()) {}

  bool is_nearest() const { return is_nearest_; }
  /// Whether this rank alone, of those that share the store, does what one has to do there.
  bool speaks() const { return spec_.is_of_node() ? world_.speaks_for_node() : world_.ranks.rank() == 0; }
  /// Whether this rank has to do with it also while the program computes. Servers need not know those who have not.
  bool is_at_work() const;

  /// As all ranks know it; of a node's own, as the node does; empty: not known yet.
  const std::string& path() const { return path_; }
  /// Where this rank would look for it.
  std::string own_path() const { return LevelStore::path_of(spec_, world_.node); }

  // As in Level; collective

  Status look();
  Status prepare_on_node();
  Status open();
  /// What this rank met with at the store, which is then the same on all: OK also if the store is away. Collective.
  Status agree_on(Status met);

  /// Without others: makes it if `makes` and it is not there, and opens it. What is wrong is why_away() then.
  Status reach(bool makes);
  /// Closes what this rank does not work with.
  void close_if_idle();

  /// Out of reach for rank 0. The same on all ranks after each collective call.
  bool is_away() const { return away_; }
  /// On the rank that speaks for it.
  const Status& why_away() const { return why_away_; }
  /// On the rank that speaks for it: there was no store, and this has made one. Told once.
  bool take_made() { return std::exchange(was_made_, false); }
  /// Of a node's own, where this rank speaks for it: how the job had begun, or begun anew, on this node before
  /// prepare_on_node() (note_beginning()).
  const std::vector<JobBeginning>& beginnings() const { return beginnings_; }
  /// Of a node's own: durably notes there that the job begins on this node with the run, and with the world's first
  /// number, before any node saves for it; `anew`: beside the earlier ones, of which there may be parts of sets.
  Status note_beginning(bool anew);
  /// Of the nearest, if all ranks share it: it had no chunks when it was opened. The same on all ranks.
  bool was_empty() const { return was_empty_; }

  /// The store, which this rank opens if it needs it.
  Result<const Store*> store();
  /// None: this rank has not opened it. From any thread.
  const Store* opened() const { return opened_; }
  /// For writing, no faster than the level allows. It is open.
  const Store& slowed() const { return store_->slowed(); }
  void stop_slowing() {
    if (store_) store_->stop_slowing();
  }

 private:
  bool may_be_away(const Status& failure) const { return !is_nearest_ && LevelStore::is_away(failure); }
  /// Makes it if it is not there. For the rank that speaks for it.
  Result<std::string> prepare();
  void note_away(const Status& why);

  const LevelSpec& spec_;
  LevelWorld& world_;
  const bool is_nearest_;
  std::string path_;
  bool away_;
  Status why_away_;
  bool was_made_ = false;
  std::vector<JobBeginning> beginnings_;
  bool was_empty_ = false;
  std::unique_ptr<LevelStore> store_;
  std::atomic<const Store*> opened_{nullptr};
};

}  // namespace varve
