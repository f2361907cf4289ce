#pragma once

#include <memory>
#include <optional>
#include <set>

#include "core/sync.h"
#include "level/store_level.h"
#include "redundancy/node_redundancy.h"

namespace varve {

/// The redundancy of the nodes' stores, as one rank has a part in it: the leader of each node; the others know no more
/// than that it is there. Sets are accepted on the checkpoint thread, which drops them, too.
///
/// The leaders meet for each set that is to be protected. They need not come with the same one: who is behind learns
/// that others have gone on, and goes on itself; who is ahead waits. So nobody waits for a set that a node failed to
/// save.
class RedundancyLevel final : public Level {
 public:
  RedundancyLevel(const LevelSpec& spec, LevelWorld& world, const StoreLevel& store)
      : Level(spec, world), store_(store), redundancy_(spec.redundancy) {}

  /// Rebuilds what nodes have lost, and in stand-ins what those had that are not there any more (stand_ins.h); says so
  /// among the warnings. Before the stores are opened.
  Status prepare_on_node() override;
  /// It has no sets of its own.
  Result<std::unique_ptr<RankImage>> image(const RestartCandidate& candidate, const RankWish& wish) override;
  void note_found(const Level& at, uint64_t step, Found found) override;
  /// Protects the set, once it was saved on this node, or was not. What fails is recorded.
  void accept(const NewSet& set) override;
  /// Whether the set has redundancy on all nodes, as far as is known here.
  bool protects(uint64_t step) const override;
  /// What is dropped only on some nodes would count as lost there, and be rebuilt.
  Status before_drop(uint64_t step) override;
  /// No more sets will come from here; returns when that is so for all.
  void stop() override;
  Status end(Ending ending) override;
  LevelProgress progress(const RunNews& run) const override;
  /// This node's share.
  Result<LevelContents> contents(const Store* nearest) override;

 private:
  enum class Meeting : uint8_t {
    all_have_it,
    not_all_have_it,
    others_went_on,
  };
  NodePlace place() const { return {&world_.files, store_.access().own_path(), world_.seat.node().name}; }
  /// Where there are fewer nodes than it takes: the run goes on with what these can have, if it goes on at all.
  Status take_fewer_nodes();
  Status restore();
  void drop_stand_ins();
  void meet_and_protect(const NewSet& set);
  Result<Meeting> meet(uint64_t step, bool saved);
  Status protect_now(uint64_t step);
  void record(const Status& failure, std::optional<uint64_t> step = std::nullopt);

  const StoreLevel& store_;                ///< what it protects
  Redundancy redundancy_;                  ///< as it was asked for, or less
  std::unique_ptr<Communicator> leaders_;  ///< of all nodes; in them alone, and if there are several
  bool broken_ = false;                    ///< the leaders cannot talk any more
  mutable Mutex mutex_;
  std::optional<uint64_t> newest_ VARVE_GUARDED_BY(mutex_);
  std::set<uint64_t> protected_ VARVE_GUARDED_BY(mutex_);  ///< steps
  Status last_error_ VARVE_GUARDED_BY(mutex_);
};

}  // namespace varve
