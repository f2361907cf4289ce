#include "store/arena_directory.h"

#include <algorithm>

#include "store/store.h"

namespace varve {

std::vector<ArenaId> ArenaDirectory::candidates(const Score& score) const {
  const std::lock_guard lock(mutex_);
  std::set<ArenaId> found = uncertain_;
  const auto [begin, end] = std::equal_range(entries_.begin(), entries_.end(), Entry{score.prefix(), 0},
                                             [](const Entry& a, const Entry& b) { return a.prefix < b.prefix; });
  for (auto entry = begin; entry != end; ++entry) found.insert(arenas_[entry->arena]);
  return {found.begin(), found.end()};
}

uint64_t ArenaDirectory::rounds() const {
  const std::lock_guard lock(mutex_);
  return rounds_;
}

Status ArenaDirectory::refresh(const Store& store, uint64_t rounds_seen) {
  const std::lock_guard refreshing(refresh_mutex_);
  if (done_round_ > rounds_seen) return {};
  std::set<ArenaId> known;
  uint64_t round = 0;
  {
    const std::lock_guard lock(mutex_);
    round = ++rounds_;
  }
  VARVE_ASSIGN(const std::vector<ArenaId> listed, store.list_arenas());
  {
    const std::lock_guard lock(mutex_);
    forget_gone({listed.begin(), listed.end()});
    known.insert(arenas_.begin(), arenas_.end());
  }
  std::vector<ArenaId> fresh;
  std::vector<Entry> entries;
  std::set<ArenaId> uncertain;
  for (const ArenaId& id : listed) {
    if (known.contains(id)) continue;
    const Result<std::shared_ptr<ArenaReader>> arena = store.arena(id);
    // It may hold more than is seen now, so that it is looked into each time.
    if (!arena.ok() || !(*arena)->index_status().ok()) {
      uncertain.insert(id);
      continue;
    }
    const auto ordinal = static_cast<uint32_t>(fresh.size());
    fresh.push_back(id);
    for (const auto* list : {&(*arena)->index().packs, &(*arena)->index().nodes}) {
      for (const FrameEntry& entry : *list) entries.push_back({entry.score.prefix(), ordinal});
    }
  }
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
  const std::lock_guard lock(mutex_);
  const auto first = static_cast<uint32_t>(arenas_.size());
  for (Entry& entry : entries) entry.arena += first;
  arenas_.insert(arenas_.end(), arenas.begin(), arenas.end());
  const auto middle = static_cast<ptrdiff_t>(entries_.size());
  entries_.insert(entries_.end(), entries.begin(), entries.end());
  std::inplace_merge(entries_.begin(), entries_.begin() + middle, entries_.end(), by_prefix);
  uncertain_ = std::move(uncertain);
}

}  // namespace varve
