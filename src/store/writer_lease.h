#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sync.h"
#include "store/catalog.h"
#include "store/store.h"

namespace varve {

struct PartName;

/// A writer whose lease shows no sign of life for so long is taken for dead, where nothing tells it sooner.
constexpr double kLeaseSilenceSeconds = 15;

/// What to do if a set of that name is there already.
enum class IfExists : uint8_t { refuse, replace };

/// A writer's place in a store, without locks: a file of its own name in `writers/`. While it is there, nothing that
/// existed when the writer began is removed by a prune, nor are the writer's own new arenas. Committing *renames that
/// very file* into the catalog: if a prune has given the writer up for dead (it removes the file), the rename fails and
/// nothing was lost but the work (FORMAT.md, "Writing and pruning at the same time").
class WriterLease {
 public:
  /// `id` is for those who know each other by it (arena_mover.h); else it is random.
  static Result<std::unique_ptr<WriterLease>> acquire(const Store& store, std::optional<UniqueId> id = {});
  ~WriterLease();  ///< gives up: removes the file, unless committed
  WriterLease(const WriterLease&) = delete;
  WriterLease& operator=(const WriterLease&) = delete;

  /// The id of the writer's `ordinal`-th arena at a place of the store's spread.
  ArenaId arena_id(uint32_t ordinal, uint32_t place = 0) const { return store_.spread().arena_at(id_, ordinal, place); }
  /// Whether `arena` was written by the writer whose lease file is called `lease_name`.
  static bool owns(const std::string& lease_name, const ArenaId& arena);

  /// Whether the writer of that lease ran on this machine and its process is gone. False if that cannot be told.
  static bool known_dead(const Store& store, const std::string& lease_name);

  /// The arenas that may not be referred to: marked by a prune before the lease was there.
  const std::vector<ArenaId>& condemned() const { return condemned_; }

  /// Whether a prune has given this writer up: nothing that it has written can be committed, or need even be there.
  bool lost() const;
  /// busy, with what to tell the user then.
  static Status lost_status(const SetName& set);

  /// Publishes the set: the commit point. All arenas that the record needs are sealed; this makes their names durable
  /// first. already_exists if the set is there already; busy if the lease was taken away.
  Status commit(const SetRecord& record, IfExists if_exists = IfExists::refuse);

  /// Whether the record is in the catalog, even if commit() has failed since: then its name may not be durable.
  bool has_passed_commit_point() const { return committed_; }

  /// commit() in two steps. From prepare() on, prunes see what the record needs, and keep it while the lease is there.
  Status prepare(const SetRecord& record);
  Status commit_prepared(const SetName& name, IfExists if_exists);

  /// Publishes a part of a set instead (set_part.h), as durably. already_exists if that part is there already; busy if
  /// the lease was taken away.
  Status publish_part(const PartName& name, const SetRecord& record);

 private:
  /// Shows every few seconds that the writer is alive.
  void beat();

  WriterLease(const Store& store, const UniqueId& id) : store_(store), id_(id) {}

  const Store& store_;
  const UniqueId id_;
  std::unique_ptr<PowerWatch> power_;
  std::string path_;
  std::unique_ptr<File> file_;
  std::vector<ArenaId> condemned_;
  Mutex mutex_;  // guards ending_
  ConditionVariable ended_;
  bool ending_ = false;
  Thread heart_;
  bool committed_ = false;
};

}  // namespace varve
