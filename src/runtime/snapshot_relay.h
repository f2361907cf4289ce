#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "core/bytes.h"
#include "core/sync.h"
#include "runtime/group_member.h"
#include "snapshot/snapshot_view.h"
#include "varve/communicator.h"

namespace varve {

/// What a checkpoint thread and a member on another node tell each other, over Communicator::send() and receive().
///
/// The member begins: `full`, `lacks` or `ending`. After `full` the leader may ask (`begin`, then any `read` and
/// `check`, each of which gets a `reply`, and a `read` that is well also the bytes), and it ends the step with
/// `drained` and `finished`; after `lacks` with `finished` alone; after `ending` nothing more is said.
struct RelayMessage {
  enum class Kind : uint32_t { full = 1, lacks, ending, begin, read, check, drained, finished, reply };
  Kind kind = Kind::ending;
  uint64_t step = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;          ///< to read; in a reply to `begin`, of the image
  uint64_t payload_bytes = 0;  ///< of a second message that follows: a status, or news

  static constexpr uint32_t kTagToLeader = 1, kTagToMember = 2;
};

/// Sends a message and its payload.
Status send_relay(Communicator& ranks, uint32_t to, uint32_t tag, RelayMessage message, ByteSpan payload = {});
/// Waits for a message and its payload. corrupt: it makes no sense.
Result<RelayMessage> receive_relay(Communicator& ranks, uint32_t from, uint32_t tag, ByteVector& payload);

/// A member on another node, which sends its snapshot piece by piece as it is asked to (SnapshotRelay). Needs a
/// communicator that is concurrent().
class RemoteMember final : public GroupMember {
 public:
  RemoteMember(Communicator& ranks, uint32_t rank) : ranks_(ranks), rank_(rank), image_(*this) {}

  uint32_t rank() const override { return rank_; }
  bool remote() const override { return true; }
  /// Waits until the member has made up its mind about its next step; none: it has ended, or cannot be reached.
  Result<std::optional<uint64_t>> next_step() override;
  bool will_lack(uint64_t step) override;
  Result<DrainedImage*> begin_drain(uint64_t step) override;
  Status end_drain(uint64_t step, const Status& outcome) override;
  /// Only what ends a step is sent.
  void post(const GroupNews& news) override;

 private:
  class Image final : public DrainedImage {
   public:
    explicit Image(RemoteMember& member) : member_(member) {}
    const ImageTable& image() const override { return table; }
    Status read(uint64_t offset, MutableByteSpan into) override;
    Status check_unchanged() override;
    ImageTable table;

   private:
    RemoteMember& member_;
  };

  Status ask(const RelayMessage& message, RelayMessage& reply);

  Communicator& ranks_;
  const uint32_t rank_;
  Image image_;
  std::optional<uint64_t> step_;  ///< that it spoke of, and that is not finished
  bool full_ = false;             ///< it has a snapshot of it
  bool ended_ = false;
};

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
