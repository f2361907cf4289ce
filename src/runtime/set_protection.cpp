#include "runtime/set_protection.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"

namespace varve {

namespace {
/// The step of a leader that will come with no more sets.
constexpr uint64_t kEnded = UINT64_MAX;

struct Arrival {
  uint64_t step = 0;
  bool saved = false;
};

Result<Arrival> decode_arrival(ByteSpan bytes) {
  ByteReader in(bytes);
  Arrival arrival;
  VARVE_ASSIGN(arrival.step, in.le64());
  VARVE_ASSIGN(const uint8_t saved, in.u8());
  arrival.saved = saved == 1;
  return arrival;
}
}  // namespace

Status SetProtection::restore() {
  RestoreLostOptions options;
  options.job = duty_.job;
  VARVE_ASSIGN(const std::vector<RestoredSet> sets, restore_lost(*leaders_, duty_.place, options));
  for (const RestoredSet& set : sets) {
    for (const std::string& line : set.rebuilt) warnings_.add(Status::corrupt(line, set.set.to_string()));
    if (set.status.ok()) {
      std::lock_guard lock(mutex_);
      protected_.insert(set.set.step);
    } else {
      warnings_.add(set.status.with_context(fmt::format("{} cannot be rebuilt from other nodes", set.set.to_string())));
    }
  }
  return {};
}

void SetProtection::protect(uint64_t step, const Status& saved) {
  const Result<Meeting> met = meet(step, saved.ok());
  if (!met.ok()) return record(met.status());
  switch (*met) {
    case Meeting::all_have_it: {
      if (duty_.note_complete) duty_.note_complete(step);
      const Status outcome = protect_now(step);
      if (!outcome.ok()) record(outcome.with_context(SetName{duty_.job, step}.to_string()));
      return;
    }
    case Meeting::not_all_have_it:
    case Meeting::others_went_on:
      record(Status::io_error("not all nodes have the set", SetName{duty_.job, step}.to_string()));
      return;
  }
}

Result<SetProtection::Meeting> SetProtection::meet(uint64_t step, bool saved) {
  ByteVector mine;
  ByteWriter out(mine);
  out.le64(step);
  out.u8(saved ? 1 : 0);
  for (;;) {
    if (broken_) return Status::io_error("the nodes cannot be reached");
    const Result<std::vector<ByteVector>> gathered = leaders_->all_gather(mine);
    broken_ = !gathered.ok();
    VARVE_TRY(gathered.status());
    bool together = true, all_saved = true;
    uint64_t farthest = step;
    for (const ByteVector& bytes : *gathered) {
      VARVE_ASSIGN(const Arrival arrival, decode_arrival(bytes));
      together = together && arrival.step == step;
      all_saved = all_saved && arrival.saved;
      farthest = std::max(farthest, arrival.step);
    }
    if (together) return all_saved ? Meeting::all_have_it : Meeting::not_all_have_it;
    if (farthest > step) return Meeting::others_went_on;
  }
}

Status SetProtection::protect_now(uint64_t step) {
  VARVE_TRY(protect_set(*leaders_, duty_.place, {duty_.job, step}, duty_.level.redundancy).status());
  {
    std::lock_guard lock(mutex_);
    newest_ = step;
    protected_.insert(step);
  }
  if (!duty_.level.keep) return {};
  VARVE_ASSIGN(const std::vector<SetName> given_up,
               retain_redundancy(*leaders_, duty_.place, duty_.job, *duty_.level.keep));
  std::lock_guard lock(mutex_);
  for (const SetName& set : given_up) protected_.erase(set.step);
  return {};
}

Status SetProtection::forget(uint64_t step) {
  {
    std::lock_guard lock(mutex_);
    protected_.erase(step);
  }
  return drop_redundancy(duty_.place, {duty_.job, step});
}

bool SetProtection::protects(uint64_t step) const {
  std::lock_guard lock(mutex_);
  return protected_.contains(step);
}

void SetProtection::end() {
  if (const Status met = meet(kEnded, false).status(); !met.ok()) record(met);
}

LevelProgress SetProtection::progress() const {
  std::lock_guard lock(mutex_);
  LevelProgress progress;
  progress.level = duty_.level.redundancy.text();
  progress.newest = newest_;
  progress.last_error = last_error_;
  return progress;
}

void SetProtection::record(const Status& failure) {
  const Status what = failure.with_context(duty_.level.redundancy.text());
  warnings_.add(what);
  std::lock_guard lock(mutex_);
  last_error_ = what;
}

}  // namespace varve
