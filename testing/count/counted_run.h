#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "count/counting_communicator.h"
#include "count/counting_file_system.h"

namespace varve::count {

/// A run of so many ranks, each a group and a node of its own, all in this process, with sessions as programs have them
/// and a store in memory: opens, makes some checkpoints, ends, is started again, goes on from the last one, and ends.
/// Then half as many ranks, and twice as many, go on from the same checkpoint, each with its cells of the whole.
struct RunToCount {
  uint32_t ranks = 16;
  uint32_t ranks_of_node = 1;
  uint32_t checkpoints = 3;
  uint64_t steps_between = 10;  ///< due() is asked in each
  /// Of a rank's part of an array of doubles, a tenth of which changes between two checkpoints. Even.
  uint64_t cells = 512;
  bool with_other_ranks = true;  ///< half as many, and twice as many, go on, too
};

/// What all ranks together did in one phase of it.
struct CountedPhase {
  /// "open", "checkpoint 1", ..., "finish", "open again", "restart", "finish again"; "open by half as many", "restart
  /// by half as many", ...; the same of "twice as many".
  std::string name;
  uint32_t ranks = 0;
  OperationCounts operations{};
  OperationCounts most{};  ///< of the rank that had the most to do with names
  MessageCounts messages{};
  MessageCounts most_messages{};  ///< of the rank that sent the most
  /// That the ranks' threads held at most beside what they had before, all ranks together.
  uint64_t heap_bytes = 0;
  double seconds = 0;
};

struct CountedRun {
  RunToCount run{};
  std::vector<CountedPhase> phases{};
  uint64_t heap_bytes = 0;  ///< that the sessions of all ranks held after they were opened

  /// Of the phases of this name, numbers behind it aside.
  CountedPhase sum_of(std::string_view name) const;
};

/// Plays it. Each checkpoint is waited for. Shared memory is in `memory_folder`.
Result<CountedRun> count_run(const RunToCount& run, const std::string& memory_folder);

/// A table of it: a row for each phase and place, for people.
std::string to_text(const CountedRun& counted);

}  // namespace varve::count
