#include "runtime/blocked_time.h"

#include <numeric>
#include <utility>

namespace varve {

std::string_view blocked_cause_name(BlockedCause cause) {
  switch (cause) {
    case BlockedCause::open: return "open";
    case BlockedCause::restart: return "restart";
    case BlockedCause::ranks: return "ranks";
    case BlockedCause::room: return "room";
    case BlockedCause::copy: return "copy";
    case BlockedCause::store: return "store";
    case BlockedCause::levels: return "levels";
    case BlockedCause::end: return "end";
    case BlockedCause::other: return "other";
  }
  return "other";
}

double BlockedParts::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

BlockedParts BlockedParts::operator-(const BlockedParts& earlier) const {
  BlockedParts difference;
  for (size_t i = 0; i < kBlockedCauses; ++i) difference.seconds[i] = seconds[i] - earlier.seconds[i];
  return difference;
}

int BlockedTime::enter(BlockedCause cause) { return change(static_cast<int>(cause)); }
void BlockedTime::leave(int outer) { change(outer); }

int BlockedTime::change(int to) {
  const MutexLock lock(mutex_);
  const double now = clock_.seconds();
  add(parts_, now);
  since_ = now;
  return std::exchange(current_, to);
}

void BlockedTime::add(BlockedParts& parts, double now) const {
  if (current_ != kNone) parts.seconds[static_cast<size_t>(current_)] += now - since_;
}

BlockedParts BlockedTime::so_far() const {
  const MutexLock lock(mutex_);
  BlockedParts parts = parts_;
  add(parts, clock_.seconds());
  return parts;
}

}  // namespace varve
