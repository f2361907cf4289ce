#include "snapshot/snapshot_reader.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/process.h"
#include "core/thread_pool.h"
#include "hash/score.h"
#include "snapshot/control_block.h"
#include "snapshot/image_copy.h"

namespace varve {

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::open(const SegmentOwner& owner, uint32_t slot,
                                                             SharedSegment::Access access) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(owner));
  VARVE_ASSIGN(reader->slot_, SharedSegment::open_first(owner.places_of(owner.slot_path(slot)), access));
  VARVE_TRY(reader->reload());
  return reader;
}

Result<std::unique_ptr<SnapshotReader>> SnapshotReader::open_shown(const SegmentOwner& owner,
                                                                   const ControlBlock& control, uint32_t slot) {
  std::unique_ptr<SnapshotReader> reader(new SnapshotReader(owner));
  const SlotNews news = control.slot(slot);
  reader->shown_ = &control;
  reader->description_.run = owner.run;
  reader->description_.rank = owner.rank;
  reader->description_.step = news.step;
  reader->description_.fill_number = news.fill_number;
  reader->description_.image_bytes = control.shown_bytes();
  VARVE_TRY(reader->read_table());
  return reader;
}

bool SnapshotReader::in_memory() const {
  const auto counts = [this](const SharedSegment& segment) {
    return segment.path().starts_with(owner_.family.folder + "/") || segment.in_memory();
  };
  return shown_ == nullptr && counts(slot_) &&
         std::all_of(grids_.begin(), grids_.end(), [&](const auto& grid) { return counts(grid.second); });
}

Status SnapshotReader::reload() {
  VARVE_TRY(slot_.follow_growth());
  VARVE_ASSIGN(description_, decode_slot_description(slot_.bytes()));
  if (description_.run != owner_.run || description_.rank != owner_.rank) {
    return Status::corrupt("a snapshot is not that of its name", slot_.path());
  }
  VARVE_TRY(map_parts());
  return read_table();
}

Status SnapshotReader::map_parts() {
  mapped_.clear();
  uint64_t crc = 0;
  for (const SlotPart& part : description_.parts) {
    const SharedSegment* segment = &slot_;
    if (part.grid) {
      auto found = grids_.find(*part.grid);
      if (found == grids_.end()) {
        VARVE_ASSIGN(SharedSegment grid, SharedSegment::open_first(owner_.places_of(owner_.grid_path(*part.grid)),
                                                                   SharedSegment::Access::read));
        found = grids_.emplace(*part.grid, std::move(grid)).first;
      }
      segment = &found->second;
    }
    // 0 bytes and regions that overflow were rejected with the description.
    if (part.region.extent_bytes().value_or(0) > segment->size()) {
      return Status::corrupt("a part of a snapshot does not lie in its shared memory", segment->path());
    }
    mapped_.push_back({segment->data(), crc});
    crc += part.block_count();
  }
  return {};
}

