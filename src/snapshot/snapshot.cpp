#include "snapshot/snapshot.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "core/guarded.h"
#include "core/process.h"
#include "core/sync.h"

namespace varve {

// The link to the group

Result<GroupLink> GroupLink::create(const SegmentOwner& owner, uint32_t rank_count, uint32_t slot_count) {
  ControlBlock::Identity identity{
      .run = owner.run, .process = {}, .rank = owner.rank, .rank_count = rank_count, .slot_count = slot_count};
  VARVE_ASSIGN(identity.process, ProcessIdentity::own());
  GroupLink link;
  VARVE_ASSIGN(link.own_, ControlBlock::create(owner, identity));
  return link;
}

Status GroupLink::attach_leader(const SegmentOwner& leader) {
  VARVE_ASSIGN(leader_, ControlBlock::open(leader, SharedSegment::Access::read_write));
  return {};
}

void GroupLink::ring() const {
  if (leader_.valid()) leader_.bell().ring();
  own_.bell().ring();
}

void GroupLink::give_up(uint64_t step) const {
  own_.give_up(step);
  ring();
}

Status GroupLink::wait_until(const std::function<bool()>& done, std::chrono::nanoseconds limit,
                             std::string_view what) const {
  // A waiting thread looks that often whether there is somebody to wait for.
  constexpr std::chrono::milliseconds kLivenessInterval(200);
  const MonotonicClock::time_point begin = MonotonicClock::now();
  MonotonicClock::time_point looked = begin;
  for (;;) {
    const uint32_t seen = own_.bell().count();
    if (done()) return {};
    const MonotonicClock::time_point now = MonotonicClock::now();
    if (now - begin >= limit) return Status::busy(fmt::format("time ran out while waiting for {}", what));
    if (now - looked >= kLivenessInterval) {
      looked = now;
      if (!leader_alive()) {
        return Status::io_error(
            fmt::format("the process that writes this group's checkpoints died; no use in waiting for {}", what));
      }
    }
    own_.bell().wait(seen, std::min<std::chrono::nanoseconds>(limit - (now - begin), kLivenessInterval));
  }
}

Status GroupLink::wait_for_step(uint64_t step, std::chrono::nanoseconds limit) const {
  auto dealt_with = [&] {
    const std::optional<GroupNews> now = news();
    return now && now->finished_step && *now->finished_step >= step;
  };
  return wait_until(dealt_with, limit, fmt::format("the checkpoint of step {}", step));
}

namespace {

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
  description.data_offset = align_up(crcs_end, 4_KiB);
  for (SlotPart& part : description.parts) {
    if (!part.grid) part.region.first_byte += description.data_offset;
  }
  return description;
}

/// Makes the bytes of the parts that are in the slot, and their sums.
void copy_parts(const SnapshotSlot& slot, const VariableTable& variables, CopyTeam& team) {
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
      team.run(blocks, std::ref(copy_block));
    }
  }
}

}  // namespace

// Making and removing it

SnapshotMemory::SnapshotMemory(SegmentOwner owner, SnapshotOptions options)
    : owner_(std::move(owner)),
      options_(std::move(options)),
      creator_pid_(::getpid()),
      grids_(owner_, options_.second_is_extra ? 1 : options_.slots),
      slots_(owner_, options_.slots, options_.second_is_extra, group_.own(), grids_),
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
  // Before all other segments, and removed after them: what has no control segment is nobody's.
  VARVE_ASSIGN(memory->group_, GroupLink::create(owner, options.rank_count, options.slots));
  return memory;
}

SnapshotMemory::~SnapshotMemory() {
  // A process that was forked from ours has a copy of this object, but neither its threads nor the files.
  if (::getpid() != creator_pid_) {
    (void)new Thread(std::move(beside_));  // there is nothing to join here
    return;
  }
  remove_files().ignore("what is left is removed by the next run");
}

Result<std::byte*> SnapshotMemory::make_grid(std::string_view name, uint64_t bytes) {
  settle();
  return grids_.make(name, bytes);
}

void SnapshotMemory::leave(ControlBlock::Ended why) {
  settle();
  is_left_ = true;
  group_.own().end(why);
  group_.ring();
}

Status SnapshotMemory::remove_files() {
  settle();
  if (is_left_ || !group_.own().valid()) return {};
  Status first;
  for (const Status& removed : {grids_.unlink(), slots_.unlink(), group_.own().unlink()}) {
    if (first.ok()) first = removed;
  }
  return first;
}

