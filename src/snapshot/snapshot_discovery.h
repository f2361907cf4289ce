#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "snapshot/segment_names.h"
#include "snapshot/snapshot_reader.h"

namespace varve {

/// A snapshot that a dead run left on this node. Its checksums have not been looked at yet.
struct LeftSnapshot {
  SegmentOwner owner;
  uint32_t rank_count = 0;  ///< of that run
  uint32_t slot = 0;
  uint64_t step = 0;
  uint64_t fill_number = 0;

  /// Opens and verifies it: corrupt unless all of it is intact.
  Result<std::unique_ptr<SnapshotReader>> open_verified() const;
};

/// What dead runs of a job left on this node.
struct LeftRuns {
  std::vector<UniqueId> runs;
  std::vector<LeftSnapshot> snapshots;  ///< that are complete; newest step first

  /// A rank's, newest first.
  std::vector<LeftSnapshot> of_rank(uint32_t rank) const;
};

/// Looks through the folder for runs of this family other than `own`. busy: one of them lives, or may ("job is running
/// already"). What cannot be made sense of belongs to its run, and offers no snapshot.
Result<LeftRuns> find_left_runs(const SegmentFamily& family, const UniqueId& own);

/// What a job has in the memory of this node.
struct MemoryUse {
  uint64_t bytes = 0;
  bool running = false;                 ///< a run of the job lives; if it began with it, what it has is not told
  std::optional<uint64_t> newest_step;  ///< that a dead run left
  uint32_t rank_count = 0;              ///< of that run
};
Result<MemoryUse> memory_use(const SegmentFamily& family);

/// Removes all files of these runs, unless one of them lives again. Several ranks may do it at once.
Status remove_left_runs(const SegmentFamily& family, const std::vector<UniqueId>& runs);

}  // namespace varve
