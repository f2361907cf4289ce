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
  MergedRuns(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
             const std::function<bool(const ArenaId&)>& is_there);

  /// Of all that is kept; entries refer to it.
  const std::vector<ArenaId>& arenas() const { return arenas_; }
  uint64_t entry_count() const { return entry_count_; }
  /// To be called entry_count() times.
  ChunkIndexEntry next();

 private:
  static constexpr uint32_t kDropped = UINT32_MAX;
  using Head = std::pair<uint64_t, size_t>;  // prefix, run

  bool kept(size_t run, uint64_t position) const;
  /// Goes on to a run's next entry that is kept.
  void advance(size_t run);

  const std::vector<std::shared_ptr<const ChunkIndexRun>> runs_;
  const RunScope scope_;
  std::vector<ArenaId> arenas_;
  std::vector<std::vector<uint32_t>> ordinals_;  ///< of each run's arenas in arenas_, or kDropped
  std::vector<uint64_t> positions_;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads_;
  uint64_t entry_count_ = 0;
};

}  // namespace varve
