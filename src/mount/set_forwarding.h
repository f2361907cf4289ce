#pragma once

#include <set>
#include <string>

#include "core/sync.h"
#include "level/levels.h"
#include "mount/mount_log.h"

namespace varve {

/// Brings what a mount has sealed to the levels behind the store that is mounted, beside all else: after each set, all
/// that they lack of its job. What fails is told, and is tried again with the next set, or by whoever comes next.
class SetForwarding {
 public:
  /// Both outlive it.
  SetForwarding(Levels& levels, const MountLog& log) : levels_(levels), log_(log) {}
  SetForwarding(const SetForwarding&) = delete;
  SetForwarding& operator=(const SetForwarding&) = delete;
  /// Gives up what is on its way: it is owed all the same.
  ~SetForwarding();

  /// Begins with what was left by others. resource_limit if there can be no thread.
  Status start();
  /// A set of this job was sealed. Thread-safe.
  void note_sealed(const std::string& job);

 private:
  class Progress;
  void run();
  void tell(const Onward& onward);

  Levels& levels_;
  const MountLog& log_;
  Mutex mutex_;  ///< guards all below but the thread
  ConditionVariable changed_;
  std::set<std::string> jobs_;  ///< that have something to bring
  bool ending_ = false;
  Thread thread_;
};

}  // namespace varve
