#include "store/merged_runs.h"

#include <algorithm>
#include <set>

#include "store/arena_spread.h"

namespace varve {

namespace {
constexpr uint64_t kEntriesRead = 8192;
}  // namespace

Result<MergedRuns> MergedRuns::open(std::vector<std::shared_ptr<const ChunkIndexRun>> runs, const RunScope& scope,
                                    const std::function<bool(const ArenaId&)>& is_there) {
  MergedRuns merged(scope);
  for (std::shared_ptr<const ChunkIndexRun>& run : runs) merged.runs_.push_back({.run = std::move(run)});
  VARVE_TRY(merged.begin(is_there));
  return merged;
}

Status MergedRuns::begin(const std::function<bool(const ArenaId&)>& is_there) {
  std::set<ArenaId> taken;
  for (Reading& reading : runs_) {
    for (const ArenaId& id : reading.run->arenas()) {
      const bool keep = is_there(id) && taken.insert(id).second;
      reading.ordinals.push_back(keep ? static_cast<uint32_t>(arenas_.size()) : kDropped);
      if (keep) arenas_.push_back(id);
    }
  }
  for (size_t i = 0; i < runs_.size(); ++i) {
    Reading& reading = runs_[i];
    for (;; ++reading.at) {
      VARVE_ASSIGN(const bool more, fill(reading));
      if (!more) break;
      entry_count_ += kept(reading) ? 1 : 0;
    }
    reading.entries.clear();
    reading.first = reading.at = 0;
    VARVE_TRY(advance(i));
  }
  return {};
}

bool MergedRuns::kept(const Reading& reading) const {
  const ChunkIndexEntry& entry = reading.entry();
  if (entry.arena >= reading.ordinals.size() || reading.ordinals[entry.arena] == kDropped) return false;
  return scope_.kind != RunScope::Kind::place ||
         ArenaSpread(scope_.places).place_of_prefix(entry.prefix) == scope_.place;
}

Result<bool> MergedRuns::fill(Reading& reading) {
  if (reading.at < reading.entries.size()) return true;
  reading.first += reading.entries.size();
  reading.at = 0;
  VARVE_ASSIGN(reading.entries,
               reading.run->entries(reading.first, std::min(kEntriesRead, reading.run->entry_count() - reading.first)));
  return !reading.entries.empty();
}

Status MergedRuns::advance(size_t run) {
  Reading& reading = runs_[run];
  for (;; ++reading.at) {
    VARVE_ASSIGN(const bool more, fill(reading));
    if (!more) return {};
    if (kept(reading)) break;
  }
  heads_.emplace(reading.entry().prefix, run);
  return {};
}

Result<ChunkIndexEntry> MergedRuns::next() {
  if (heads_.empty()) return Status::corrupt("an index run changed while it was merged");
  const size_t run = heads_.top().second;
  heads_.pop();
  Reading& reading = runs_[run];
  ChunkIndexEntry entry = reading.entry();
  entry.arena = reading.ordinals[entry.arena];
  ++reading.at;
  VARVE_TRY(advance(run));
  return entry;
}

}  // namespace varve
