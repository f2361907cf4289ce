#include "store/merged_runs.h"

#include <set>

#include "store/arena_spread.h"

namespace varve {

MergedRuns::MergedRuns(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
                       const std::function<bool(const ArenaId&)>& is_there)
    : runs_(std::move(runs)), scope_(scope), ordinals_(runs_.size()), positions_(runs_.size(), 0) {
  std::set<ArenaId> taken;
  for (size_t i = 0; i < runs_.size(); ++i) {
    for (const ArenaId& id : runs_[i]->arenas()) {
      const bool keep = is_there(id) && taken.insert(id).second;
      ordinals_[i].push_back(keep ? static_cast<uint32_t>(arenas_.size()) : kDropped);
      if (keep) arenas_.push_back(id);
    }
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    for (uint64_t position = 0; position < runs_[i]->entry_count(); ++position)
      entry_count_ += kept(i, position) ? 1 : 0;
    advance(i);
  }
}

bool MergedRuns::kept(size_t run, uint64_t position) const {
  const ChunkIndexEntry entry = runs_[run]->entry(position);
  if (entry.arena >= ordinals_[run].size() || ordinals_[run][entry.arena] == kDropped) return false;
  return scope_.kind != RunScope::Kind::place ||
         ArenaSpread(scope_.places).place_of_prefix(entry.prefix) == scope_.place;
}

void MergedRuns::advance(size_t run) {
  while (positions_[run] < runs_[run]->entry_count() && !kept(run, positions_[run])) ++positions_[run];
  if (positions_[run] < runs_[run]->entry_count()) heads_.emplace(runs_[run]->entry(positions_[run]).prefix, run);
}

ChunkIndexEntry MergedRuns::next() {
  // A run that somebody changes while it is read may have fewer than it had.
  if (heads_.empty()) return {UINT64_MAX, kDropped, 0, 0};
  const size_t run = heads_.top().second;
  heads_.pop();
  ChunkIndexEntry entry = runs_[run]->entry(positions_[run]++);
  entry.arena = entry.arena < ordinals_[run].size() ? ordinals_[run][entry.arena] : kDropped;
  advance(run);
  return entry;
}

}  // namespace varve
