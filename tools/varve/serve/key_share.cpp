#include "serve/key_share.h"

#include <algorithm>
#include <utility>

namespace varve {

size_t share_of_key(size_t all, size_t keys) {
  const size_t left = std::max<size_t>(all / 4, 1);
  return std::max<size_t>((all - std::min(all, left)) / std::max<size_t>(keys - 1, 1), 1);
}

bool KeyShare::Turn::take() {
  const MutexLock lock(share_.mutex_);
  if (state_ == State::none) {
    const bool free = share_.turns_ < share_.turns_max_;
    if (free) {
      ++share_.turns_;
    } else {
      place_ = share_.waiting_.insert(share_.waiting_.end(), this);
    }
    state_ = free ? State::has : State::waits;
  }
  return state_ == State::has;
}

void KeyShare::Turn::give_back() {
  const MutexLock lock(share_.mutex_);
  const State had = std::exchange(state_, State::none);
  if (had == State::waits) share_.waiting_.erase(place_);
  if (had != State::has) return;
  if (share_.waiting_.empty()) {
    --share_.turns_;
    return;
  }
  Turn& next = *share_.waiting_.front();
  share_.waiting_.pop_front();
  next.state_ = State::has;
  next.news_();  // with the lock: it is there as long as it has not been given back
}

KeyShare::FilePlace KeyShare::take_file() {
  if (files_++ < files_max_) return FilePlace(this);
  --files_;
  return nullptr;
}

}  // namespace varve
