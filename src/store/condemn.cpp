#include "store/condemn.h"

namespace varve {

namespace {
/// How the copy in one arena is: not_found if there is none. `find_in` says where, `read` reads and checks it.
template <class Find, class Read>
Status state_of_copy(const Store& store, const ArenaId& id, const Find& find_in, const Read& read) {
  VARVE_ASSIGN(const std::shared_ptr<ArenaReader> arena, store.arena(id));
  if (const std::optional<size_t> ordinal = find_in(*arena)) return read(*arena, *ordinal);
  VARVE_TRY(arena->unread_status());
  VARVE_TRY(arena->index_status());
  return Status::not_found("the arena holds no copy", arena->path());
}

template <class Find, class Read>
CopyFaults faults_of(const Store& store, const Score& score, const ArenaId& hint, const Find& find_in,
                     const Read& read) {
  std::set<ArenaId> arenas = {hint};
  const Result<std::vector<ArenaId>> others = store.directory().listing(store, {&score, 1});
  if (others.ok()) arenas.insert(others->begin(), others->end());
  CopyFaults faults;
  for (const ArenaId& arena : arenas) {
    const Status state = state_of_copy(store, arena, find_in, read);
    if (state.ok() || state.code() == StatusCode::not_found) continue;
    (state.code() == StatusCode::corrupt ? faults.damaged : faults.unreadable).insert(arena);
  }
  return faults;
}
}  // namespace

CopyFaults faults_of_pack(const Store& store, const PackLink& link) {
  return faults_of(
      store, link.score, link.hint, [&](const ArenaReader& arena) { return arena.find_pack(link.score); },
      [](const ArenaReader& arena, size_t ordinal) -> Status {
        VARVE_ASSIGN(Pack pack, arena.read_pack(ordinal));
        return pack.verify_all();
      });
}

CopyFaults faults_of_node(const Store& store, const Score& score, const ArenaId& hint) {
  return faults_of(
      store, score, hint, [&](const ArenaReader& arena) { return arena.find_node(score); },
      [](const ArenaReader& arena, size_t ordinal) { return arena.read_node(ordinal).status(); });
}

Status condemn_arenas(const Store& store, const std::set<ArenaId>& arenas) {
  if (arenas.empty()) return {};
  Backend& backend = store.backend();
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, backend.watch_power());
  for (const ArenaId& arena : arenas) {
    const Status there = backend.status(store.arena_path(arena)).status();
    if (there.code() == StatusCode::not_found) continue;
    VARVE_TRY(there);
    // Empty: the prune that takes it up waits for all writers that it finds then.
    const Status marked = backend.records().hold(join_path(store.condemned_path(), arena.hex()), {}).status();
    if (!marked.ok() && marked.code() != StatusCode::already_exists) return marked;
  }
  return backend.settle(store.condemned_path());
}

void FoundDamage::note_pack(const PackLink& link) {
  const MutexLock lock(mutex_);
  if (packs_.size() < kNotedMax) packs_.try_emplace(link.score, link.hint);
}

void FoundDamage::note_node(const Score& score, const ArenaId& hint) {
  const MutexLock lock(mutex_);
  if (nodes_.size() < kNotedMax) nodes_.try_emplace(score, hint);
}

void FoundDamage::note_arena(const ArenaId& arena) {
  const MutexLock lock(mutex_);
  arenas_.insert(arena);
}

bool FoundDamage::empty() const {
  const MutexLock lock(mutex_);
  return packs_.empty() && nodes_.empty() && arenas_.empty();
}

Result<std::set<ArenaId>> FoundDamage::condemn(const Store& store) const {
  std::map<Score, ArenaId> packs, nodes;
  std::set<ArenaId> damaged;
  {
    const MutexLock lock(mutex_);
    packs = packs_;
    nodes = nodes_;
    damaged = arenas_;
  }
  for (const auto& [score, hint] : packs) damaged.merge(faults_of_pack(store, {score, hint}).damaged);
  for (const auto& [score, hint] : nodes) damaged.merge(faults_of_node(store, score, hint).damaged);
  VARVE_TRY(condemn_arenas(store, damaged));
  return damaged;
}

}  // namespace varve
