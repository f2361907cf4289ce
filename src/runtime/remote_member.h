#pragma once

#include <memory>

#include "runtime/group_member.h"
#include "runtime/relay_message.h"
#include "varve/communicator.h"

namespace varve {

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

}  // namespace varve
