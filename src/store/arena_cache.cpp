#include "store/arena_cache.h"

#include <algorithm>
#include <iterator>

#include "core/guarded.h"
#include "core/process.h"
#include "store/store.h"

namespace varve {

namespace {
/// Of the descriptors that this process may have.
constexpr size_t kOpenArenasShare = 8;
}  // namespace

ArenaCache::Opened ArenaCache::get(const ArenaId& id, const std::function<Opened()>& open) {
  uint64_t generation = 0;
  {
    const MutexLock lock(mutex_);
    while (opening_.contains(id)) opened_.wait(mutex_);
    generation = generation_;
    if (auto found = arenas_.find(id); found != arenas_.end()) {
      recently_used_.splice(recently_used_.begin(), recently_used_, found->second.used);
      return found->second.reader;
    }
    opening_.insert(id);
  }
  Opened opened = run_guarded(open);
  const MutexLock lock(mutex_);
  opening_.erase(id);
  opened_.notify_all();
  VARVE_ASSIGN(std::shared_ptr<ArenaReader> reader, std::move(opened));
  if (auto found = arenas_.find(id); found != arenas_.end()) return found->second.reader;
  if (generation != generation_) return reader;  // opened before the cache was dropped: not for those who come after
  recently_used_.push_front(id);
  arenas_.emplace(id, Kept{reader, recently_used_.begin()});
  if (arenas_.size() > descriptors_for(kArenasMax, kOpenArenasShare)) {
    arenas_.erase(recently_used_.back());
    recently_used_.pop_back();
  }
  return reader;
}

void ArenaCache::drop() {
  const MutexLock lock(mutex_);
  ++generation_;
  arenas_.clear();
  recently_used_.clear();
}

std::vector<ArenaId> ArenaDirectory::candidates(const Score& score) const {
  const MutexLock lock(mutex_);
  std::set<ArenaId> found = uncertain_;
  const auto [begin, end] = std::equal_range(entries_.begin(), entries_.end(), Entry{score.prefix(), 0},
                                             [](const Entry& a, const Entry& b) { return a.prefix < b.prefix; });
  for (auto entry = begin; entry != end; ++entry) found.insert(arenas_[entry->arena]);
  return {found.begin(), found.end()};
}

uint64_t ArenaDirectory::rounds() const {
  const MutexLock lock(mutex_);
  return rounds_;
}

Status ArenaDirectory::refresh(const Store& store, uint64_t rounds_seen) {
  const MutexLock refreshing(refresh_mutex_);
  if (done_round_ > rounds_seen) return {};
  std::set<ArenaId> known;
  uint64_t round = 0;
  {
    const MutexLock lock(mutex_);
    round = ++rounds_;
  }
  VARVE_ASSIGN(const std::vector<ArenaId> listed, store.list_arenas());
  {
    const MutexLock lock(mutex_);
    forget_gone({listed.begin(), listed.end()});
    known.insert(arenas_.begin(), arenas_.end());
  }
  std::vector<ArenaId> fresh;
  std::vector<Entry> entries;
  std::set<ArenaId> uncertain;
  std::vector<ArenaId> unknown;
  std::set_difference(listed.begin(), listed.end(), known.begin(), known.end(), std::back_inserter(unknown));
  VARVE_TRY(each_arena(store, unknown, [&](const ArenaId& id, const Result<std::shared_ptr<ArenaReader>>& arena) {
    // It may hold more than is seen now, so that it is looked into each time.
    if (!arena.ok() || !(*arena)->index_status().ok()) {
      uncertain.insert(id);
      return Status();
    }
    const auto ordinal = static_cast<uint32_t>(fresh.size());
    fresh.push_back(id);
    for (const auto* list : {&(*arena)->index().packs, &(*arena)->index().nodes}) {
      for (const FrameEntry& entry : *list) entries.push_back({entry.score.prefix(), ordinal});
    }
    return Status();
  }));
  take_in(fresh, std::move(entries), std::move(uncertain));
  done_round_ = round;
  return {};
}

void ArenaDirectory::forget_gone(const std::set<ArenaId>& present) {
  std::vector<uint32_t> ordinals;
  std::vector<ArenaId> kept;
  for (const ArenaId& id : arenas_) {
    const bool there = present.contains(id);
    ordinals.push_back(there ? static_cast<uint32_t>(kept.size()) : UINT32_MAX);
    if (there) kept.push_back(id);
  }
  if (kept.size() == arenas_.size()) return;
  std::erase_if(entries_, [&](const Entry& entry) { return ordinals[entry.arena] == UINT32_MAX; });
  for (Entry& entry : entries_) entry.arena = ordinals[entry.arena];
  arenas_ = std::move(kept);
}

void ArenaDirectory::take_in(const std::vector<ArenaId>& arenas, std::vector<Entry> entries,
                             std::set<ArenaId> uncertain) {
  auto by_prefix = [](const Entry& a, const Entry& b) { return a.prefix < b.prefix; };
  std::sort(entries.begin(), entries.end(), by_prefix);
  const MutexLock lock(mutex_);
  const auto first = static_cast<uint32_t>(arenas_.size());
  for (Entry& entry : entries) entry.arena += first;
  arenas_.insert(arenas_.end(), arenas.begin(), arenas.end());
  const auto middle = static_cast<ptrdiff_t>(entries_.size());
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  std::inplace_merge(entries_.begin(), entries_.begin() + middle, entries_.end(), by_prefix);
  uncertain_ = std::move(uncertain);
}

Result<std::vector<ArenaId>> ArenaDirectory::listing(const Store& store, std::span<const Score> scores) {
  VARVE_TRY(refresh(store, rounds()));
  std::set<ArenaId> arenas;
  for (const Score& score : scores) {
    const std::vector<ArenaId> listed = candidates(score);
    arenas.insert(listed.begin(), listed.end());
  }
  return std::vector<ArenaId>(arenas.begin(), arenas.end());
}

}  // namespace varve
