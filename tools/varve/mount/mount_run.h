#pragma once

#include <functional>
#include <string>

#include "engine/save.h"
#include "service/location.h"
#include "varve/status.h"

namespace varve {

/// Takes one line of what a mount has to tell: damage, sets that were sealed or could not be. Called from several
/// threads at once.
using MountLog = std::function<void(const std::string& line)>;

struct MountOptions {
  std::string store;   ///< as service/location.h has it
  std::string levels;  ///< in place of it: the nearest is mounted, and sets go on to the others
  ReachOptions reach;  ///< of servers and buckets
  std::string folder;  ///< where
  std::string spool;   ///< empty: a folder of the user, by the store's id
  bool read_only = false;
  bool no_delete = false;
  bool allow_other = false;
  double seal_seconds = 30;
  uint64_t memory_bytes = 256_MiB;  ///< of what is read
  SaveOptions save;                 ///< how sets are sealed
};

/// Mounts a store, calls `ready` once programs can use it, and serves until somebody unmounts it or a signal ends it.
/// Forks, and starts threads: the process must have none. A failure of `ready` ends it.
Status run_mount(const MountOptions& options, const MountLog& log, const std::function<Status()>& ready);

}  // namespace varve
