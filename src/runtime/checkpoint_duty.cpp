#include "runtime/checkpoint_duty.h"

#include <algorithm>

namespace varve {

namespace {
/// Of the time between two checkpoints. At low priority it takes longer, which is what it is for.
constexpr double kLittle = 0.25, kHalf = 0.5, kMost = 0.75;
/// Of what the processors can do meanwhile.
constexpr double kProcessorShare = 0.05;
}  // namespace

bool DrainPace::begin(double begin_seconds) {
  if (last_begin_) {
    const double between = begin_seconds - *last_begin_, taken = last_end_ - *last_begin_;
    has_time_ = taken < (has_time_ ? kHalf : kLittle) * between;
  }
  if (last_begin_) interval_begin_ = *last_begin_;
  last_begin_ = begin_seconds;
  return has_time_;
}

SpareTime DrainPace::spare(bool has_processors, uint32_t processor_count) const {
  const double begin = last_begin_.value_or(interval_begin_), between = begin - interval_begin_;
  if (has_processors) return {.until = begin + kMost * between};
  return {.until = begin + (has_time_ ? kHalf : kLittle) * between,
          .processor_seconds = kProcessorShare * between * std::max(1u, processor_count)};
}

void CheckpointNotes::note_begin(uint64_t step, const Begin& begin) {
  const MutexLock lock(mutex_);
  begun_[step] = begin;
}

std::map<uint64_t, CheckpointNotes::Begin> CheckpointNotes::take_begun(uint64_t step) {
  std::map<uint64_t, Begin> taken;
  const MutexLock lock(mutex_);
  const auto end = begun_.upper_bound(step);
  taken.insert(begun_.begin(), end);
  begun_.erase(begun_.begin(), end);
  return taken;
}

void CheckpointNotes::avoid(std::set<ArenaId> arenas) {
  const MutexLock lock(mutex_);
  avoided_ = std::move(arenas);
}

std::set<ArenaId> CheckpointNotes::avoided() const {
  const MutexLock lock(mutex_);
  return avoided_;
}

void CheckpointNotes::note_set(uint64_t step, SetState state) {
  constexpr size_t kStepsMax = 1000;
  const MutexLock lock(mutex_);
  SetState& known = states_[step];
  if (known != SetState::complete) known = std::max(known, state);
  if (states_.size() > kStepsMax) states_.erase(states_.begin());
  if (state == SetState::all_there || state == SetState::complete) were_all_there_.insert(step);
  if (were_all_there_.size() > kStepsMax) were_all_there_.erase(were_all_there_.begin());
}

bool CheckpointNotes::were_all_there(uint64_t step) const {
  const MutexLock lock(mutex_);
  return were_all_there_.contains(step);
}

SetState CheckpointNotes::state_of(uint64_t step) const {
  const MutexLock lock(mutex_);
  const auto known = states_.find(step);
  return known == states_.end() ? SetState::on_its_way : known->second;
}

void CheckpointNotes::note_parts(uint64_t step, std::vector<ByteVector> parts) {
  constexpr size_t kSetsMax = 4;
  const MutexLock lock(mutex_);
  parts_[step] = std::move(parts);
  if (parts_.size() > kSetsMax) parts_.erase(parts_.begin());
}

std::vector<ByteVector> CheckpointNotes::take_parts(uint64_t step) {
  const MutexLock lock(mutex_);
  auto known = parts_.extract(step);
  return known ? std::move(known.mapped()) : std::vector<ByteVector>();
}

}  // namespace varve
