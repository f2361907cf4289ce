#include "snapshot/snapshot_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace varve {

Result<std::unique_ptr<SnapshotView>> SnapshotView::open(const SegmentOwner& member) {
  std::unique_ptr<SnapshotView> view(new SnapshotView(member));
  VARVE_ASSIGN(view->control_, ControlBlock::open(member, SharedSegment::Access::read_write));
  return view;
}

std::vector<uint64_t> SnapshotView::full_steps() const {
  std::vector<uint64_t> steps;
  for (uint32_t slot = 0; slot < control_.identity().slot_count; ++slot) {
    const SlotNews news = control_.slot(slot);
    if (news.state == SlotState::full) steps.push_back(news.step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

Result<const SnapshotReader*> SnapshotView::begin_drain(uint64_t step) {
  const std::string subject = fmt::format("step {} of rank {}", step, member_.rank);
  if (drained_slot_) return Status::internal("a snapshot is being drained already", subject);
  for (uint32_t slot = 0; slot < control_.identity().slot_count && !drained_slot_; ++slot) {
    if (control_.cell(slot).begin_drain(step)) drained_slot_ = slot;
  }
  if (!drained_slot_) return Status::not_found("no snapshot of this step is complete", subject);
  Result<const SnapshotReader*> reader = open_drained(step);
  if (!reader.ok()) end_drain(reader.status());
  return reader;
}

Result<const SnapshotReader*> SnapshotView::open_drained(uint64_t step) {
  std::unique_ptr<SnapshotReader>& reader = readers_[*drained_slot_];
  const SlotNews news = control_.slot(*drained_slot_);
  if (news.shown) {
    VARVE_ASSIGN(reader, SnapshotReader::open_shown(member_, control_, *drained_slot_));
    return reader.get();
  }
  const auto fits = [&] { return reader && reader->step() == step && reader->fill_number() == news.fill_number; };
  const Status mapped = reader ? reader->reload() : Status();
  if (!mapped.ok() || !fits()) {
    // It was not open, or has been made anew elsewhere.
    reader.reset();
    // Not to be written: pages that may be are mapped as written ones where the file's are, and to leave each of those
    // takes all processors' notice.
    VARVE_ASSIGN(reader, SnapshotReader::open(member_, *drained_slot_, SharedSegment::Access::read));
  }
  if (!fits()) {
    return Status::corrupt("a snapshot is not the one that its control segment announces",
                           fmt::format("step {} of rank {}", step, member_.rank));
  }
  if (reader->has_lent_grids()) {
    // As soon as their sums are there, the memory level has this step, too.
    VARVE_ASSIGN(const std::unique_ptr<SnapshotReader> writer,
                 SnapshotReader::open(member_, *drained_slot_, SharedSegment::Access::read_write));
    writer->sum_lent_grids();
    if (reader->in_memory()) control_.cell(*drained_slot_).mark_restartable();
  }
  return reader.get();
}

void SnapshotView::end_drain(const Status& outcome) {
  if (!drained_slot_) return;
  if (control_.slot(*drained_slot_).shown) readers_[*drained_slot_].reset();
  if (const auto& reader = readers_[*drained_slot_]) reader->leave_pages();
  control_.cell(*drained_slot_).end_drain(outcome);
  drained_slot_.reset();
  control_.bell().ring();
}

void SnapshotView::post(const GroupNews& news) {
  control_.post(news);
  control_.bell().ring();
}

}  // namespace varve
