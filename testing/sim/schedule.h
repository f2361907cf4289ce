#pragma once

#include <cstdint>
#include <string>

namespace varve::sim {

/// Which actors and faults a schedule may have; what of it a seed takes is its own choice.
enum class Theme : uint8_t {
  runs,      ///< a job that checkpoints to levels, is hit by faults, and restarts
  savers,    ///< sets that are saved to several levels, which may be away
  stores,    ///< one store: saves, drops, prunes, rebalances, pushes and repairs at once
  watchers,  ///< a watcher that removes originals, beside programs that write them
  buckets,   ///< as stores, but the store is in a bucket of an S3 service; in a build without S3: stores
};

struct ScheduleOptions {
  uint64_t seed = 0;
  Theme theme = Theme::runs;
  bool story = false;   ///< tell it as it happens
  std::string scratch;  ///< a folder of a memory file system
};

/// Plays one schedule. Returns when it held; else fail() ends the process.
void play(const ScheduleOptions& options);

}  // namespace varve::sim
