#include "level/level_schedule.h"

#include <algorithm>

namespace varve {

LevelSchedule::LevelSchedule(const std::vector<LevelSpec>& levels) {
  const auto nearest =
      std::find_if(levels.begin(), levels.end(), [](const LevelSpec& level) { return level.holds_sets(); });
  if (nearest != levels.end()) save_every_ = nearest->every;
}

LevelDuty LevelSchedule::next(bool must_last, bool everywhere) {
  ++checkpoints_;
  LevelDuty duty;
  duty.save = must_last || everywhere || checkpoints_ % save_every_ == 0;
  duty.everywhere = everywhere;
  if (duty.save) duty.number = next_number_++;
  return duty;
}

}  // namespace varve
