#include "comm/meeting_point.h"

#include <algorithm>

#include "comm/mailbox.h"

namespace varve {

std::shared_ptr<MeetingPoint::Meeting> MeetingPoint::make_meeting() const {
  auto meeting = std::make_shared<Meeting>();
  meeting->gifts.resize(present_.size());
  return meeting;
}

std::optional<uint32_t> MeetingPoint::missing_rank() const {
  const auto missing = std::find(present_.begin(), present_.end(), false);
  if (missing == present_.end()) return std::nullopt;
  return static_cast<uint32_t>(missing - present_.begin());
}

Result<std::shared_ptr<const MeetingPoint::Gifts>> MeetingPoint::meet(uint32_t rank, std::string_view call,
                                                                      ByteSpan gift) {
  ByteVector mine(gift.begin(), gift.end());
  std::unique_lock lock(mutex_);
  if (auto missing = missing_rank()) return rank_ended(*missing);
  const std::shared_ptr<Meeting> meeting = meeting_;
  if (meeting->came == 0) meeting->call = call;
  if (meeting->call != call) meeting->same_call = false;
  meeting->gifts[rank] = std::move(mine);
  if (++meeting->came == present_.size()) {
    // No rank can come to the next meeting before it has left this one, which is complete now.
    meeting_ = make_meeting();
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&] { return meeting->came == present_.size() || missing_rank(); });
    // Complete counts, even if a rank has ended since: all ranks of one call are to have one outcome.
    if (meeting->came < present_.size()) return rank_ended(*missing_rank());
  }
  if (!meeting->same_call) return Status::invalid_argument("the ranks make different collective calls");
  return std::shared_ptr<const Gifts>(meeting, &meeting->gifts);
}

void MeetingPoint::leave(uint32_t rank) {
  {
    std::lock_guard lock(mutex_);
    present_[rank] = false;
  }
  changed_.notify_all();
}

}  // namespace varve
