#include "runtime/sets_under_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "level/restart_candidates.h"

namespace varve {

namespace {
using std::chrono::nanoseconds;

/// How long a change that nobody rings for (a process that died) may stay unseen.
constexpr nanoseconds kUnseenMax = std::chrono::milliseconds(200);
/// Before what is told of sets: whether a level is still to be asked for its numbers, and the next by what was asked.
constexpr size_t kNumberWords = 2;
}  // namespace

// What the ranks tell each other

void SetsUnderWay::await_numbers() {
  for (const StoreLevel* const level : levels_.stores()) awaits_numbers_ = awaits_numbers_ || level->is_unasked();
}

std::vector<uint64_t> SetsUnderWay::tell() const {
  if (!has_to_talk()) return {};
  std::vector<uint64_t> told(kNumberWords);
  for (const StoreLevel* const level : levels_.stores()) {
    if (level->is_unasked()) told[0] = 1;
    told[1] = std::max(told[1], level->next_number());
  }
  if (!must_tell()) return told;
  const std::vector<uint64_t> of_sets = world_.sets.tell(stage_two_.leads_group());
  told.insert(told.end(), of_sets.begin(), of_sets.end());
  return told;
}

Status SetsUnderWay::learn(std::span<const uint64_t> told) {
  were_told_ = true;
  if (told.empty()) return {};  // each sees all by itself
  awaits_numbers_ = told[0] != 0;
  schedule_.go_on_behind(told[1]);
  const JobSets::News news = world_.sets.learn(told.subspan(kNumberWords));
  Status parts_told;
  for (const uint64_t step : news.all_there) {
    if (parts_told.ok()) parts_told = tell_part(step);
  }
  for (const uint64_t step : news.all_there) stage_two_.note_set(step, SetState::all_there);
  for (const uint64_t step : news.complete) stage_two_.note_set(step, SetState::complete);
  if (news.any_saved) has_saved_ = true;
  for (const uint64_t step : news.failed) {
    stage_two_.note_set(step, SetState::given_up);
    levels_.forget(step);
  }
  return parts_told;
}

void SetsUnderWay::note_published(uint64_t step, ByteVector part) {
  {
    const MutexLock lock(published_mutex_);
    published_[step] = std::move(part);
    if (published_.size() > JobSets::kTold) published_.erase(published_.begin());
  }
  world_.sets.note_published(step, stage_two_.makes_sets());
}

/// What is told of sets is the same on all ranks, and so all come here for the same steps, in the same order.
Status SetsUnderWay::tell_part(uint64_t step) {
  if (!parts_told_.insert(step).second) return {};
  if (parts_told_.size() > 2 * JobSets::kTold) parts_told_.erase(parts_told_.begin());
  if (!sends_) {
    std::array<uint64_t, 1> sends = {world_.ranks.concurrent() ? uint64_t{1} : uint64_t{0}};
    VARVE_TRY(world_.ranks.all_min(sends));
    sends_ = sends[0] == 1;
  }
  const std::vector<uint32_t> leaders = stage_two_.leaders_there();
  if (!*sends_ || !stage_two_.leads_group() || leaders.size() < 2) return {};
  ByteVector mine;
  {
    const MutexLock lock(published_mutex_);
    if (auto part = published_.extract(step)) mine = std::move(part.mapped());
  }
  VARVE_ASSIGN(std::vector<ByteVector> parts, gather_to_first(world_.ranks, leaders, stage_two_.own_ordinal(), mine));
  if (stage_two_.makes_sets()) stage_two_.note_parts(step, std::move(parts));
  return {};
}

Status SetsUnderWay::talk() {
  if (!has_to_talk()) return {};
  std::vector<uint64_t> told = tell();
  VARVE_TRY(world_.ranks.all_max(told));
  return learn(told);
}

Status SetsUnderWay::exchange() {
  // Where all share a store, nobody has to wait for the others before the next checkpoint, but to number it alike.
  if (awaits_numbers_ || (!were_told_ && !sees_all())) VARVE_TRY(talk());
  were_told_ = false;
  return {};
}

Status SetsUnderWay::note_dropped(uint64_t step) {
  world_.sets.note_dropped(step);
  VARVE_TRY(learn_complete_sets(levels_));
  dropped_.insert(step);
  const std::optional<NewSet> newest = newest_set(levels_);
  if (last_ && last_->step == step) last_ = newest;
  if (copied_ == step) copied_.reset();
  restarted_ = newest ? std::optional(newest->step) : std::nullopt;
  return {};
}

void SetsUnderWay::turn_back() {
  were_told_ = false;
  told_failure_.reset();
  last_.reset();
  copied_.reset();
  has_saved_ = false;
  world_.sets.forget_told();
  parts_told_.clear();
  const MutexLock lock(published_mutex_);
  published_.clear();
}

// One checkpoint

LevelDuty SetsUnderWay::begin(uint64_t step, bool must_last, bool everywhere) {
  const LevelDuty duty = schedule_.next(must_last, everywhere);
  if (duty.save) world_.sets.note_begin(step);
  dropped_.erase(step);
  return duty;
}

void SetsUnderWay::note_copied(uint64_t step, const LevelDuty& duty) {
  if (!duty.save) return;
  last_ = NewSet{.step = step, .number = duty.number};
  copied_ = step;
}

void SetsUnderWay::note_not_copied(uint64_t step) { world_.sets.note_own(step, false); }

/// The failure of a step before `step` that nobody was told of. That of `step` itself, which another rank may have
/// given up before this one began it, is for the next call: so a call tells the same on each rank.
Status SetsUnderWay::take_failure(uint64_t step) {
  const std::optional<GroupNews> news = stage_one_.memory().group().news();
  if (!news || !news->failed_step || told_failure_ >= news->failed_step || *news->failed_step >= step) return {};
  told_failure_ = news->failed_step;
  return news->last_error.with_context(fmt::format("the checkpoint of step {} failed", *news->failed_step));
}

/// A failure that all ranks have just been told of is not told again when this group's thread comes to know it.
void SetsUnderWay::note_told(const Status& outcome, uint64_t step) {
  if (outcome.ok()) return;
  take_failure(step).ignore("it is told now");
  // What is only late may fail later, and nobody has been told that.
  if (outcome.code() != StatusCode::busy) told_failure_ = std::max(told_failure_, std::optional(step));
}

void SetsUnderWay::note_told(const Status& outcome) {
  if (last_) note_told(outcome, last_->step);
}

void SetsUnderWay::note_drained(uint64_t step, bool saved) {
  world_.sets.note_own(step, saved);
  if (!saved || !sees_all()) return;
  world_.sets.note_complete(step);
  has_saved_ = true;
}

// Waiting for stage 2

Status SetsUnderWay::outcome_of(uint64_t step) const {
  const std::optional<GroupNews> news = stage_one_.memory().group().news();
  if (!news) return Status::io_error("the checkpoint thread died while it told how far it is");
  if (news->newest_persistent && *news->newest_persistent >= step) return {};
  if (!news->last_error.ok()) return news->last_error;
  return Status::io_error(fmt::format("the checkpoint of step {} is not in the store", step));
}

std::optional<Status> SetsUnderWay::part_outcome(uint64_t step) const {
  SnapshotMemory& memory = stage_one_.memory();
  const std::optional<GroupNews> news = memory.group().news();
  if (news && news->finished_step && *news->finished_step >= step) return outcome_of(step);
  for (uint32_t i = 0; i < memory.slot_count(); ++i) {
    const SlotNews slot = memory.slot(i);
    if (slot.step != step || slot.state == SlotState::empty) continue;
    if (memory.group().own().checkpoint(i).run != world_.run) continue;  // what this run went on from may be there, too
    return slot.state == SlotState::drained ? std::optional(slot.outcome) : std::nullopt;
  }
  // Only a slot that the thread has given back is taken for a later snapshot. The set may wait for other nodes' parts,
  // which the ranks tell each other of once all have come here.
  return news && news->failed_step && *news->failed_step >= step ? news->last_error : Status();
}

Status SetsUnderWay::await_part(uint64_t step, nanoseconds limit) const {
  const auto begin = MonotonicClock::now();
  Bell& bell = stage_one_.memory().group().bell();
  for (;;) {
    const uint32_t seen = bell.count();
    if (const std::optional<Status> outcome = part_outcome(step)) return *outcome;
    if (!stage_one_.memory().group().leader_alive()) {
      return Status::io_error("the process that writes this group's checkpoints died");
    }
    const nanoseconds waited = MonotonicClock::now() - begin;
    if (waited >= limit) {
      const GroupPlan& plan = stage_one_.plan();
      return Status::busy(
          fmt::format("{} has not written step {} in the time that was given", plan.group_name(plan.own), step));
    }
    bell.wait(seen, std::min(limit - waited, kUnseenMax));
  }
}

Status SetsUnderWay::settle(nanoseconds limit) {
  const auto begin = MonotonicClock::now();
  const Status part = agree(world_.ranks, last_ ? await_part(last_->step, limit) : Status());
  if (!part.ok()) {
    // Of those before it all parts may be there.
    const Status told = talk();
    // The set will never be complete, and the groups that have written their parts need not wait for it. If the ranks
    // cannot talk, that is not known: some may have heard, before the others could not, that all parts are there.
    const SetState state = told.ok() ? SetState::given_up : SetState::cut_off;
    if (last_ && part.code() != StatusCode::busy) stage_two_.note_set(last_->step, state);
    return part;
  }
  // All ranks have come to know that all parts are there, and the makers of sets what they say.
  VARVE_TRY(talk());
  Status whole;
  if (last_ && stage_two_.makes_sets()) {
    const nanoseconds waited = MonotonicClock::now() - begin;
    whole = stage_one_.memory().group().wait_for_step(last_->step, std::max(limit - waited, nanoseconds(0)));
    if (whole.ok()) whole = outcome_of(last_->step);
  }
  // A rank that has no snapshot of it waits for the one before; and a node's own set may be there all the same.
  if (whole.ok() && last_ && world_.sets.is_never_complete(last_->step))
    whole = Status::io_error(fmt::format("not all ranks have saved step {}", last_->step));
  whole = agree(world_.ranks, whole);
  if (last_ && whole.ok()) {
    world_.sets.note_complete(last_->step);
    if (last_->step == copied_) has_saved_ = true;
    stage_two_.note_set(last_->step, SetState::complete);
  } else if (last_ && whole.code() != StatusCode::busy) {
    stage_two_.note_set(last_->step, SetState::given_up);
  }
  // Of those before it, too.
  const Status told = talk();
  return whole.ok() ? told : whole;
}

void SetsUnderWay::add_progress(SessionProgress& progress) const {
  const std::optional<GroupNews> told = stage_one_.memory().group().news();
  GroupNews news = told.value_or(GroupNews());
  if (news.newest_persistent && dropped_.contains(*news.newest_persistent)) news.newest_persistent.reset();
  std::optional<uint64_t> newest = must_tell() ? world_.sets.newest_complete() : news.newest_persistent;
  if (sees_all()) newest = std::max(newest, news.newest_persistent);
  progress.newest_persistent = newest ? newest : restarted_;
  if (told) {
    progress.bytes_to_write = news.bytes_to_write;
    progress.bytes_written = news.bytes_written;
    if (!news.last_error.ok()) progress.last_error = news.last_error;
  }
  RunNews run{.newest_snapshot = progress.newest_snapshot, .last_error = news.last_error};
  if (progress.newest_persistent != restarted_) run.newest_saved = progress.newest_persistent;
  run.saving = last_ && news.finished_step.value_or(0) < last_->step ? 1 : 0;
  progress.levels = levels_.progress(run);
}

}  // namespace varve
