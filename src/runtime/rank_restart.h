#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "runtime/restart.h"
#include "runtime/stored_image.h"
#include "runtime/warning_list.h"
#include "snapshot/snapshot_discovery.h"
#include "snapshot/snapshot_reader.h"
#include "snapshot/variable_table.h"
#include "store/store.h"

namespace varve {

/// What agree_on_candidates() is told of a rank for which this is left.
std::vector<MemoryStep> memory_steps(const std::vector<LeftSnapshot>& left);

/// A rank's side of a restart from the snapshots of dead runs on its node, and from the sets of its stores. Arenas that
/// it finds damaged are condemned, so that the run, which will compute the same again, does not refer to them: a whole
/// arena for one pack, since marks are of arenas, and since a prune brings what is whole in one to safety. What could
/// not be read is not condemned, as it may be whole.
class RankRestart final : public RestartSide {
 public:
  struct Place {
    std::string job;
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    size_t thread_count = 1;      ///< for checking
    uint64_t kept_bytes_max = 0;  ///< of a set's image, so that it need not be decoded twice
  };
  /// A store of a run.
  struct Shelf {
    /// Asked when something of it is to be read, and not before: a server need not know the ranks that take their
    /// checkpoint from elsewhere. The store outlives this.
    std::function<Result<const Store*>()> open;
    bool of_node = false;  ///< it is the node's own, and has only its ranks
    uint32_t group = 0;    ///< ordinal of the rank's group in the sets there, where its image is most likely
    std::string name{};    ///< for people
    bool mends = false;    ///< this rank mends what is damaged there
  };
  /// `shelves`: nearest first.
  RankRestart(std::vector<Shelf> shelves, Place place, std::vector<LeftSnapshot> left, VariableTable& variables,
              WarningList& warnings, Clock& clock)
      : shelves_(std::move(shelves)),
        warnings_(warnings),
        clock_(clock),
        place_(std::move(place)),
        left_(std::move(left)),
        variables_(variables) {}

  Status look(const RestartCandidate& candidate) override;
  Status check() override;
  std::optional<SetOrigin> origin() const override;
  Status load() override;
  Status mend(const RestartCandidate& candidate) override;

  /// Of a level: arenas of which this rank could not read something that it needed.
  const std::set<ArenaId>& unreadable_arenas(uint32_t level) { return unreadable_arenas_[level]; }

 private:
  Status look_in_memory(const RestartCandidate& candidate);
  Status look_in_store(const RestartCandidate& candidate);
  /// Has what was found damaged in the store of the image marked, and notes what could not be read.
  Status with_consequences(const Status& outcome);

  const std::vector<Shelf> shelves_;
  WarningList& warnings_;
  Clock& clock_;
  const Place place_;
  const std::vector<LeftSnapshot> left_;  ///< of this rank
  VariableTable& variables_;
  std::unique_ptr<SnapshotReader> memory_;  ///< what was checked last: one of these
  std::unique_ptr<StoredImage> stored_;
  const Shelf* shelf_ = nullptr;  ///< of that
  const Store* store_ = nullptr;  ///< of that
  uint32_t level_ = 0;            ///< of that
  std::map<uint32_t, std::set<ArenaId>> unreadable_arenas_;
};

}  // namespace varve
