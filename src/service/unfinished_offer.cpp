#include "service/unfinished_offer.h"

#include <utility>

namespace varve {

uint64_t UnfinishedOffer::size() const {
  const std::lock_guard lock(mutex_);
  return raw_.size();
}

Status UnfinishedOffer::append(ByteSpan piece) {
  const std::lock_guard lock(mutex_);
  if (given_up_) return too_late();
  raw_.insert(raw_.end(), piece.begin(), piece.end());
  return {};
}

UnfinishedOffer::Whole UnfinishedOffer::take() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  return {std::exchange(raw_, {}), std::move(room_)};
}

bool UnfinishedOffer::given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

Status UnfinishedOffer::too_late() {
  return Status::busy("the offer took too long to come, and others needed its room");
}

void UnfinishedOffer::give_up_if_late(double now) {
  const std::lock_guard lock(mutex_);
  if (given_up_ || now < give_up_at_) return;
  given_up_ = true;
  ByteVector().swap(raw_);
  room_.give_back();
}

}  // namespace varve
