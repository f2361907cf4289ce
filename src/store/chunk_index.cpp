#include "store/chunk_index.h"

#include <algorithm>

#include "core/parallel.h"
#include "store/chunk_lookup.h"

namespace varve {

namespace {
/// A cached pack table is about 6 KiB with the default sizes of packs and chunks.
constexpr uint64_t kPackTableBytesTypical = 8_KiB;
/// Of places that are worked on at the same time: each waits for its server.
constexpr size_t kThreadsMax = 16;
/// How often to look again when runs were merged between two looks.
constexpr int kLooksMax = 3;
}  // namespace

ChunkIndex::ChunkIndex(const Store& store, std::set<ArenaId> excluded, uint64_t memory_bytes, IndexFolder::Use use)
    : store_(store), excluded_(std::move(excluded)), memory_bytes_(memory_bytes), use_(use) {
  const uint32_t places = store.spread().places();
  if (places == 1 && store.chunk_lookup() != nullptr) return;
  for (uint32_t place = 0; place < places; ++place) {
    const RunScope scope = places == 1 ? RunScope::all() : RunScope::of_place(place, places);
    folders_.emplace_back(store.fs(), store.index_path(place), store.id(), IndexFolder::Options{use, scope});
  }
}

Result<std::unique_ptr<ChunkIndex>> ChunkIndex::open(const Store& store, std::set<ArenaId> excluded,
                                                     uint64_t memory_bytes) {
  const bool asks = store.chunk_lookup() != nullptr;
  std::unique_ptr<ChunkIndex> index(new ChunkIndex(store, std::move(excluded), memory_bytes,
                                                   asks ? IndexFolder::Use::cover : IndexFolder::Use::look_up));
  VARVE_TRY(index->bring_up_to_date());
  return index;
}

Status ChunkIndex::complete(const Store& store, uint64_t memory_bytes) {
  ChunkIndex index(store, {}, memory_bytes, IndexFolder::Use::cover);
  VARVE_TRY(index.bring_up_to_date());
  return index.incomplete();
}

template <class Act>
Status ChunkIndex::at_all_places(const Act& act) {
  return parallel_for(folders_.size(), std::min(folders_.size(), kThreadsMax),
                      [&](size_t place) -> Status { return act(static_cast<uint32_t>(place), folders_[place]); });
}

Result<std::set<ArenaId>> ChunkIndex::load() {
  std::set<ArenaId> present;
  for (int look = 0; look < kLooksMax; ++look) {
    // Runs are listed first: one that names an arena of which nothing is seen afterwards names one that is gone, and
    // not one that has just come.
    VARVE_TRY(at_all_places([](uint32_t, IndexFolder& folder) { return folder.list(); }));
    VARVE_ASSIGN(const std::vector<ArenaId> arenas, store_.list_arenas());
    present = {arenas.begin(), arenas.end()};
    VARVE_TRY(at_all_places([&](uint32_t, IndexFolder& folder) { return folder.load(&present); }));
    // What the server of a place has merged meanwhile need not be indexed again.
    const bool overtaken =
        std::any_of(folders_.begin(), folders_.end(), [](const IndexFolder& folder) { return folder.overtaken(); });
    if (use_ == IndexFolder::Use::look_up || !overtaken) break;
  }
  return present;
}

Status ChunkIndex::bring_up_to_date() {
  if (folders_.empty()) return {};
  VARVE_ASSIGN(const std::set<ArenaId> present, load());
  Wanted missing(folders_.size());
  for (size_t place = 0; place < folders_.size(); ++place) {
    const std::set<ArenaId> covered = folders_[place].covered();
    std::set_difference(present.begin(), present.end(), covered.begin(), covered.end(),
                        std::inserter(missing[place], missing[place].end()));
  }
  incomplete_ = index_arenas(missing);
  const Status tidied = at_all_places([&](uint32_t, IndexFolder& folder) {
    if (use_ == IndexFolder::Use::cover) return folder.tell_gone(present);
    return folder.merge_wanted() ? folder.merge(&present) : Status();
  });
  tidied.ignore("an index that stays in many runs, or names what is gone, is slower, not wrong");
  return {};
}

Status ChunkIndex::index_arenas(const Wanted& missing) {
  std::set<ArenaId> all;
  for (const std::set<ArenaId>& wanted : missing) all.insert(wanted.begin(), wanted.end());
  const size_t entries_max = std::max<size_t>(memory_bytes_ / sizeof(ChunkIndexEntry), 65'536);
  std::vector<ChunkIndexEntry> entries;
  std::vector<ArenaId> table;
  for (const ArenaId& id : all) {
    Result<std::shared_ptr<ArenaReader>> reader = store_.arena(id);
    if (!reader.ok()) continue;  // verify reports it; here it only means that nothing is found in it
    uint64_t chunk_count = 0;
    for (const FrameEntry& pack : (*reader)->index().packs)
      chunk_count += std::min<uint64_t>(pack.chunk_count, kPackBytesMax);
    if (!table.empty() && entries.size() + chunk_count > entries_max) {
      VARVE_TRY(write(table, std::move(entries), &missing));
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
  return write(table, std::move(entries), &missing);
}

Status ChunkIndex::add(const std::vector<ArenaId>& arenas, std::vector<ChunkIndexEntry> entries) {
  return write(arenas, std::move(entries), nullptr);
}

Status ChunkIndex::write(const std::vector<ArenaId>& arenas, std::vector<ChunkIndexEntry> entries,
                         const Wanted* wanted) {
  if (arenas.empty() || folders_.empty()) return {};
  std::sort(entries.begin(), entries.end());
  const ArenaSpread& spread = store_.spread();
  return at_all_places([&](uint32_t place, IndexFolder&) {
    auto begin_of = [&](uint32_t first) {
      return std::partition_point(entries.begin(), entries.end(), [&](const ChunkIndexEntry& entry) {
        return spread.place_of_prefix(entry.prefix) < first;
      });
    };
    return write_to(place, arenas, {begin_of(place), begin_of(place + 1)},
                    wanted == nullptr ? nullptr : &(*wanted)[place]);
  });
}

Status ChunkIndex::write_to(uint32_t place, const std::vector<ArenaId>& arenas,
                            std::span<const ChunkIndexEntry> entries, const std::set<ArenaId>* wanted) {
  constexpr uint32_t kUnwanted = UINT32_MAX;
  std::vector<ArenaId> table;
  std::vector<uint32_t> ordinals;
  for (const ArenaId& id : arenas) {
    const bool is_wanted = wanted == nullptr || wanted->contains(id);
    ordinals.push_back(is_wanted ? static_cast<uint32_t>(table.size()) : kUnwanted);
    if (is_wanted) table.push_back(id);
  }
  if (table.empty()) return {};
  auto is_wanted = [&](const ChunkIndexEntry& entry) { return ordinals[entry.arena] != kUnwanted; };
  const auto count = static_cast<uint64_t>(std::count_if(entries.begin(), entries.end(), is_wanted));
  auto at = entries.begin();
  return folders_[place].add(std::move(table), count, [&] {
    at = std::find_if(at, entries.end(), is_wanted);
    ChunkIndexEntry entry = *at++;
    entry.arena = ordinals[entry.arena];
    return entry;
  });
}

uint64_t ChunkIndex::entry_count() const {
  uint64_t sum = 0;
  for (const IndexFolder& folder : folders_) sum += folder.entry_count();
  return sum;
}

size_t ChunkIndex::run_count() const {
  size_t sum = 0;
  for (const IndexFolder& folder : folders_) sum += folder.run_count();
  return sum;
}

std::vector<Status> ChunkIndex::healed() const {
  std::vector<Status> all;
  for (const IndexFolder& folder : folders_) all.insert(all.end(), folder.healed().begin(), folder.healed().end());
  return all;
}

void ChunkIndex::prefetch(uint64_t prefix) const { folders_[store_.spread().place_of_prefix(prefix)].prefetch(prefix); }

void ChunkIndex::find(uint64_t prefix, std::vector<ChunkCandidate>& candidates) const {
  folders_[store_.spread().place_of_prefix(prefix)].find(prefix, candidates);
}

bool ChunkIndex::worth_asking(uint64_t prefix) const {
  return folders_.empty() || folders_[store_.spread().place_of_prefix(prefix)].entry_count() > 0;
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
  Question asked = question(prefixes);
  VARVE_TRY(ask(lookup(), asked));
  take(asked);
  return {};
}

ChunkIndex::Cursor::Question ChunkIndex::Cursor::question(std::span<const uint64_t> prefixes) const {
  Question question;
  if (lookup() == nullptr) return question;
  std::vector<uint64_t>& unknown = question.prefixes;
  for (const uint64_t prefix : prefixes) {
    if (!beside_.contains(prefix) && index_.worth_asking(prefix)) unknown.push_back(prefix);
  }
  std::sort(unknown.begin(), unknown.end());
  unknown.erase(std::unique(unknown.begin(), unknown.end()), unknown.end());
  return question;
}

Status ChunkIndex::Cursor::ask(ChunkLookup* lookup, Question& question) {
  question.counts.resize(question.prefixes.size());
  if (question.prefixes.empty()) return {};
  return lookup->find(question.prefixes, question.counts, question.candidates);
}

void ChunkIndex::Cursor::take(const Question& answered) {
  asked_.clear();
  size_t at = 0;
  for (size_t i = 0; i < answered.prefixes.size(); ++i) {
    for (uint32_t k = 0; k < answered.counts[i] && at < answered.candidates.size(); ++k)
      asked_.emplace_back(answered.prefixes[i], answered.candidates[at++]);
  }
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
