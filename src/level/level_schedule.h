#pragma once

#include <cstdint>
#include <vector>

#include "level/level_spec.h"

namespace varve {

/// Where a checkpoint goes beyond the memory.
struct LevelDuty {
  bool save = true;         ///< to the nearest store
  uint64_t number = 0;      ///< SetRecord::number, if it is saved: which levels behind that it is due to (is_due())
  bool everywhere = false;  ///< to all of them, whatever their turn is
};

/// Decides for each checkpoint whether it becomes a set, and of which number. Counts what all ranks do alike, so that
/// all decide alike.
class LevelSchedule {
 public:
  explicit LevelSchedule(const std::vector<LevelSpec>& levels);
  /// The number of the next set; the same on all ranks.
  void go_on_from(uint64_t number) { next_number_ = number; }
  /// For the next checkpoint. `must_last`: it goes to the nearest store, whatever its turn is; `everywhere`: to all
  /// levels.
  LevelDuty next(bool must_last, bool everywhere);

 private:
  uint64_t save_every_ = 1;
  uint64_t checkpoints_ = 0;
  uint64_t next_number_ = 1;
};

}  // namespace varve
