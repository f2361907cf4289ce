#include "store/chunk_index.h"

#include <algorithm>
#include <queue>

#include "store/chunk_lookup.h"

namespace varve {

namespace {
constexpr size_t kRunsMax = 8;
/// A cached pack table is about 6 KiB with the default sizes of packs and chunks.
constexpr uint64_t kPackTableBytesTypical = 8_KiB;
}  // namespace

Result<std::unique_ptr<ChunkIndex>> ChunkIndex::open(const Store& store, std::set<ArenaId> excluded,
                                                     uint64_t memory_bytes) {
  std::unique_ptr<ChunkIndex> index(new ChunkIndex(store, std::move(excluded), memory_bytes));
  if (store.chunk_lookup() != nullptr) return index;
  // Runs are listed first: one that names an arena of which nothing is seen afterwards names one that is gone, and not
  // one that has just come.
  VARVE_ASSIGN(const std::vector<std::string> runs, index->list_runs());
  VARVE_ASSIGN(std::vector<ArenaId> arenas, store.list_arenas());
  const std::set<ArenaId> present(arenas.begin(), arenas.end());
  index->load_runs(runs, present);
  std::set<ArenaId> covered;
  for (const auto& run : index->runs_) covered.insert(run->arenas().begin(), run->arenas().end());
  std::vector<ArenaId> missing;
  std::set_difference(present.begin(), present.end(), covered.begin(), covered.end(), std::back_inserter(missing));
  VARVE_TRY(index->index_arenas(missing));
  // An index that stays in many runs is slower, not wrong.
  if (index->runs_.size() > kRunsMax) index->merge_runs().ignore("the runs are good as they are");
  return index;
}

Result<std::vector<std::string>> ChunkIndex::list_runs() const {
  std::vector<std::string> paths;
  Result<std::vector<DirectoryEntry>> entries = store_.fs().list(store_.index_path());
  if (entries.status().code() == StatusCode::not_found) {
    VARVE_TRY(store_.fs().create_directory(store_.index_path()));
    return paths;
  }
  VARVE_TRY(entries.status());
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name.ends_with(".run")) paths.push_back(join_path(store_.index_path(), entry.name));
  }
  return paths;
}

void ChunkIndex::load_runs(const std::vector<std::string>& paths, const std::set<ArenaId>& present) {
  FileSystem& fs = store_.fs();
  for (const std::string& path : paths) {
    Result<std::unique_ptr<ChunkIndexRun>> run = ChunkIndexRun::open(fs, path, store_.id());
    if (!run.ok()) {
      if (run.status().code() == StatusCode::not_found) continue;  // merged by another save just now
      healed_.push_back(run.status());
      fs.remove(path).ignore("it is rebuilt under another name");
      continue;
    }
    const std::vector<ArenaId>& arenas = (*run)->arenas();
    if (std::none_of(arenas.begin(), arenas.end(), [&](const ArenaId& id) { return present.contains(id); })) {
      fs.remove(path).ignore("it only names arenas that are gone");
      continue;
    }
    runs_.push_back(std::move(*run));
  }
}

