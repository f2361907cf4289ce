#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "core/sync.h"
#include "runtime/relay_message.h"
#include "snapshot/snapshot_view.h"
#include "varve/communicator.h"

namespace varve {

/// The thread of a rank whose checkpoint thread is on another node: it offers the rank's snapshots to its leader, sends
/// what is asked for, and tells the rank what its leader says. Needs a communicator that is concurrent().
class SnapshotRelay {
 public:
  SnapshotRelay(Communicator& ranks, uint32_t leader, std::unique_ptr<SnapshotView> view)
      : ranks_(ranks), leader_(leader), view_(std::move(view)) {}
  SnapshotRelay(const SnapshotRelay&) = delete;
  SnapshotRelay& operator=(const SnapshotRelay&) = delete;
  ~SnapshotRelay() { stop(); }

  /// resource_limit if there can be no thread; the leader knows it then.
  Status start();
  /// Ends when all snapshots are dealt with; the leader must be told to stop, too.
  void stop();

 private:
  void run();
  void tell_end();
  /// What the rank has or lacks next, after the steps that are finished.
  std::optional<RelayMessage> next_offer() const;
  Status serve(const RelayMessage& offer);
  Status answer(const RelayMessage& question);
  Status reply(const Status& outcome, uint64_t bytes = 0);

  Communicator& ranks_;
  const uint32_t leader_;
  const std::unique_ptr<SnapshotView> view_;
  const SnapshotReader* reader_ = nullptr;  ///< of the step that is being drained
  std::optional<uint64_t> finished_;
  std::atomic<bool> stopping_{false};
  Thread thread_;
};

}  // namespace varve
