#include "runtime/group_member.h"

#include <algorithm>

namespace varve {

Result<std::unique_ptr<LocalMember>> LocalMember::open(const SegmentOwner& owner) {
  VARVE_ASSIGN(std::unique_ptr<SnapshotView> view, SnapshotView::open(owner));
  return std::unique_ptr<LocalMember>(new LocalMember(owner, std::move(view)));
}

Result<std::optional<uint64_t>> LocalMember::next_step() {
  const std::vector<uint64_t> steps = view_->full_steps();
  return steps.empty() ? std::nullopt : std::optional(steps.front());
}

bool LocalMember::will_lack(uint64_t step) {
  // In this order: a snapshot that becomes full in between is seen by the last look.
  const std::optional<uint64_t> given_up = view_->given_up();
  const bool over = !view_->member_alive() || (given_up && *given_up >= step);
  const std::vector<uint64_t> steps = view_->full_steps();
  if (std::find(steps.begin(), steps.end(), step) != steps.end()) return false;
  return over || (!steps.empty() && steps.back() > step);
}

Result<DrainedImage*> LocalMember::begin_drain(uint64_t step) {
  VARVE_ASSIGN(image_.reader, view_->begin_drain(step));
  draining_ = step;
  return &image_;
}

Status LocalMember::end_drain(uint64_t step, const Status& outcome) {
  if (draining_ != step) {
    // It was full and nobody wants it: taken and given back at once.
    const std::vector<uint64_t> steps = view_->full_steps();
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) return {};
    const Status taken = view_->begin_drain(step).status();
    if (!taken.ok()) return taken;
  }
  draining_.reset();
  view_->end_drain(outcome);
  return {};
}

Status LocalMember::Image::check_unchanged() {
  // What was copied is nobody's but ours. A lent grid is the program's to read, and its sums tell if it did more.
  if (!reader->has_lent_grids()) return {};
  return reader->verify().with_context("a lent grid was written to while it was being saved");
}

}  // namespace varve
