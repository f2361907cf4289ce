#include "snapshot/snapshot.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/process.h"
#include "core/sync.h"
#include "snapshot/image_copy.h"

namespace varve {

Status GridPool::add(std::string_view name, uint64_t bytes, Use use) {
  Grid grid{.name = std::string(name), .memory = {}, .bytes = bytes, .use = use, .fill_number = 0};
  VARVE_ASSIGN(grid.memory, SharedSegment::create_where_room(owner_.places_of(owner_.grid_path(size())), bytes));
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

Status GridPool::unlink() const {
  Status first;
  for (const Grid& grid : grids_) {
    const Status status = grid.memory.unlink();
    if (first.ok()) first = status;
  }
  return first;
}

namespace {

using Clock = MonotonicClock;

/// A waiting thread looks that often whether there is somebody to wait for.
constexpr std::chrono::milliseconds kLivenessInterval(200);

/// Below this, waking helpers takes longer than the copy.
constexpr uint64_t kAloneBytesMax = 2_MiB;

uint64_t align_up(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

/// The grid that a variable of an image is in, if its bytes stay there.
using GridOf = std::function<std::optional<uint32_t>(size_t variable)>;

/// Which parts of the image lie where. Lent variables stay in their grids; what is between them goes to the slot.
class PartPlan {
 public:
  PartPlan(const VariableTable& variables, const GridOf& grid_of) {
    const ImageTable& image = variables.image();
    uint64_t begin = 0;  // of what is not in a part yet
    for (size_t i = 0; i < image.variables.size(); ++i) {
      const ImageVariable& variable = image.variables[i];
      const std::optional<uint32_t> grid = grid_of(i);
      if (!grid || variable.bytes == 0) continue;
      add_copied(begin, variable.offset);
      parts_.push_back({variable.offset, grid, variables.memory()[i].region});
      begin = variable.offset + variable.bytes;
    }
    add_copied(begin, image.image_bytes);
  }

  /// With regions from the start of the slot's data.
  std::vector<SlotPart> take_parts() { return std::move(parts_); }
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  void add_copied(uint64_t begin, uint64_t end) {
    if (begin == end) return;
    SlotPart part{.image_offset = begin, .grid = std::nullopt, .region = dense_region(end - begin)};
    // Aligned as in the image, so that its variables are.
    part.region.first_byte = align_up(copied_bytes_, kImageAlignmentBytes) + begin % kImageAlignmentBytes;
    copied_bytes_ = part.region.first_byte + part.region.row_bytes;
    parts_.push_back(std::move(part));
  }

  std::vector<SlotPart> parts_;
  uint64_t copied_bytes_ = 0;
};

/// Places for a snapshot of what is protected; step and fill number are still to be set, which changes no size.
SlotDescription describe(const SegmentOwner& owner, const VariableTable& variables, const GridOf& grid_of) {
  PartPlan plan(variables, grid_of);
  SlotDescription description;
  description.run = owner.run;
  description.rank = owner.rank;
  description.image_bytes = variables.image().image_bytes;
  description.data_bytes = plan.copied_bytes();
  description.parts = plan.take_parts();
  for (const SlotPart& part : description.parts) description.crc_count += part.block_count();

  ByteVector encoded;
  encode_slot_description(description, encoded);
  // Parts' places are of fixed size in it, too.
  description.crcs_offset = align_up(encoded.size(), kImageAlignmentBytes);
  const uint64_t crcs_end = description.crcs_offset + description.crc_count * sizeof(uint32_t);
  const bool large = description.data_bytes >= 2 * kSlotDataAlignmentBytes;
  description.data_offset = align_up(crcs_end, large ? kSlotDataAlignmentBytes : 4_KiB);
  for (SlotPart& part : description.parts) {
    if (!part.grid) part.region.first_byte += description.data_offset;
  }
  return description;
}

/// Beside what a slot takes, before one comes back to memory: others need some, too.
constexpr uint64_t kRoomToSpareBytes = 16_MiB;

uint64_t free_bytes_of(const std::string& folder) {
  struct statvfs info {};
  return ::statvfs(path_on_machine(folder).c_str(), &info) == 0 ? uint64_t{info.f_bavail} * info.f_frsize : 0;
}

}  // namespace

SnapshotMemory::SnapshotMemory(SegmentOwner owner, SnapshotOptions options)
    : owner_(std::move(owner)),
      options_(std::move(options)),
      creator_pid_(::getpid()),
      grids_(owner_, options_.slots),
      team_(options_.copy_threads) {}

Result<std::unique_ptr<SnapshotMemory>> SnapshotMemory::create(const SegmentOwner& owner,
                                                               const SnapshotOptions& options) {
  if (options.slots < 1 || options.slots > kSlotsMax) {
    return Status::invalid_argument(fmt::format("a rank has 1 or {} slots, not {}", kSlotsMax, options.slots));
  }
  if (owner.rank >= options.rank_count) {
    return Status::invalid_argument(fmt::format("rank {} of {} ranks", owner.rank, options.rank_count));
  }
  std::unique_ptr<SnapshotMemory> memory(new SnapshotMemory(owner, options));
  ControlBlock::Identity identity{.run = owner.run,
                                  .process = {},
                                  .rank = owner.rank,
                                  .rank_count = options.rank_count,
                                  .slot_count = options.slots};
  VARVE_ASSIGN(identity.process, ProcessIdentity::own());
  // Before all other segments, and removed after them: what has no control segment is nobody's.
  VARVE_ASSIGN(memory->control_, ControlBlock::create(owner, identity));
  return memory;
}

SnapshotMemory::~SnapshotMemory() {
  // A process that was forked from ours has a copy of this object, but not the files.
  if (::getpid() == creator_pid_) remove_files().ignore("what is left is removed by the next run");
}

Status SnapshotMemory::remove_files() {
  if (!control_.valid()) return {};
  Status first = grids_.unlink();
  for (const Slot& slot : slots_) {
    const Status status = slot.memory.unlink();
    if (first.ok()) first = status;
  }
  const Status status = control_.unlink();
  return first.ok() ? status : first;
}

Status SnapshotMemory::attach_leader(const SegmentOwner& leader) {
  VARVE_ASSIGN(leader_, ControlBlock::open(leader, SharedSegment::Access::read_write));
  return {};
}

bool SnapshotMemory::leader_alive() const { return !leader_.valid() || leader_.owner_alive(); }

// Which slot comes next

std::optional<uint32_t> SnapshotMemory::free_slot() const {
  std::optional<uint32_t> best;
  uint64_t best_fill = 0;
  for (uint32_t i = 0; i < options_.slots; ++i) {
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
bool SnapshotMemory::may_be_used(uint32_t index) const {
  if (slots_[index].usable) return true;
  uint64_t bytes = kRoomToSpareBytes;
  for (const Slot& other : slots_) bytes += other.memory.size();
  return free_bytes_of(owner_.family.folder) >= bytes;
}

bool SnapshotMemory::has_free_slot() const { return free_slot().has_value(); }

std::optional<uint64_t> SnapshotMemory::newest_step() const {
  std::optional<uint64_t> newest;
  for (uint32_t i = 0; i < options_.slots; ++i) {
    const SlotNews news = control_.slot(i);
    const bool complete = news.state != SlotState::empty && news.state != SlotState::filling;
    if (complete && news.restartable && (!newest || news.step > *newest)) newest = news.step;
  }
  return newest;
}

Status SnapshotMemory::wait_until(const std::function<bool()>& done, std::chrono::nanoseconds limit,
                                  std::string_view what) const {
  const Clock::time_point begin = Clock::now();
  Clock::time_point looked = begin;
  for (;;) {
    const uint32_t seen = control_.bell().count();
    if (done()) return {};
    const Clock::time_point now = Clock::now();
    if (now - begin >= limit) return Status::busy(fmt::format("time ran out while waiting for {}", what));
    if (now - looked >= kLivenessInterval) {
      looked = now;
      if (!leader_alive()) {
        return Status::io_error(
            fmt::format("the process that writes this group's checkpoints died; no use in waiting "
                        "for {}",
                        what));
      }
    }
    control_.bell().wait(seen, std::min<std::chrono::nanoseconds>(limit - (now - begin), kLivenessInterval));
  }
}

Status SnapshotMemory::wait_for_free_slot(std::chrono::nanoseconds limit) const {
  return wait_until([this] { return has_free_slot(); }, limit, "the checkpoint before");
}

Status SnapshotMemory::wait_for_step(uint64_t step, std::chrono::nanoseconds limit) const {
  auto dealt_with = [&] {
    const std::optional<GroupNews> now = control_.news();
    return now && now->finished_step && *now->finished_step >= step;
  };
  return wait_until(dealt_with, limit, fmt::format("the checkpoint of step {}", step));
}

// Stage 1

Status SnapshotMemory::make_room(uint32_t index, uint64_t bytes) {
  Slot& slot = slots_[index];
  Status made = make_room_in_memory(slot, index, bytes);
  if (made.ok() || !lacks_room(made)) return made;
  const Status why = made;
  if (!slot.spilled) made = do_with_one_slot(index, bytes, why);
  if (!made.ok() && lacks_room(made)) made = spill(index, bytes, why);
  if (!made.ok() && lacks_room(made)) note_shortage(why, "each checkpoint is written while the program waits");
  return made;
}

/// Or wherever the slot is.
Status SnapshotMemory::make_room_in_memory(Slot& slot, uint32_t index, uint64_t bytes) {
  // Only ever longer: what an earlier snapshot has in it stays.
  if (slot.memory.valid()) return slot.memory.grow(bytes);
  VARVE_ASSIGN(slot.memory, SharedSegment::create(owner_.slot_path(index), bytes));
  return {};
}

/// Gives one of two slots up for the other. busy: this one, so that the other must be waited for.
Status SnapshotMemory::do_with_one_slot(uint32_t index, uint64_t bytes, const Status& why) {
  for (uint32_t other = 0; other < options_.slots; ++other) {
    if (other == index || !slots_[other].usable) continue;
    note_shortage(why, "there is one snapshot instead of two");
    const SlotState state = control_.slot(other).state;
    const bool in_use = state != SlotState::empty && state != SlotState::drained;
    const uint32_t given_up = in_use || slots_[other].memory.size() >= bytes ? index : other;
    drop_memory(given_up);
    slots_[given_up].usable = false;
    if (given_up == index) return Status::busy("there is room for one snapshot only");
    return make_room_in_memory(slots_[index], index, bytes);
  }
  return why;
}

Status SnapshotMemory::spill(uint32_t index, uint64_t bytes, const Status& why) {
  const std::vector<std::string> places = owner_.places_of(owner_.slot_path(index));
  if (places.size() < 2) return why;
  // One that has grown too large for its folder is made anew in the next.
  drop_memory(index);
  Result<SharedSegment> spilled = SharedSegment::create_where_room(std::span(places).subspan(1), bytes);
  if (!spilled.ok()) return lacks_room(spilled.status()) ? why : spilled.status();
  Slot& slot = slots_[index];
  slot.memory = std::move(*spilled);
  slot.spilled = true;
  note_shortage(why,
                fmt::format("snapshots are made in {}", slot.memory.path().substr(0, slot.memory.path().rfind('/'))));
  return {};
}

/// Of a free slot.
void SnapshotMemory::drop_memory(uint32_t index) {
  Slot& slot = slots_[index];
  control_.cancel_fill(index);
  release_grids(slot);
  slot.memory.unlink().ignore("the next run removes what is left");
  slot.memory = {};
  slot.image_number = 0;
  slot.spilled = false;
}

/// A free slot that is spilled is made in memory if that has room for it now: it may have been short for a moment,
/// while what a dead run had left was still there.
void SnapshotMemory::come_back(uint32_t index) {
  const Slot& slot = slots_[index];
  if (!slot.spilled || free_bytes_of(owner_.family.folder) < slot.memory.size() + kRoomToSpareBytes) return;
  drop_memory(index);
  last_consequence_.clear();
}

void SnapshotMemory::note_shortage(const Status& why, std::string_view consequence) {
  if (last_consequence_ == consequence) return;
  last_consequence_ = consequence;
  shortage_ = Status(why.code(), fmt::format("shared memory is short ({}), so that {}", why.message(), consequence),
                     std::string(why.subject()),
                     "make the memory file system larger (docker run --shm-size), or name another (shared_memory)");
}

Status SnapshotMemory::describe_slot(uint32_t index, const VariableTable& variables) {
  Slot& slot = slots_[index];
  if (slot.image_number == variables.image_number()) return {};
  SlotDescription description =
      describe(owner_, variables, [&](size_t variable) { return variables.memory()[variable].lent_grid; });
  VARVE_TRY(make_room(index, description.segment_bytes()));
  slot.description = std::move(description);
  slot.image_number = variables.image_number();
  return {};
}

Status SnapshotMemory::reserve(VariableTable& variables) {
  VARVE_TRY(variables.refresh());
  const SlotDescription expected = describe(owner_, variables, [&](size_t variable) {
    return grids_.find(variables.image().variables[variable].name, variables.memory()[variable].base);
  });
  for (uint32_t i = 0; i < options_.slots; ++i) {
    const Status made = slots_[i].usable ? make_room(i, expected.segment_bytes()) : Status();
    if (made.code() != StatusCode::busy) VARVE_TRY(made);
  }
  return {};
}

void SnapshotMemory::copy(uint32_t index, const VariableTable& variables) {
  const Slot& slot = slots_[index];
  uint64_t crc_number = 0;
  for (const SlotPart& part : slot.description.parts) {
    const uint64_t blocks = part.block_count();
    std::byte* const crcs = slot.memory.data() + slot.description.crcs_offset + crc_number * sizeof(uint32_t);
    crc_number += blocks;
    if (part.grid) continue;
    std::byte* const data = slot.memory.data() + part.region.first_byte;
    const auto copy_block = [&](uint64_t block) {
      const uint64_t begin = block * kSnapshotBlockBytes;
      const uint64_t bytes = std::min(kSnapshotBlockBytes, part.region.row_bytes - begin);
      store_le(crcs + block * sizeof(uint32_t), copy_image(variables, part.image_offset + begin, bytes, data + begin));
    };
    if (part.region.row_bytes <= kAloneBytesMax) {
      for (uint64_t block = 0; block < blocks; ++block) copy_block(block);
    } else {
      team_.run(blocks, std::ref(copy_block));
    }
  }
}

void SnapshotMemory::publish(uint32_t index, VariableTable& variables) {
  Slot& slot = slots_[index];
  encoded_.clear();
  encode_slot_description(slot.description, encoded_);
  std::copy(encoded_.begin(), encoded_.end(), slot.memory.data());
  step_done("described");

  slot.lent = variables.take_lent();
  for (uint32_t grid : slot.lent) {
    grids_.at(grid).use = GridPool::Use::snapshot;
    grids_.at(grid).fill_number = slot.description.fill_number;
  }
  // Of lent grids the sums are still missing: the checkpoint thread makes them.
  const std::vector<SlotPart>& parts = slot.description.parts;
  const bool summed =
      std::none_of(parts.begin(), parts.end(), [](const SlotPart& part) { return part.grid.has_value(); });
  const bool kept = options_.restartable && (!slot.spilled || slot.memory.in_memory());
  control_.end_fill(index, summed && kept);
  step_done("full");
}

Status SnapshotMemory::fill(uint64_t step, VariableTable& variables) {
  const std::optional<uint32_t> index = free_slot();
  if (!index) return Status::busy("all snapshots wait to be written");
  VARVE_TRY(variables.refresh());
  slots_[*index].usable = true;
  come_back(*index);
  VARVE_TRY(describe_slot(*index, variables));
  step_done("room made");

  Slot& slot = slots_[*index];
  release_grids(slot);
  slot.description.step = step;
  slot.description.fill_number = next_fill_number_++;
  control_.begin_fill(*index, step, slot.description.fill_number);
  step_done("filling");
  copy(*index, variables);
  step_done("copied");
  publish(*index, variables);  // the commit point of the memory level
  ring();
  return {};
}

Status SnapshotMemory::show(uint64_t step, VariableTable& variables, std::chrono::nanoseconds limit) {
  const std::optional<uint32_t> index = free_slot();
  if (!index) return Status::busy("all snapshots wait to be written");
  VARVE_TRY(variables.refresh());
  Slot& slot = slots_[*index];
  release_grids(slot);
  slot.image_number = 0;
  slot.description.step = step;
  slot.description.fill_number = next_fill_number_++;
  control_.begin_fill(*index, step, slot.description.fill_number);
  control_.end_fill_shown(*index, variables.image().image_bytes);
  ring();
  const auto copy = [&](uint64_t offset, MutableByteSpan into) {
    copy_image(variables, offset, into.size(), into.data());
  };
  const auto drained = [&] {
    while (control_.answer_shown(copy)) continue;
    return control_.slot(*index).state == SlotState::drained;
  };
  const Status waited = wait_until(drained, limit, "the checkpoint to be written");
  control_.end_showing();
  // Given back, nothing is in it. Else whoever reads finds that nothing is shown any more, and gives it back then.
  if (waited.ok()) control_.cancel_fill(*index);
  skip(variables);
  return waited;
}

void SnapshotMemory::give_up(uint64_t step) {
  control_.give_up(step);
  ring();
}

void SnapshotMemory::ring() const {
  if (leader_.valid()) leader_.bell().ring();
  control_.bell().ring();
}

// Grids

void SnapshotMemory::release_grids(Slot& slot) {
  for (uint32_t grid : slot.lent) {
    // It may have been handed out since, and even be in another slot's snapshot.
    GridPool::Grid& lent = grids_.at(grid);
    const bool still = lent.use == GridPool::Use::snapshot && lent.fill_number == slot.description.fill_number;
    if (still) lent.use = GridPool::Use::spare;
  }
  slot.lent.clear();
}

void SnapshotMemory::skip(VariableTable& variables) {
  for (uint32_t grid : variables.take_lent()) grids_.at(grid).use = GridPool::Use::spare;
}

std::optional<uint32_t> SnapshotMemory::spare_grid(std::string_view name) const {
  std::optional<uint32_t> oldest;
  for (uint32_t i = 0; i < grids_.size(); ++i) {
    const GridPool::Grid& grid = grids_.at(i);
    if (grid.name != name) continue;
    if (grid.use == GridPool::Use::spare) return i;
    if (grid.use != GridPool::Use::snapshot || !snapshot_is_drained(grid.fill_number)) continue;
    if (!oldest || grid.fill_number < grids_.at(*oldest).fill_number) oldest = i;
  }
  return oldest;
}

bool SnapshotMemory::snapshot_is_drained(uint64_t fill_number) const {
  for (uint32_t i = 0; i < options_.slots; ++i) {
    if (slots_[i].description.fill_number != fill_number) continue;
    return control_.slot(i).state == SlotState::drained;
  }
  return false;
}

std::byte* SnapshotMemory::hand_out(uint32_t index) {
  GridPool::Grid& grid = grids_.at(index);
  if (grid.use == GridPool::Use::snapshot) {
    // The program is going to write it: the snapshot that refers to it ends here.
    for (uint32_t i = 0; i < options_.slots; ++i) {
      if (slots_[i].description.fill_number == grid.fill_number) control_.mark_overwritten(i);
    }
  }
  grid.use = GridPool::Use::program;
  return grid.memory.data();
}

Result<std::byte*> SnapshotMemory::lend(std::string_view name, std::byte* data, VariableTable& variables,
                                        std::chrono::nanoseconds limit) {
  const std::optional<uint32_t> index = grids_.find(name, data);
  if (!index) return Status::invalid_argument("this memory is not from make_grid()", fmt::format("grid '{}'", name));
  if (grids_.at(*index).use != GridPool::Use::program) {
    return Status::invalid_argument("this grid has been lent already", fmt::format("grid '{}'", name));
  }
  const LentGrid lent{.grid = *index, .data = data, .bytes = grids_.at(*index).bytes};
  VARVE_TRY(variables.check_lend(name, lent));
  VARVE_TRY(grids_.make_spares(name));

  // What was lent for the same checkpoint is free at once.
  const std::optional<uint32_t> pending = variables.lent_grid(name);
  if (!pending) {
    VARVE_TRY(wait_until([&] { return spare_grid(name).has_value(); }, limit,
                         fmt::format("a grid '{}' that is not being written", name)));
  }
  VARVE_TRY(variables.lend(name, lent));
  grids_.at(*index).use = GridPool::Use::lent;
  if (pending) grids_.at(*pending).use = GridPool::Use::spare;
  return hand_out(*spare_grid(name));
}

}  // namespace varve
