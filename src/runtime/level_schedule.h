#pragma once

#include <cstdint>
#include <vector>

#include "level/level_spec.h"

namespace varve {

/// Where a checkpoint goes beyond the memory.
struct LevelDuty {
  bool save = true;                 ///< to the nearest store
  bool protect = false;             ///< then to its redundancy
  std::vector<uint32_t> push_to{};  ///< and to these stores, by their ordinals among the stores
};

/// Decides for each checkpoint which levels it goes to. Counts what all ranks do alike, so that all decide alike.
class LevelSchedule {
 public:
  explicit LevelSchedule(const std::vector<LevelSpec>& levels);
  /// For the next checkpoint. `must_last`: it goes to the nearest store, whatever its turn is; `everywhere`: to all
  /// levels.
  LevelDuty next(bool must_last, bool everywhere);
  /// Of stores and redundancy; what the last set of a run owes to the levels behind the nearest store.
  LevelDuty all() const;

 private:
  uint64_t save_every_ = 1;
  uint64_t protect_every_ = 0;        ///< 0: there is no redundancy
  std::vector<uint64_t> push_every_;  ///< of each store; the first is not pushed to
  uint64_t checkpoints_ = 0;
  uint64_t sets_ = 0;
};

}  // namespace varve
