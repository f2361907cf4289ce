#pragma once

#include <cstdint>

#include "core/unique_id.h"

namespace varve {

/// A process, so that another that has got its number later is not taken for it.
struct ProcessIdentity {
  UniqueId boot;               ///< of this start of the machine
  uint64_t pid_namespace = 0;  ///< in which the number counts (a container's, say)
  uint64_t start_ticks = 0;    ///< of the process, since the machine's start
  uint32_t pid = 0;
  bool operator==(const ProcessIdentity&) const = default;

  /// The calling process. io_error: /proc is not there.
  static Result<ProcessIdentity> own();
};

enum class Liveness {
  alive,
  dead,
  unknown,  ///< it ran in another PID namespace, whose numbers mean nothing here
};

/// A zombie is dead.
Liveness liveness(const ProcessIdentity& process);

}  // namespace varve
