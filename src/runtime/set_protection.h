#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "core/sync.h"
#include "level/level_spec.h"
#include "level/node_redundancy.h"
#include "runtime/warning_list.h"
#include "varve/session.h"

namespace varve {

/// What is done for the redundancy of the nodes' stores.
struct ProtectionDuty {
  NodePlace place;
  std::string job;
  LevelSpec level;  ///< of its kind; keep: so many of the newest sets have redundancy; none: all that are there
  std::function<void(uint64_t step)> note_complete{};  ///< called when all nodes have told that they have a set
};

/// The redundancy of the nodes' stores, as the leader of one node has a part in it. restore() on the program's thread,
/// then protect() and forget() on the checkpoint thread, then end() when that has ended; progress() on any.
///
/// The leaders meet for each set that is to be protected. They need not come with the same one: who is behind learns
/// that others have gone on, and goes on itself; who is ahead waits. So nobody waits for a set that a node failed to
/// save.
class SetProtection {
 public:
  /// `leaders`: of all nodes, for this object alone.
  SetProtection(std::unique_ptr<Communicator> leaders, ProtectionDuty duty, WarningList& warnings)
      : leaders_(std::move(leaders)), duty_(std::move(duty)), warnings_(warnings) {}

  /// Rebuilds what nodes have lost; says so among the warnings. Before the stores are opened. Collective.
  Status restore();
  /// After the set of `step` was saved on this node, or was not. What fails is recorded.
  void protect(uint64_t step, const Status& saved);
  /// Before a set is dropped on this node, or replaced.
  Status forget(uint64_t step);
  /// Whether the set has redundancy on all nodes, as far as is known here.
  bool protects(uint64_t step) const;
  const LevelSpec& level() const { return duty_.level; }
  /// No more sets will come from here; returns when that is so for all. Collective.
  void end();

  LevelProgress progress() const;

 private:
  enum class Meeting : uint8_t {
    all_have_it,
    not_all_have_it,
    others_went_on,
  };
  Result<Meeting> meet(uint64_t step, bool saved);
  Status protect_now(uint64_t step);
  void record(const Status& failure);

  const std::unique_ptr<Communicator> leaders_;
  const ProtectionDuty duty_;
  WarningList& warnings_;
  bool broken_ = false;  ///< the leaders cannot talk any more
  mutable Mutex mutex_;  ///< guards all below
  std::optional<uint64_t> newest_;
  std::set<uint64_t> protected_;  ///< steps
  Status last_error_;
};

}  // namespace varve
