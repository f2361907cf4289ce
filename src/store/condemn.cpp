#include "store/condemn.h"

namespace varve {

Status condemn_arenas(const Store& store, const std::set<ArenaId>& arenas) {
  if (arenas.empty()) return {};
  FileSystem& fs = store.fs();
  VARVE_ASSIGN(const std::unique_ptr<PowerWatch> power, fs.watch_power());
  for (const ArenaId& arena : arenas) {
    const Status there = fs.stat(store.arena_path(arena)).status();
    if (there.code() == StatusCode::not_found) continue;
    VARVE_TRY(there);
    // Empty: the prune that takes it up waits for all writers that it finds then.
    const Status marked = fs.create(join_path(store.condemned_path(), arena.hex())).status();
    if (!marked.ok() && marked.code() != StatusCode::already_exists) return marked;
  }
  return fs.sync_directory(store.condemned_path());
}

}  // namespace varve
