#pragma once

#include <cstdint>
#include <span>

#include "runtime/cadence.h"
#include "runtime/stop_requests.h"
#include "varve/communicator.h"

namespace varve {

/// What all ranks do at a step.
struct Due {
  bool checkpoint = false;  ///< make one now
  bool stop = false;        ///< and end after it: some rank was asked to stop; `checkpoint` is true as well
  bool talked = false;      ///< the ranks have talked to each other, and `along` is the largest of each
};

/// The same answer on all ranks: with one all_max(), or none if every rank knows the answer by itself (steps alone
/// count, and nobody can ask for a stop; or there is one rank). The rules of `cadence` and `stop`, and the size of
/// `along`, which travels with them, are the same on all ranks. Collective.
Result<Due> agree_on_due(Communicator& ranks, const Cadence& cadence, StopRequests& stop, uint64_t step,
                         std::span<uint64_t> along = {});

}  // namespace varve
