#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/clock.h"
#include "core/sync.h"

namespace varve {

/// Why a program waits inside its session.
enum class BlockedCause : uint8_t {
  open,     ///< for the session to open: options, levels, memory
  restart,  ///< for what there is to be found, and to be read into its variables
  ranks,    ///< for the other ranks, with which it agrees on what to do
  room,     ///< for a snapshot's place in memory
  copy,     ///< while the snapshot is made: what is protected is copied
  store,    ///< for a set to be complete in the nearest store
  levels,   ///< at the end, for the last set to come to all levels
  end,      ///< at the end, for the rest
  other,    ///< for nothing of these: what the session looks at and notes down in a checkpoint's call
};
inline constexpr size_t kBlockedCauses = 9;
/// "open", "restart", ...
std::string_view blocked_cause_name(BlockedCause cause);

/// Seconds, by BlockedCause.
struct BlockedParts {
  std::array<double, kBlockedCauses> seconds{};

  double& of(BlockedCause cause) { return seconds[static_cast<size_t>(cause)]; }
  double of(BlockedCause cause) const { return seconds[static_cast<size_t>(cause)]; }
  double total() const;
  BlockedParts operator-(const BlockedParts& earlier) const;
};

/// How long a program has waited inside its session, and why: each moment of a call counts for one cause, so that the
/// parts are all of it. The program's thread waits; so_far() is for any thread.
class BlockedTime {
 public:
  explicit BlockedTime(Clock& clock) : clock_(clock) {}
  BlockedTime(const BlockedTime&) = delete;
  BlockedTime& operator=(const BlockedTime&) = delete;

  /// While it exists, the program waits for this; outside all of them, it does not wait. One inside another one has its
  /// cause as long as it exists.
  class Part {
   public:
    Part(BlockedTime& time, BlockedCause cause) : time_(time), outer_(time.enter(cause)) {}
    ~Part() { time_.leave(outer_); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    BlockedTime& time_;
    const int outer_;
  };

  /// With what is going on.
  BlockedParts so_far() const;

 private:
  static constexpr int kNone = -1;

  int enter(BlockedCause cause);
  void leave(int outer);
  int change(int to);
  void add(BlockedParts& parts, double now) const VARVE_REQUIRES(mutex_);

  Clock& clock_;
  mutable Mutex mutex_;
  BlockedParts parts_ VARVE_GUARDED_BY(mutex_);
  int current_ VARVE_GUARDED_BY(mutex_) = kNone;
  double since_ VARVE_GUARDED_BY(mutex_) = 0;
};

}  // namespace varve
