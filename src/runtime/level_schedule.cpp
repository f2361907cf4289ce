#include "runtime/level_schedule.h"

namespace varve {

LevelSchedule::LevelSchedule(const std::vector<LevelSpec>& levels) {
  for (const LevelSpec& level : levels) {
    if (level.kind == LevelSpec::Kind::redundancy) protect_every_ = level.every;
    if (level.holds_sets()) push_every_.push_back(level.every);
  }
  if (!push_every_.empty()) save_every_ = push_every_.front();
}

LevelDuty LevelSchedule::next(bool must_last, bool everywhere) {
  ++checkpoints_;
  LevelDuty duty;
  duty.save = must_last || everywhere || checkpoints_ % save_every_ == 0;
  if (!duty.save) return duty;
  ++sets_;
  if (everywhere) return all();
  duty.protect = protect_every_ > 0 && sets_ % protect_every_ == 0;
  for (uint32_t store = 1; store < push_every_.size(); ++store) {
    if (sets_ % push_every_[store] == 0) duty.push_to.push_back(store);
  }
  return duty;
}

LevelDuty LevelSchedule::all() const {
  LevelDuty duty;
  duty.protect = protect_every_ > 0;
  for (uint32_t store = 1; store < push_every_.size(); ++store) duty.push_to.push_back(store);
  return duty;
}

}  // namespace varve
