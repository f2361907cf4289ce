#include "snapshot/snapshot_discovery.h"

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
#include "snapshot/control_block.h"

namespace varve {
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

/// Whether the process that made a control segment, which need not make sense, still has it open.
bool is_locked(const SegmentOwner& owner) {
  const Result<SharedSegment> segment = SharedSegment::open(owner.control_path(), SharedSegment::Access::read);
  return segment.ok() && segment->creator_holds_lock();
}

/// A rank of another run: whether it lives, and what it left if not.
struct FoundRank {
  bool alive = false;
  bool ours = true;  ///< files of another user may have any name
  std::vector<LeftSnapshot> snapshots;
};

FoundRank look_at(const SegmentOwner& owner) {
  FoundRank rank;
  const Result<ControlBlock> control = ControlBlock::open(owner, SharedSegment::Access::read);
  if (!control.ok()) {
    rank.ours = control.status().code() != StatusCode::permission_denied;
    // Of another version, or damaged: then only the lock tells. Without a control segment the rest is nobody's.
    rank.alive = rank.ours && is_locked(owner);
    return rank;
  }
  rank.alive = control->owner_alive();
  if (rank.alive) return rank;
  for (uint32_t slot = 0; slot < control->identity().slot_count; ++slot) {
    const SlotNews news = control->slot(slot);
    if (news.state == SlotState::empty || news.state == SlotState::filling || !news.restartable) continue;
    rank.snapshots.push_back({.owner = owner,
                              .rank_count = control->identity().rank_count,
                              .slot = slot,
                              .step = news.step,
                              .fill_number = news.fill_number});
  }
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

Result<std::unique_ptr<SnapshotReader>> LeftSnapshot::open_verified() const {
  VARVE_ASSIGN(std::unique_ptr<SnapshotReader> reader, SnapshotReader::open(owner, slot, SharedSegment::Access::read));
  if (reader->step() != step || reader->fill_number() != fill_number) {
    return Status::corrupt("a snapshot is not the one that its control segment announces", owner.slot_path(slot));
  }
  VARVE_TRY(reader->verify());
  return reader;
}

std::vector<LeftSnapshot> LeftRuns::of_rank(uint32_t rank) const {
  std::vector<LeftSnapshot> own;
  std::copy_if(snapshots.begin(), snapshots.end(), std::back_inserter(own),
               [rank](const LeftSnapshot& snapshot) { return snapshot.owner.rank == rank; });
  return own;
}

Result<LeftRuns> find_left_runs(const SegmentFamily& family, const UniqueId& own) {
  VARVE_ASSIGN(const FoundSegments found, list_segments(family, family.folder));
  LeftRuns left;
  for (const auto& [run, ranks] : found) {
    if (run == own) continue;
    bool ours = false;
    for (const auto& [rank, segments] : ranks) {
      FoundRank seen = look_at({family, run, rank});
      if (seen.alive) {
        return Status::busy("the job is running already", fmt::format("rank {} on this node", rank),
                            "wait for its end, or give this one another job name");
      }
      ours = ours || seen.ours;
      std::move(seen.snapshots.begin(), seen.snapshots.end(), std::back_inserter(left.snapshots));
    }
    if (ours) left.runs.push_back(run);
  }
  std::stable_sort(left.snapshots.begin(), left.snapshots.end(),
                   [](const LeftSnapshot& a, const LeftSnapshot& b) { return a.step > b.step; });
  return left;
}

Result<MemoryUse> memory_use(const SegmentFamily& family) {
  VARVE_ASSIGN(const FoundSegments found, list_segments(family, family.folder));
  MemoryUse use;
  for (const auto& [run, ranks] : found) {
    for (const auto& [rank, segments] : ranks) {
      const SegmentOwner owner{family, run, rank};
      const FoundRank seen = look_at(owner);
      if (!seen.ours) continue;
      use.running = use.running || seen.alive;
      for (const std::string& what : segments) {
        struct stat status {};
        if (::stat(owner.path(what).c_str(), &status) == 0) use.bytes += static_cast<uint64_t>(status.st_blocks) * 512;
      }
      for (const LeftSnapshot& snapshot : seen.snapshots) {
        if (use.newest_step && snapshot.step <= *use.newest_step) continue;
        use.newest_step = snapshot.step;
        use.rank_count = snapshot.rank_count;
      }
    }
  }
  return use;
}

Status remove_left_runs(const SegmentFamily& family, const std::vector<UniqueId>& runs) {
  VARVE_ASSIGN(const FoundSegments found, list_segments(family, family.folder));
  std::set<std::pair<UniqueId, uint32_t>> alive;
  for (const auto& [run, ranks] : found) {
    for (const auto& [rank, segments] : ranks) {
      if (look_at({family, run, rank}).alive) alive.insert({run, rank});
    }
  }
  // Before the control segments, without which nobody would know whose it is.
  Status first = remove_spilled(family, runs, alive);
  for (const auto& [run, ranks] : found) {
    if (std::find(runs.begin(), runs.end(), run) == runs.end()) continue;
    for (const auto& [rank, segments] : ranks) {
      if (alive.contains({run, rank})) continue;
      const Status status = remove_rank({family, run, rank}, segments);
      if (first.ok()) first = status;
    }
  }
  return first;
}

}  // namespace varve