Status ChunkIndex::index_arenas(const std::vector<ArenaId>& arenas) {
  const size_t entries_max = std::max<size_t>(memory_bytes_ / sizeof(ChunkIndexEntry), 65'536);
  std::vector<ChunkIndexEntry> entries;
  std::vector<ArenaId> table;
  for (const ArenaId& id : arenas) {
    Result<std::shared_ptr<ArenaReader>> reader = store_.arena(id);
    if (!reader.ok()) continue;  // verify reports it; here it only means that nothing is found in it
    uint64_t chunk_count = 0;
    for (const FrameEntry& pack : (*reader)->index().packs)
      chunk_count += std::min<uint64_t>(pack.chunk_count, kPackBytesMax);
    if (!table.empty() && entries.size() + chunk_count > entries_max) {
      VARVE_TRY(add(table, std::move(entries)));
      entries = {};
      table.clear();
    }
    const auto arena_ordinal = static_cast<uint32_t>(table.size());
    table.push_back(id);
    for (size_t pack = 0; pack < (*reader)->index().packs.size(); ++pack) {
      Result<PackMeta> meta = (*reader)->read_pack_meta(pack);
      if (!meta.ok()) continue;
      const std::vector<bool> held = meta->held();
      for (size_t chunk = 0; chunk < meta->chunks.size(); ++chunk) {
        if (!held[chunk]) continue;
        entries.push_back({meta->chunks[chunk].score.prefix(), arena_ordinal, static_cast<uint32_t>(pack),
                           static_cast<uint32_t>(chunk)});
      }
    }
  }
  return add(table, std::move(entries));
}

Status ChunkIndex::add(const std::vector<ArenaId>& arenas, std::vector<ChunkIndexEntry> entries) {
  if (arenas.empty() || store_.chunk_lookup() != nullptr) return {};
  std::sort(entries.begin(), entries.end());
  VARVE_ASSIGN(UniqueId name, UniqueId::random());
  const std::string path = join_path(store_.index_path(), name.hex() + ".run");
  size_t at = 0;
  Status written =
      write_index_run(store_.fs(), path, store_.id(), arenas, entries.size(), [&] { return entries[at++]; });
  if (!written.ok()) {
    store_.fs().remove(path + ".part").ignore("prune removes it");
    return written;
  }
  Result<std::unique_ptr<ChunkIndexRun>> run = ChunkIndexRun::open(store_.fs(), path, store_.id());
  // Merged by another save just now, or removed with its arenas by a prune: what it knew is found next time.
  if (run.status().code() == StatusCode::not_found) return {};
  VARVE_TRY(run.status());
  runs_.push_back(std::move(*run));
  return {};
}

Status ChunkIndex::merge_runs() {
  // The smaller half becomes one run: each entry is copied a number of times logarithmic in the size of the store.
  std::sort(runs_.begin(), runs_.end(),
            [](const auto& a, const auto& b) { return a->entry_count() < b->entry_count(); });
  const size_t merged_count = runs_.size() / 2 + 1;
  VARVE_ASSIGN(std::vector<ArenaId> present_list, store_.list_arenas());
  const std::set<ArenaId> present(present_list.begin(), present_list.end());

  std::vector<ArenaId> arenas;
  std::vector<std::vector<uint32_t>> ordinals(
      merged_count);  // of each run's arenas in the merged table; UINT32_MAX: gone
  std::set<ArenaId> taken;
  uint64_t entry_count = 0;
  for (size_t i = 0; i < merged_count; ++i) {
    for (const ArenaId& id : runs_[i]->arenas()) {
      const bool keep = present.contains(id) && taken.insert(id).second;
      ordinals[i].push_back(keep ? static_cast<uint32_t>(arenas.size()) : UINT32_MAX);
      if (keep) arenas.push_back(id);
    }
  }
  auto kept = [&](size_t run, uint64_t position) {
    uint32_t arena = runs_[run]->entry(position).arena;
    return arena < ordinals[run].size() && ordinals[run][arena] != UINT32_MAX;
  };
  using Head = std::pair<uint64_t, size_t>;  // prefix, run
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  std::vector<uint64_t> positions(merged_count, 0);
  auto advance = [&](size_t run) {
    while (positions[run] < runs_[run]->entry_count() && !kept(run, positions[run])) ++positions[run];
    if (positions[run] < runs_[run]->entry_count()) heads.emplace(runs_[run]->entry(positions[run]).prefix, run);
  };
  for (size_t i = 0; i < merged_count; ++i) {
    for (uint64_t position = 0; position < runs_[i]->entry_count(); ++position)
      entry_count += kept(i, position) ? 1 : 0;
    advance(i);
  }
  VARVE_ASSIGN(UniqueId name, UniqueId::random());
  const std::string path = join_path(store_.index_path(), name.hex() + ".run");
  VARVE_TRY(write_index_run(store_.fs(), path, store_.id(), arenas, entry_count, [&] {
    const size_t run = heads.top().second;
    heads.pop();
    ChunkIndexEntry entry = runs_[run]->entry(positions[run]++);
    entry.arena = ordinals[run][entry.arena];
    advance(run);
    return entry;
  }));
  VARVE_ASSIGN(std::unique_ptr<ChunkIndexRun> merged, ChunkIndexRun::open(store_.fs(), path, store_.id()));
  for (size_t i = 0; i < merged_count; ++i)
    store_.fs().remove(runs_[i]->path()).ignore("it is found again next time, and merged again");
  runs_.erase(runs_.begin(), runs_.begin() + static_cast<ptrdiff_t>(merged_count));
  runs_.push_back(std::move(merged));
  return {};
}

uint64_t ChunkIndex::entry_count() const {
  uint64_t sum = 0;
  for (const auto& run : runs_) sum += run->entry_count();
  return sum;
}

void ChunkIndex::prefetch(uint64_t prefix) const {
  for (const auto& run : runs_) run->prefetch(prefix);
}

void ChunkIndex::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  for (const auto& run : runs_) run->find(prefix, candidates);
}

