#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "count/counting_communicator.h"
#include "count/counting_file_system.h"

namespace varve::count {

/// A run of so many ranks, each a group and a node of its own, all in this process, with sessions as programs have them
/// and a store in memory: opens, makes some checkpoints, ends, is started again, goes on from the last one, and ends.
struct RunToCount {
  uint32_t ranks = 16;
  uint32_t ranks_of_node = 1;
  uint32_t checkpoints = 3;
  uint64_t steps_between = 10;  ///< due() is asked in each
  uint64_t cells = 512;         ///< of a rank's array of doubles, a tenth of which changes between two checkpoints
};

/// What all ranks together did in one phase of it.
struct CountedPhase {
  std::string name;  ///< "open", "checkpoint 1", ..., "finish", "open again", "restart", "finish again"
  OperationCounts operations{};
  OperationCounts most{};  ///< of the rank that had the most to do with names
  MessageCounts messages{};
  MessageCounts most_messages{};  ///< of the rank that sent the most
  double seconds = 0;
};

struct CountedRun {
  RunToCount run{};
  std::vector<CountedPhase> phases{};
  uint64_t heap_bytes = 0;  ///< that the sessions of all ranks held after they were opened

  /// Of the phases whose names begin so.
  CountedPhase sum_of(std::string_view name) const;
};

/// Plays it. Each checkpoint is waited for. Shared memory is in `memory_folder`.
Result<CountedRun> count_run(const RunToCount& run, const std::string& memory_folder);

/// A table of it: a row for each phase and place, for people.
std::string to_text(const CountedRun& counted);

}  // namespace varve::count
