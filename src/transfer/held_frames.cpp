#include "transfer/held_frames.h"

#include <algorithm>
#include <mutex>

#include "core/parallel.h"
#include "core/sync.h"
#include "store/pack_ranges.h"

namespace varve {

namespace {
class Search {
 public:
  Search(const SetNeeds& needs, bool read_packs) : needs_(needs), read_packs_(read_packs) {}

  Status look_in(const ArenaReader& arena, const ProgressSink& progress) {
    const ArenaIndex& index = arena.index();
    for (size_t i = 0; i < index.packs.size(); ++i) {
      if (progress.cancelled()) return Status::cancelled();
      const auto need = needs_.packs.find(index.packs[i].score);
      if (need == needs_.packs.end() || has_pack(need->first)) continue;
      if (!holds_ranges(arena, i, need->second.ranges)) continue;
      if (read_packs_ && !reads_ranges(arena, i, need->second.ranges)) continue;
      const std::lock_guard lock(mutex_);
      if (held_.packs.insert(need->first).second)
        held_.pack_bytes += kFrameHeaderBytes + index.packs[i].meta_bytes + index.packs[i].body_bytes;
    }
    for (size_t i = 0; i < index.nodes.size(); ++i) {
      const Score& score = index.nodes[i].score;
      if (!needs_.nodes.contains(score) || !arena.read_node(i).ok()) continue;
      const std::lock_guard lock(mutex_);
      held_.nodes.try_emplace(score, arena.id());
    }
    return {};
  }

  HeldFrames take() { return std::move(held_); }

 private:
  bool has_pack(const Score& score) {
    const std::lock_guard lock(mutex_);
    return held_.packs.contains(score);
  }

  const SetNeeds& needs_;
  const bool read_packs_;
  Mutex mutex_;  ///< guards held_; not held while reading
  HeldFrames held_;
};
}  // namespace

Result<HeldFrames> find_held(const Store& store, const std::set<ArenaId>& excluded, const SetNeeds& needs,
                             bool read_packs, size_t thread_count, ProgressSink& progress) {
  std::vector<Score> scores;
  for (const auto& [score, need] : needs.packs) scores.push_back(score);
  for (const auto& [score, hint] : needs.nodes) scores.push_back(score);
  // Each of them is opened by its name now; where it was seen before only tells that it is worth it.
  VARVE_ASSIGN(std::vector<ArenaId> arenas, store.arenas_listing(scores));
  std::erase_if(arenas, [&](const ArenaId& id) { return excluded.contains(id); });
  Search search(needs, read_packs);
  const Status looked = parallel_for(arenas.size(), thread_count, [&](size_t i) -> Status {
    if (progress.cancelled()) return Status::cancelled();
    const Result<std::shared_ptr<ArenaReader>> arena = store.arena(arenas[i]);
    // What a damaged index leaves out is sent again: nothing new is to rest on such an arena.
    if (!arena.ok() || !(*arena)->index_status().ok()) return {};
    return search.look_in(**arena, progress);
  });
  VARVE_TRY(looked);
  return search.take();
}

}  // namespace varve
