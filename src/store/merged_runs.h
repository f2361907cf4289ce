#pragma once

#include <functional>
#include <memory>
#include <queue>
#include <vector>

#include "store/chunk_index_run.h"

namespace varve {

/// The entries of several runs as those of one, in order: of each arena from the first run that names it, and only what
/// belongs to `scope` and to arenas that `is_there`.
class MergedRuns {
 public:
  static Result<MergedRuns> open(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
                                 const std::function<bool(const ArenaId&)>& is_there);

  /// Of all that is kept; entries refer to it.
  const std::vector<ArenaId>& arenas() const { return arenas_; }
  uint64_t entry_count() const { return entry_count_; }
  /// To be called entry_count() times.
  Result<ChunkIndexEntry> next();

 private:
  static constexpr uint32_t kDropped = UINT32_MAX;
  using Head = std::pair<uint64_t, size_t>;  // prefix, run

  /// A run as it is gone through, some entries at a time.
  struct Reading {
    std::shared_ptr<const ChunkIndexRun> run;
    std::vector<uint32_t> ordinals{};  ///< of its arenas in arenas_, or kDropped
    std::vector<ChunkIndexEntry> entries{};
    uint64_t first = 0;  ///< position of entries.front()
    size_t at = 0;       ///< in entries
    const ChunkIndexEntry& entry() const { return entries[at]; }
  };

  explicit MergedRuns(const RunScope& scope) : scope_(scope) {}
  Status begin(const std::function<bool(const ArenaId&)>& is_there);
  bool kept(const Reading& reading) const;
  /// Whether there is an entry at `at`, which is read if need be.
  static Result<bool> fill(Reading& reading);
  /// Goes on to a run's next entry that is kept, at or after the one where it is.
  Status advance(size_t run);

  RunScope scope_;
  std::vector<Reading> runs_;
  std::vector<ArenaId> arenas_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  uint64_t entry_count_ = 0;
};

}  // namespace varve
