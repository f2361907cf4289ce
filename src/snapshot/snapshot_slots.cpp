#include "snapshot/snapshot_slots.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <span>

#include "core/process.h"

namespace varve {

Status GridPool::add(std::string_view name, uint64_t bytes, Use use) {
  Grid grid{.name = std::string(name), .memory = {}, .bytes = bytes, .use = use, .fill_number = 0};
  const std::vector<std::string> places = owner_.places_of(owner_.grid_path(size()));
  Result<SharedSegment> made = SharedSegment::create(places.front(), bytes);
  if (SharedSegment::lacks_room(made.status())) {
    Result<SharedSegment> elsewhere = SharedSegment::create_anywhere(std::span(places).subspan(1), bytes);
    if (elsewhere.ok()) made = std::move(elsewhere);
  }
  VARVE_ASSIGN(grid.memory, std::move(made));
  grids_.push_back(std::move(grid));
  return {};
}

Result<std::byte*> GridPool::make(std::string_view name, uint64_t bytes) {
  const std::string subject = fmt::format("grid '{}'", name);
  if (bytes == 0) return Status::invalid_argument("a grid of no size", subject);
  uint32_t made = 0;
  for (const Grid& grid : grids_) {
    if (grid.name != name) continue;
    ++made;
    if (grid.bytes != bytes) {
      return Status::invalid_argument(
          fmt::format("the other grids of this name have {} bytes, not {}", grid.bytes, bytes), subject);
    }
  }
  VARVE_TRY(add(name, bytes, Use::program));
  std::byte* const memory = grids_.back().memory.data();
  if (made == 1) VARVE_TRY(make_spares(name));
  return memory;
}

Status GridPool::make_spares(std::string_view name) {
  uint64_t bytes = 0;
  uint32_t spares = 0;
  for (const Grid& grid : grids_) {
    if (grid.name != name) continue;
    bytes = grid.bytes;
    if (grid.use != Use::program) ++spares;
  }
  for (; spares < spares_; ++spares) VARVE_TRY(add(name, bytes, Use::spare));
  return {};
}

std::optional<uint32_t> GridPool::find(std::string_view name, const std::byte* data) const {
  for (uint32_t i = 0; i < size(); ++i) {
    if (grids_[i].name == name && grids_[i].memory.data() == data) return i;
  }
  return std::nullopt;
}

std::optional<uint32_t> GridPool::find_free(std::string_view name,
                                            const std::function<bool(uint64_t fill_number)>& is_drained) const {
  std::optional<uint32_t> oldest;
  for (uint32_t i = 0; i < size(); ++i) {
    const Grid& grid = grids_[i];
    if (grid.name != name) continue;
    if (grid.use == Use::spare) return i;
    if (grid.use != Use::snapshot || !is_drained(grid.fill_number)) continue;
    if (!oldest || grid.fill_number < grids_[*oldest].fill_number) oldest = i;
  }
  return oldest;
}

Status GridPool::unlink() const {
  Status first;
  for (const Grid& grid : grids_) {
    const Status status = grid.memory.unlink();
    if (first.ok()) first = status;
  }
  return first;
}

namespace {

/// Beside what a slot takes, before one comes back to memory: others need some, too.
constexpr uint64_t kRoomToSpareBytes = 16_MiB;

uint64_t free_bytes_of(const std::string& folder) {
  struct statvfs info {};
  return ::statvfs(path_on_machine(folder).c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

}  // namespace

// Which slot comes next

std::optional<uint32_t> SnapshotSlots::find_free() const {
  std::optional<uint32_t> best;
  uint64_t best_fill = 0;
  for (uint32_t i = 0; i < count(); ++i) {
    const SlotNews news = control_.slot(i);
    if (!may_be_used(i) || (news.state != SlotState::empty && news.state != SlotState::drained)) continue;
    // The newest that could be restarted from stays longest.
    const bool worth_keeping = news.state == SlotState::drained && news.restartable;
    const uint64_t fill = worth_keeping ? news.fill_number : 0;
    if (!best || fill < best_fill) {
      best = i;
      best_fill = fill;
    }
  }
  return best;
}

/// One that was given up may be had again when there is room: it may have been short for a moment only.
bool SnapshotSlots::may_be_used(uint32_t index) const {
  if (!is_in_use(index)) return false;
  if (slots_[index].usable) return true;
  uint64_t bytes = kRoomToSpareBytes;
  for (const SnapshotSlot& other : slots_) bytes += other.memory.size();
  return free_bytes_of(owner_.family.folder) >= bytes;
}

std::optional<uint32_t> SnapshotSlots::find_fill(uint64_t fill_number) const {
  for (uint32_t i = 0; i < count(); ++i) {
    if (slots_[i].description.fill_number == fill_number) return i;
  }
  return std::nullopt;
}

std::optional<uint64_t> SnapshotSlots::newest_step() const {
  std::optional<uint64_t> newest;
  for (uint32_t i = 0; i < count(); ++i) {
    const SlotNews news = control_.slot(i);
    const bool complete = news.state != SlotState::empty && news.state != SlotState::filling;
    if (complete && news.restartable && (!newest || news.step > *newest)) newest = news.step;
  }
  return newest;
}

void SnapshotSlots::begin_fill(uint32_t index, const CheckpointId& checkpoint) {
  SnapshotSlot& slot = slots_[index];
  release_grids(slot);
  slot.description.step = checkpoint.step;
  slot.description.fill_number = next_fill_number_++;
  control_.begin_fill(index, checkpoint, slot.description.fill_number);
}

void SnapshotSlots::describe(uint32_t index, SlotDescription description) {
  SnapshotSlot& slot = slots_[index];
  release_grids(slot);  // which are known by the fill that the old description tells
  slot.description = std::move(description);
}

void SnapshotSlots::empty(uint32_t index) {
  control_.cell(index).cancel_fill();
  release_grids(slots_[index]);
}

void SnapshotSlots::refer_to(uint32_t index, std::vector<uint32_t> grids) {
  SnapshotSlot& slot = slots_[index];
  slot.lent = std::move(grids);
  for (uint32_t grid : slot.lent) {
    grids_.at(grid).use = GridPool::Use::snapshot;
    grids_.at(grid).fill_number = slot.description.fill_number;
  }
}

void SnapshotSlots::release_grids(SnapshotSlot& slot) {
  for (uint32_t grid : slot.lent) {
    // It may have been handed out since, and even be in another slot's snapshot.
    GridPool::Grid& lent = grids_.at(grid);
    const bool still = lent.use == GridPool::Use::snapshot && lent.fill_number == slot.description.fill_number;
    if (still) lent.use = GridPool::Use::spare;
  }
  slot.lent.clear();
}

Status SnapshotSlots::unlink() const {
  Status first;
  for (const SnapshotSlot& slot : slots_) {
    const Status status = slot.memory.unlink();
    if (first.ok()) first = status;
  }
  return first;
}

// Where a slot has its memory

Status SnapshotSlots::make_room(uint32_t index, uint64_t bytes) {
  Status made = make_in_memory(index, bytes);
  if (made.ok() || !SharedSegment::lacks_room(made)) return made;
  const Status why = made;
  if (!slots_[index].spilled) made = do_with_one(index, bytes, why);
  if (!made.ok() && SharedSegment::lacks_room(made)) made = spill(index, bytes, why);
  if (!made.ok() && SharedSegment::lacks_room(made)) {
    note_shortage(why, "each checkpoint is written while the program waits");
  }
  return made;
}

/// Or wherever the slot is.
Status SnapshotSlots::make_in_memory(uint32_t index, uint64_t bytes) {
  SharedSegment& memory = slots_[index].memory;
  // Only ever longer: what an earlier snapshot has in it stays.
  if (memory.valid()) return memory.grow(bytes);
  VARVE_ASSIGN(memory, SharedSegment::create(owner_.slot_path(index), bytes));
  return {};
}

/// Gives one of two slots up for the other. busy: this one, so that the other must be waited for.
Status SnapshotSlots::do_with_one(uint32_t index, uint64_t bytes, const Status& why) {
  for (uint32_t other = 0; other < count(); ++other) {
    if (other == index || !slots_[other].usable || !is_in_use(other)) continue;
    note_shortage(why, "there is one snapshot instead of two");
    const SlotState state = control_.slot(other).state;
    const bool in_use = state != SlotState::empty && state != SlotState::drained;
    const uint32_t given_up = in_use || slots_[other].memory.size() >= bytes ? index : other;
    drop(given_up);
    slots_[given_up].usable = false;
    if (given_up == index) return Status::busy("there is room for one snapshot only");
    return make_in_memory(index, bytes);
  }
  return why;
}

void SnapshotSlots::make_second(uint32_t rank_count) {
  // Of what there is, a quarter: the program may want some, too.
  constexpr uint64_t kShare = 4;
  const uint64_t bytes = slots_[0].memory.size();
  const uint64_t most = std::min(free_bytes_of(owner_.family.folder), available_memory_bytes()) / kShare;
  if (slots_.size() < 2 || is_in_use(1) || slots_[0].spilled || bytes > most / std::max(rank_count, 1u)) return;
  Result<SharedSegment> made = SharedSegment::create(owner_.slot_path(1), bytes);
  if (made.ok()) slots_[1].memory = std::move(*made);
}

Status SnapshotSlots::spill(uint32_t index, uint64_t bytes, const Status& why) {
  const std::vector<std::string> places = owner_.places_of(owner_.slot_path(index));
  if (places.size() < 2) return why;
  // One that has grown too large for its folder is made anew in the next.
  drop(index);
  Result<SharedSegment> spilled = SharedSegment::create_anywhere(std::span(places).subspan(1), bytes);
  if (!spilled.ok()) return why;
  SnapshotSlot& slot = slots_[index];
  slot.memory = std::move(*spilled);
  slot.spilled = true;
  note_shortage(why,
                fmt::format("snapshots are made in {}", slot.memory.path().substr(0, slot.memory.path().rfind('/'))));
  return {};
}

/// The memory of a free slot.
void SnapshotSlots::drop(uint32_t index) {
  SnapshotSlot& slot = slots_[index];
  control_.cell(index).cancel_fill();
  release_grids(slot);
  slot.memory.unlink().ignore("the next run removes what is left");
  slot.memory = {};
  slot.image_number = 0;
  slot.spilled = false;
}

void SnapshotSlots::come_back(uint32_t index) {
  SnapshotSlot& slot = slots_[index];
  slot.usable = true;
  if (!slot.spilled || free_bytes_of(owner_.family.folder) < slot.memory.size() + kRoomToSpareBytes) return;
  drop(index);
  last_consequence_.clear();
}

void SnapshotSlots::note_shortage(const Status& why, std::string_view consequence) {
  if (last_consequence_ == consequence) return;
  last_consequence_ = consequence;
  shortage_ = Status(why.code(), fmt::format("shared memory is short ({}), so that {}", why.message(), consequence),
                     std::string(why.subject()),
                     "make the memory file system larger (docker run --shm-size), or name another (shared_memory)");
}

}  // namespace varve