template <class Take>
void ChunkIndex::Cursor::visit(const Score& score, size_t bytes, const Take& take) {
  find_candidates(score.prefix());
  for (const ChunkCandidate& candidate : candidates_) {
    const PackTable* found = table(candidate.arena, candidate.pack);
    if (found == nullptr || candidate.chunk >= found->chunks.size() || !found->held[candidate.chunk]) continue;
    const ChunkEntry& chunk = found->chunks[candidate.chunk];
    if (chunk.score == score && chunk.bytes == bytes && !take({found->link, found->offsets[candidate.chunk]})) return;
  }
}

std::optional<KnownChunk> ChunkIndex::Cursor::find(const Score& score, size_t bytes) {
  std::optional<KnownChunk> first;
  visit(score, bytes, [&](const KnownChunk& known) {
    first = known;
    return false;
  });
  return first;
}

std::vector<KnownChunk> ChunkIndex::Cursor::find_all(const Score& score, size_t bytes) {
  std::vector<KnownChunk> all;
  visit(score, bytes, [&](const KnownChunk& known) {
    all.push_back(known);
    return true;
  });
  return all;
}

Status ChunkIndex::Cursor::prefetch(std::span<const uint64_t> prefixes) {
  ChunkLookup* const lookup = index_.store_.chunk_lookup();
  if (lookup == nullptr) return {};
  asked_.clear();
  std::vector<uint64_t> unknown;
  for (const uint64_t prefix : prefixes) {
    if (!beside_.contains(prefix)) unknown.push_back(prefix);
  }
  if (unknown.empty()) return {};
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  std::vector<uint32_t> counts(unknown.size());
  std::vector<ChunkCandidate> found;
  VARVE_TRY(lookup->find(unknown, counts, found));
  size_t at = 0;
  for (size_t i = 0; i < unknown.size(); ++i) {
    for (uint32_t k = 0; k < counts[i] && at < found.size(); ++k) asked_.emplace_back(unknown[i], found[at++]);
  }
  return {};
}

void ChunkIndex::Cursor::find_candidates(uint64_t prefix) {
  candidates_.clear();
  if (!asks_ahead()) return index_.find(prefix, candidates_);
  if (const auto beside = beside_.find(prefix); beside != beside_.end()) candidates_.push_back(beside->second);
  auto found = std::lower_bound(asked_.begin(), asked_.end(), prefix,
                                [](const auto& entry, uint64_t wanted) { return entry.first < wanted; });
  for (; found != asked_.end() && found->first == prefix; ++found) candidates_.push_back(found->second);
}

void ChunkIndex::Cursor::remember_beside(const Key& key, const PackTable& table) {
  for (size_t i = 0; i < table.chunks.size(); ++i) {
    if (!table.held[i]) continue;
    beside_.emplace(table.chunks[i].score.prefix(), ChunkCandidate{key.first, key.second, static_cast<uint32_t>(i)});
  }
}

void ChunkIndex::Cursor::forget_oldest() {
  const auto oldest = tables_.find(recently_used_.back());
  if (asks_ahead() && oldest->second.table) {
    for (const ChunkEntry& chunk : oldest->second.table->chunks) {
      const auto beside = beside_.find(chunk.score.prefix());
      if (beside != beside_.end() && Key(beside->second.arena, beside->second.pack) == oldest->first)
        beside_.erase(beside);
    }
  }
  tables_.erase(oldest);
  recently_used_.pop_back();
}

const ChunkIndex::Cursor::PackTable* ChunkIndex::Cursor::table(const ArenaId& arena, uint32_t pack) {
  const Key key{arena, pack};
  if (auto found = tables_.find(key); found != tables_.end()) {
    recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
    return found->second.table.get();
  }
  std::unique_ptr<PackTable> table;
  if (!index_.excluded_.contains(arena)) {
    Result<std::shared_ptr<ArenaReader>> reader = index_.store_.arena(arena);
    if (reader.ok() && pack < (*reader)->index().packs.size()) {
      if (Result<PackMeta> meta = (*reader)->read_pack_meta(pack); meta.ok()) {
        table = std::make_unique<PackTable>();
        table->link = {meta->score, arena};
        table->held = meta->held();
        uint64_t offset = 0;
        for (const ChunkEntry& chunk : meta->chunks) {
          table->offsets.push_back(offset);
          offset += chunk.bytes;
        }
        table->chunks = std::move(meta->chunks);
      }
    }
  }
  recently_used_.push_front(key);
  const PackTable* result = table.get();
  if (result != nullptr && asks_ahead()) remember_beside(key, *result);
  tables_.emplace(key, Cached{std::move(table), recently_used_.begin()});
  if (tables_.size() > std::max<uint64_t>(index_.memory_bytes_ / kPackTableBytesTypical, 64)) forget_oldest();
  return result;
}

}  // namespace varve