Status SnapshotReader::read_table() {
  image_ = ImageTable{.variables = {}, .header_bytes = 0, .image_bytes = description_.image_bytes};
  ByteVector header(kImagePrefixBytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(const uint64_t header_bytes, image_header_bytes(header, description_.image_bytes));
  header.resize(header_bytes);
  VARVE_TRY(read(0, header));
  VARVE_ASSIGN(image_, decode_image_header(header, description_.image_bytes));
  return {};
}

size_t SnapshotReader::part_at(uint64_t offset) const {
  auto after = [](uint64_t at, const SlotPart& part) { return at < part.image_offset; };
  const auto next = std::upper_bound(description_.parts.begin(), description_.parts.end(), offset, after);
  return static_cast<size_t>(next - description_.parts.begin()) - 1;
}

Status SnapshotReader::read(uint64_t offset, MutableByteSpan into) const {
  if (offset > description_.image_bytes || into.size() > description_.image_bytes - offset) {
    return Status::corrupt("bytes past the end of a snapshot's image were asked for", slot_.path());
  }
  if (shown_ != nullptr) {
    const MutexLock lock(shown_mutex_);
    return shown_->read_shown(offset, into);
  }
  while (!into.empty()) {
    const size_t index = part_at(offset);
    const SlotPart& part = description_.parts[index];
    const uint64_t in_part = offset - part.image_offset;
    const uint64_t bytes = std::min<uint64_t>(into.size(), part.region.bytes() - in_part);
    gather(mapped_[index].base, part.region, in_part, into.first(bytes));
    offset += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

ByteSpan SnapshotReader::view(uint64_t offset, uint64_t bytes_max) const {
  if (offset >= description_.image_bytes || shown_ != nullptr) return {};
  const size_t index = part_at(offset);
  const SlotPart& part = description_.parts[index];
  uint64_t run_bytes = 0;
  const uint64_t at = part.region.locate(offset - part.image_offset, run_bytes);
  return {mapped_[index].base + at, std::min(run_bytes, bytes_max)};
}

void SnapshotReader::leave_pages() const {
  slot_.leave_pages();
  for (const auto& [number, grid] : grids_) grid.leave_pages();
}

void SnapshotReader::leave_pages(ByteSpan viewed) const {
  slot_.leave_pages(viewed);
  for (const auto& [number, grid] : grids_) grid.leave_pages(viewed);
}

uint32_t SnapshotReader::block_crc(size_t part, uint64_t block, MutableByteSpan scratch) const {
  const StridedRegion& region = description_.parts[part].region;
  const uint64_t begin = block * kSnapshotBlockBytes;
  const uint64_t bytes = std::min(kSnapshotBlockBytes, region.bytes() - begin);
  if (region.dense()) return crc32c({mapped_[part].base + region.first_byte + begin, bytes});
  gather(mapped_[part].base, region, begin, scratch.first(bytes));
  return crc32c(scratch.first(bytes));
}

std::string SnapshotReader::variable_at(uint64_t offset) const {
  for (const ImageVariable& variable : image_.variables) {
    if (variable.offset + variable.bytes > offset) return fmt::format("variable '{}'", variable.name);
  }
  return slot_.path();
}

Status SnapshotReader::verify() const {
  Buffer scratch(kSnapshotBlockBytes);
  for (size_t i = 0; i < description_.parts.size(); ++i) {
    for (uint64_t block = 0; block < description_.parts[i].block_count(); ++block) {
      VARVE_TRY(check_crc(i, block, block_crc(i, block, scratch)));
    }
    leave_pages();
  }
  return {};
}

Status SnapshotReader::check_crc(size_t part, uint64_t block, uint32_t crc) const {
  const std::byte* const crcs = slot_.data() + description_.crcs_offset;
  if (crc == load_le<uint32_t>(crcs + (mapped_[part].first_crc + block) * sizeof(uint32_t))) return {};
  return Status::corrupt("a snapshot in memory does not match its checksums",
                         variable_at(description_.parts[part].image_offset + block * kSnapshotBlockBytes));
}

Status SnapshotReader::load(size_t thread_count, ImageTarget& target) const {
  return parallel_for(description_.crc_count, thread_count, [&](size_t number) {
    // Blocks are numbered as their checksums are.
    const auto next = std::upper_bound(mapped_.begin(), mapped_.end(), number,
                                       [](uint64_t at, const MappedPart& part) { return at < part.first_crc; });
    const auto part = static_cast<size_t>(next - mapped_.begin()) - 1;
    return load_block(part, number - mapped_[part].first_crc, target);
  });
}

Status SnapshotReader::load_block(size_t index, uint64_t block, ImageTarget& target) const {
  const SlotPart& part = description_.parts[index];
  const uint64_t begin = block * kSnapshotBlockBytes, at = part.image_offset + begin;
  const uint64_t bytes = std::min(kSnapshotBlockBytes, part.region.bytes() - begin);
  if (!part.region.dense()) {
    Buffer dense(bytes);
    const uint32_t crc = block_crc(index, block, dense);
    target.put(at, dense);
    return check_crc(index, block, crc);
  }
  const ByteSpan from(mapped_[index].base + part.region.first_byte + begin, bytes);
  const MutableByteSpan to = target.memory(at, bytes);
  if (!to.empty()) {
    const uint32_t crc = copy_with_crc(to.data(), from, 0);
    store_fence();
    return check_crc(index, block, crc);
  }
  target.put(at, from);
  return check_crc(index, block, crc32c(from));
}

bool SnapshotReader::has_lent_grids() const {
  return std::any_of(description_.parts.begin(), description_.parts.end(),
                     [](const SlotPart& part) { return part.grid.has_value(); });
}

void SnapshotReader::sum_lent_grids() {
  Buffer scratch(kSnapshotBlockBytes);
  std::byte* const crcs = slot_.data() + description_.crcs_offset;
  for (size_t i = 0; i < description_.parts.size(); ++i) {
    const SlotPart& part = description_.parts[i];
    if (!part.grid) continue;
    for (uint64_t block = 0; block < part.block_count(); ++block) {
      store_le(crcs + (mapped_[i].first_crc + block) * sizeof(uint32_t), block_crc(i, block, scratch));
    }
    leave_pages();
  }
}

namespace {

struct FolderCloser {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

/// The segments of a family, by run and rank.
using FoundSegments = std::map<UniqueId, std::map<uint32_t, std::vector<std::string>>>;

Result<FoundSegments> list_segments(const SegmentFamily& family, const std::string& where) {
  const std::unique_ptr<DIR, FolderCloser> folder(::opendir(path_on_machine(where).c_str()));
  if (!folder) return Status::from_errno(errno, "list", where);
  FoundSegments found;
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(folder.get());  // NOLINT(concurrency-mt-unsafe)
    if (entry == nullptr) break;
    std::optional<SegmentName> name = parse_segment_name(family, entry->d_name);
    if (name) found[name->run][name->rank].push_back(std::move(name->what));
  }
  if (errno != 0) return Status::from_errno(errno, "list", where);
  return found;
}

/// Whether a segment that cannot be opened has nothing to tell: there is none, it is another user's, or makes no sense.
/// Of any other failure nobody knows what it has.
bool tells_nothing(const Status& failure) {
  return failure.code() == StatusCode::not_found || failure.code() == StatusCode::permission_denied ||
         failure.code() == StatusCode::corrupt || failure.code() == StatusCode::unsupported;
}

Status not_looked_at(const Status& why) {
  return why.with_context("what an earlier run has left in memory cannot be looked at, and stays there");
}

/// Whether the process that made a control segment, which need not make sense, still has it open.
Result<bool> is_locked(const SegmentOwner& owner) {
  const Result<SharedSegment> segment = SharedSegment::open(owner.control_path(), SharedSegment::Access::read);
  if (!segment.ok() && !tells_nothing(segment.status())) return not_looked_at(segment.status());
  return segment.ok() && segment->creator_holds_lock();
}

/// A rank of another run: whether it lives, and what it left if not.
struct FoundRank {
  bool alive = false;
  bool has_ended = false;  ///< its run, though its process may live
  bool ours = true;        ///< files of another user may have any name
  std::vector<LeftSnapshot> snapshots;
};

std::vector<LeftSnapshot> snapshots_in(const SegmentOwner& owner, const ControlBlock& control) {
  std::vector<LeftSnapshot> snapshots;
  for (uint32_t slot = 0; slot < control.identity().slot_count; ++slot) {
    const SlotNews news = control.slot(slot);
    if (news.state == SlotState::empty || news.state == SlotState::filling || !news.restartable) continue;
    snapshots.push_back({.owner = owner,
                         .rank_count = control.identity().rank_count,
                         .slot = slot,
                         .checkpoint = control.checkpoint(slot),
                         .fill_number = news.fill_number});
  }
  return snapshots;
}

Result<FoundRank> look_at(const SegmentOwner& owner) {
  FoundRank rank;
  const Result<ControlBlock> control = ControlBlock::open(owner, SharedSegment::Access::read);
  if (!control.ok()) {
    if (!tells_nothing(control.status())) return not_looked_at(control.status());
    rank.ours = control.status().code() != StatusCode::permission_denied;
    // Of another version, or damaged: then only the lock tells. Without a control segment the rest is nobody's.
    if (rank.ours) {
      VARVE_ASSIGN(rank.alive, is_locked(owner));
    }
    return rank;
  }
  rank.alive = control->owner_alive();
  rank.has_ended = control->ended() == ControlBlock::Ended::run;
  if (!rank.alive) rank.snapshots = snapshots_in(owner, *control);
  return rank;
}

Status remove_segment(const std::string& path) {
  if (::unlink(path_on_machine(path).c_str()) == 0 || errno == ENOENT) return {};
  // Of another user, who gave it a name of ours.
  if (errno == EPERM || errno == EACCES) return {};
  return Status::from_errno(errno, "remove", path);
}

Status remove_rank(const SegmentOwner& owner, const std::vector<std::string>& segments) {
  for (const std::string& what : segments) {
    if (what != "control") VARVE_TRY(remove_segment(owner.path(what)));
  }
  // Last: whoever finds the others without it could not tell whose they are.
  return remove_segment(owner.control_path());
}

/// What these runs have in other folders than their control segments, but for ranks that live.
Status remove_spilled(const SegmentFamily& family, const std::vector<UniqueId>& runs,
                      const std::set<std::pair<UniqueId, uint32_t>>& alive) {
  Status first;
  for (const std::string& folder : family.spill_folders) {
    const Result<FoundSegments> found = list_segments(family, folder);
    if (!found.ok()) continue;  // then nothing of ours is there
    for (const auto& [run, ranks] : *found) {
      if (std::find(runs.begin(), runs.end(), run) == runs.end()) continue;
      for (const auto& [rank, segments] : ranks) {
        if (alive.contains({run, rank})) continue;
        for (const std::string& what : segments) {
          if (what == "control") continue;  // of a run that had all of its memory there
          const SegmentOwner owner{family, run, rank};
          const Status removed = remove_segment(folder + owner.path(what).substr(family.folder.size()));
          if (first.ok()) first = removed;
        }
      }
    }
  }
  return first;
}

}  // namespace

Result<std::unique_ptr<SnapshotReader>> LeftSnapshot::open() const {
  VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, SnapshotReader::open(owner, slot, SharedSegment::Access::read));
  if (reader->step() != checkpoint.step || reader->fill_number() != fill_number) {
    return Status::corrupt("a snapshot is not the one that its control segment announces", owner.slot_path(slot));
  }
  return reader;
}

Result<std::unique_ptr<SnapshotReader>> LeftSnapshot::open_verified() const {
  VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, open());
  VARVE_TRY(reader->verify());
  return reader;
}

Status LeftSnapshot::remove() const {
  const Result<ControlBlock> control = ControlBlock::open(owner, SharedSegment::Access::read_write);
  if (control.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(control.status());
  if (control->owner_alive()) return Status::busy("the process that made the snapshot lives", owner.slot_path(slot));
  const SlotNews news = control->slot(slot);
  if (news.step != checkpoint.step || news.fill_number != fill_number) return {};
  // Nobody finds it from here on, whatever becomes of its memory.
  control->cell(slot).cancel_fill();
  if (::unlink(path_on_machine(owner.slot_path(slot)).c_str()) != 0 && errno != ENOENT) {
    return Status::from_errno(errno, "remove the snapshot", owner.slot_path(slot));
  }
  return {};
}

std::vector<LeftSnapshot> LeftRuns::of_rank(uint32_t rank) const {
  std::vector<LeftSnapshot> own;
  std::copy_if(snapshots.begin(), snapshots.end(), std::back_inserter(own),
               [rank](const LeftSnapshot& snapshot) { return snapshot.owner.rank == rank; });
  return own;
}

Result<std::vector<LeftSnapshot>> find_snapshots(const std::vector<SegmentOwner>& owners) {
  std::vector<LeftSnapshot> all;
  for (const SegmentOwner& owner : owners) {
    const Result<ControlBlock> control = ControlBlock::open(owner, SharedSegment::Access::read);
    if (!control.ok() && !tells_nothing(control.status())) return not_looked_at(control.status());
    if (!control.ok()) continue;
    for (LeftSnapshot& snapshot : snapshots_in(owner, *control)) {
      snapshot.ranks_here = owners.size();
      all.push_back(std::move(snapshot));
    }
  }
  return all;
}

namespace {
/// The runs that have their memory in each of these folders, by place; the first one also has what is nobody's. In the
/// others, what comes without any control segment was spilled there by a run that has its own elsewhere.
Result<std::vector<FoundSegments>> list_places(std::span<const SegmentFamily> places) {
  std::vector<FoundSegments> found;
  for (const SegmentFamily& place : places) {
    Result<FoundSegments> here = list_segments(place, place.folder);
    if (here.status().code() == StatusCode::not_found) here = FoundSegments();
    VARVE_TRY(here.status());
    const auto has_control = [](const auto& rank) {
      return std::find(rank.second.begin(), rank.second.end(), "control") != rank.second.end();
    };
    const bool takes_all = found.empty();
    std::erase_if(*here, [&](const auto& run) {
      return !takes_all && std::none_of(run.second.begin(), run.second.end(), has_control);
    });
    found.push_back(std::move(*here));
  }
  return found;
}

/// Adds what runs other than `own` have left in one place.
Status add_left_runs(const SegmentFamily& family, const FoundSegments& found, const UniqueId& own, LeftRuns& left) {
  const auto add = [](std::vector<UniqueId>& runs, const UniqueId& run) {
    if (std::find(runs.begin(), runs.end(), run) == runs.end()) runs.push_back(run);
  };
  for (const auto& [run, ranks] : found) {
    if (run == own) continue;
    bool ours = false, has_ended = false;
    for (const auto& [rank, segments] : ranks) {
      VARVE_ASSIGN(FoundRank seen, look_at({family, run, rank}));
      if (seen.alive) {
        return Status::busy("the job is running already", fmt::format("rank {} on this node", rank),
                            "wait for its end, or give this one another job name");
      }
      ours = ours || seen.ours;
      has_ended = has_ended || seen.has_ended;
      for (LeftSnapshot& snapshot : seen.snapshots) snapshot.ranks_here = ranks.size();
      std::move(seen.snapshots.begin(), seen.snapshots.end(), std::back_inserter(left.snapshots));
    }
    if (ours) add(left.runs, run);
    if (has_ended) add(left.ended, run);
  }
  return {};
}
}  // namespace

Result<LeftRuns> find_left_runs(std::span<const SegmentFamily> places, const UniqueId& own) {
  VARVE_ASSIGN(const std::vector<FoundSegments> found, list_places(places));
  LeftRuns left;
  for (size_t i = 0; i < places.size(); ++i) VARVE_TRY(add_left_runs(places[i], found[i], own, left));
  std::stable_sort(left.snapshots.begin(), left.snapshots.end(),
                   [](const LeftSnapshot& a, const LeftSnapshot& b) { return a.checkpoint.step > b.checkpoint.step; });
  return left;
}

Result<MemoryUse> memory_use(const SegmentFamily& family) {
  VARVE_ASSIGN(const FoundSegments found, list_segments(family, family.folder));
  MemoryUse use;
  for (const auto& [run, ranks] : found) {
    for (const auto& [rank, segments] : ranks) {
      const SegmentOwner owner{family, run, rank};
      VARVE_ASSIGN(const FoundRank seen, look_at(owner));
      if (!seen.ours) continue;
      use.running = use.running || seen.alive;
      for (const std::string& what : segments) {
        struct stat status {};
        if (::stat(owner.path(what).c_str(), &status) == 0) use.bytes += static_cast<uint64_t>(status.st_blocks) * 512;
      }
      for (const LeftSnapshot& snapshot : seen.snapshots) {
        if (use.newest_step && snapshot.checkpoint.step <= *use.newest_step) continue;
        use.newest_step = snapshot.checkpoint.step;
        use.rank_count = snapshot.rank_count;
      }
    }
  }
  return use;
}

Status remove_left_runs(std::span<const SegmentFamily> places, const std::vector<UniqueId>& runs) {
  VARVE_ASSIGN(const std::vector<FoundSegments> found, list_places(places));
  std::set<std::pair<UniqueId, uint32_t>> alive;
  for (size_t i = 0; i < places.size(); ++i) {
    for (const auto& [run, ranks] : found[i]) {
      for (const auto& [rank, segments] : ranks) {
        VARVE_ASSIGN(const FoundRank seen, look_at({places[i], run, rank}));
        if (seen.alive) alive.insert({run, rank});
      }
    }
  }
  Status first;
  const auto note = [&first](const Status& status) {
    if (first.ok()) first = status;
  };
  // Before the control segments, without which nobody would know whose it is.
  for (const SegmentFamily& place : places) note(remove_spilled(place, runs, alive));
  for (size_t i = 0; i < places.size(); ++i) {
    for (const auto& [run, ranks] : found[i]) {
      if (std::find(runs.begin(), runs.end(), run) == runs.end()) continue;
      for (const auto& [rank, segments] : ranks) {
        if (!alive.contains({run, rank})) note(remove_rank({places[i], run, rank}, segments));
      }
    }
  }
  return first;
}

}  // namespace varve