// Stage 1

Status SnapshotMemory::describe_slot(SnapshotSlot& slot, uint32_t index, const VariableTable& variables) {
  if (slot.image_number == variables.image_number()) return {};
  SlotDescription description =
      describe(owner_, variables, [&](size_t variable) { return variables.memory()[variable].lent_grid; });
  VARVE_TRY(slots_.make_room(index, description.segment_bytes()));
  slots_.describe(index, std::move(description));
  slot.image_number = variables.image_number();
  return {};
}

Status SnapshotMemory::reserve(VariableTable& variables) {
  VARVE_TRY(variables.refresh());
  const SlotDescription expected = describe(owner_, variables, [&](size_t variable) {
    return grids_.find(variables.image().variables[variable].name, variables.memory()[variable].base);
  });
  settle();
  last_fill_ = MonotonicClock::now();
  begin_beside([this, bytes = expected.segment_bytes()] {
    for (uint32_t i = 0; i < slots_.count(); ++i) {
      if (slots_.at(i).usable && slots_.is_in_use(i)) {
        slots_.make_room(i, bytes).ignore("the first fill() tries again, and tells");
      }
    }
  });
  return {};
}

void SnapshotMemory::begin_beside(const std::function<void()>& work) {
  const auto guarded = [work] { run_guarded(work).ignore("it is made when it is needed, then"); };
  const BlockedSignals blocked;
  Result<Thread> thread = start_thread(guarded);
  if (thread.ok()) beside_ = std::move(*thread);
}

void SnapshotMemory::foresee_second(uint32_t filled) {
  const Moment now = MonotonicClock::now();
  const std::chrono::nanoseconds half = (now - last_fill_) / 2;
  last_fill_ = now;
  if (!options_.second_is_extra || slots_.count() < 2 || slots_.is_in_use(1)) return;
  begin_beside([this, filled, half] {
    {
      const MutexLock lock(beside_mutex_);
      const auto is_wanted_back = [this]() VARVE_REQUIRES(beside_mutex_) { return is_wanted_back_; };
      if (beside_bell_.wait_for(beside_mutex_, half, is_wanted_back)) return;
    }
    if (slot(filled).state != SlotState::drained) slots_.make_second(options_.machine_rank_count);
  });
}

void SnapshotMemory::settle() {
  if (!beside_.joinable()) return;
  const auto want_back = [this](bool wanted) {
    const MutexLock lock(beside_mutex_);
    is_wanted_back_ = wanted;
  };
  want_back(true);
  beside_bell_.notify_all();
  beside_.join();
  want_back(false);
}

void SnapshotMemory::publish(SnapshotSlot& slot, uint32_t index, VariableTable& variables) {
  encoded_.clear();
  encode_slot_description(slot.description, encoded_);
  std::copy(encoded_.begin(), encoded_.end(), slot.memory.data());
  options_.after_step("described");

  slots_.refer_to(index, variables.take_lent());
  // Of lent grids the sums are still missing: the checkpoint thread makes them.
  const std::vector<SlotPart>& parts = slot.description.parts;
  const bool summed =
      std::none_of(parts.begin(), parts.end(), [](const SlotPart& part) { return part.grid.has_value(); });
  const bool kept = options_.restartable && (!slot.spilled || slot.memory.in_memory());
  group_.own().cell(index).end_fill(summed, kept);
  options_.after_step("full");
}

Status SnapshotMemory::fill(const CheckpointId& checkpoint, VariableTable& variables) {
  settle();
  const std::optional<uint32_t> index = slots_.find_free();
  if (!index) return Status::busy("all snapshots wait to be written");
  VARVE_TRY(variables.refresh());
  slots_.come_back(*index);
  SnapshotSlot& slot = slots_.at(*index);
  VARVE_TRY(describe_slot(slot, *index, variables));
  options_.after_step("room made");

  slots_.begin_fill(*index, checkpoint);
  const Status filled = run_guarded([&] {
    options_.after_step("filling");
    copy_parts(slot, variables, team_);
    options_.after_step("copied");
    publish(slot, *index, variables);  // the commit point of the memory level
  });
  if (!filled.ok()) {
    slots_.empty(*index);
    return filled;
  }
  group_.ring();
  run_guarded([&] { foresee_second(*index); }).ignore("it is made when it is needed, then");
  return {};
}

bool SnapshotMemory::has_free_slot() {
  settle();
  return slots_.find_free().has_value();
}

Status SnapshotMemory::take_shortage() {
  settle();
  return slots_.take_shortage();
}

Status SnapshotMemory::wait_for_free_slot(std::chrono::nanoseconds limit) {
  return group_.wait_until([this] { return has_free_slot(); }, limit, "the checkpoint before");
}

Status SnapshotMemory::show(const CheckpointId& checkpoint, VariableTable& variables, std::chrono::nanoseconds limit) {
  settle();
  const std::optional<uint32_t> index = slots_.find_free();
  if (!index) return Status::busy("all snapshots wait to be written");
  VARVE_TRY(variables.refresh());
  const ControlBlock& control = group_.own();
  slots_.at(*index).image_number = 0;
  slots_.begin_fill(*index, checkpoint);
  control.begin_showing(variables.image().image_bytes);
  control.cell(*index).end_fill_shown();
  group_.ring();
  const auto copy = [&](uint64_t offset, MutableByteSpan into) {
    copy_image(variables, offset, into.size(), into.data());
  };
  const auto drained = [&] {
    while (control.answer_shown(copy)) continue;
    return control.slot(*index).state == SlotState::drained;
  };
  const Status waited = group_.wait_until(drained, limit, "the checkpoint to be written");
  control.end_showing();
  // Given back, nothing is in it. Else whoever reads finds that nothing is shown any more, and gives it back then.
  if (waited.ok()) control.cell(*index).cancel_fill();
  skip(variables);
  return waited;
}

bool SnapshotMemory::drop(uint64_t step) {
  settle();
  bool dropped = false;
  for (uint32_t index = 0; index < slots_.count(); ++index) {
    const SlotNews news = slot(index);
    if (news.state != SlotState::drained || news.step != step) continue;
    slots_.empty(index);
    dropped = true;
  }
  return dropped;
}

void SnapshotMemory::forget(VariableTable& variables, const std::optional<CheckpointId>& kept) {
  settle();
  for (uint32_t index = 0; index < slots_.count(); ++index) {
    const CheckpointId there = group_.own().checkpoint(index);
    const bool is_kept = kept && there.step == kept->step && there.run == kept->run;
    if (!is_kept || slot(index).state != SlotState::drained) slots_.empty(index);
  }
  group_.own().forget();
  skip(variables);
}

// Grids

void SnapshotMemory::skip(VariableTable& variables) {
  for (uint32_t grid : variables.take_lent()) grids_.at(grid).use = GridPool::Use::spare;
}

Result<std::byte*> SnapshotMemory::lend(std::string_view name, std::byte* data, VariableTable& variables,
                                        std::chrono::nanoseconds limit) {
  settle();
  const std::optional<uint32_t> index = grids_.find(name, data);
  if (!index) return Status::invalid_argument("this memory is not from make_grid()", fmt::format("grid '{}'", name));
  if (grids_.at(*index).use != GridPool::Use::program) {
    return Status::invalid_argument("this grid has been lent already", fmt::format("grid '{}'", name));
  }
  const LentGrid lent{.grid = *index, .data = data, .bytes = grids_.at(*index).bytes};
  VARVE_TRY(variables.check_lend(name, lent));
  VARVE_TRY(grids_.make_spares(name));

  const auto find_free = [&] {
    return grids_.find_free(name, [this](uint64_t fill_number) {
      const std::optional<uint32_t> its = slots_.find_fill(fill_number);
      return its && slot(*its).state == SlotState::drained;
    });
  };
  // What was lent for the same checkpoint is free at once.
  const std::optional<uint32_t> pending = variables.lent_grid(name);
  if (!pending) {
    VARVE_TRY(group_.wait_until([&] { return find_free().has_value(); }, limit,
                                fmt::format("a grid '{}' that is not being written", name)));
  }
  VARVE_TRY(variables.lend(name, lent));
  grids_.at(*index).use = GridPool::Use::lent;
  if (pending) grids_.at(*pending).use = GridPool::Use::spare;

  GridPool::Grid& free = grids_.at(*find_free());
  if (free.use == GridPool::Use::snapshot) {
    // The program is going to write it: the snapshot that refers to it ends here.
    const std::optional<uint32_t> its = slots_.find_fill(free.fill_number);
    if (its) group_.own().cell(*its).mark_overwritten();
  }
  free.use = GridPool::Use::program;
  return free.memory.data();
}

}  // namespace varve
