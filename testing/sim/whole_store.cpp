#include "sim/whole_store.h"

#include <fmt/format.h>

#include <string>

#include "core/memory_file_system.h"
#include "engine/transfer.h"
#include "sim/oracle.h"
#include "store/prune.h"
#include "store/verify.h"

namespace varve::sim {

namespace {
uint64_t fresh_bytes(const Store& store) {
  MemoryFileSystem files;
  if (!Store::create(files, "/fresh").ok()) fail("a store in memory cannot be made");
  auto fresh = Store::open(files, "/fresh").value();
  TransferOptions options;
  options.thread_count = 1;
  for (const SetName& name : Catalog(store).sets().value()) {
    // What is one node's share of a set is copied as a part of it.
    const bool is_whole = Catalog(store).read(name)->has_all_ranks();
    const Status copied = is_whole ? copy_set(store, *fresh, name, options).status()
                                   : copy_part(store, *fresh, {name, {}, 0, 2}, options).status();
    if (!copied.ok()) fail("a set cannot be copied to a fresh store: " + copied.to_string());
  }
  return arena_bytes(*fresh).value();
}
}  // namespace

void check_one_prune(const Store& store, uint64_t overhead_bytes) {
  PruneOptions options;
  options.live_share_min = 1;
  options.part_seconds_max = 0;
  const Result<PruneReport> pruned = prune_store(store, options);
  if (!pruned.ok()) fail("the last prune failed: " + pruned.status().to_string());
  store.drop_arena_cache();
  for (const std::string& folder : {store.writers_path(), store.condemned_path()}) {
    const auto left = store.backend().list(folder);
    if (left.ok() && !left->empty()) fail(fmt::format("one prune leaves {} in {}", left->front().name, folder));
  }
  const uint64_t bytes = arena_bytes(store).value(), fresh = fresh_bytes(store);
  const uint64_t sets = Catalog(store).sets()->size();
  if (static_cast<double>(bytes) <=
      1.05 * static_cast<double>(fresh) + static_cast<double>(overhead_bytes * (sets + 1))) {
    return;
  }
  fail(fmt::format("one prune leaves {} bytes of {} sets in {}; a fresh store has {}", bytes, sets, store.path(),
                   fresh));
}

void check_is_whole(const Store& store) {
  const Result<VerifyReport> report = verify_store(store, /*deep=*/true);
  if (!report.ok()) fail("a store cannot be verified: " + report.status().to_string());
  for (const Damage& damage : report->damages) {
    if (!damage.affected_sets.empty()) fail("a set is damaged: " + damage.what.to_string());
  }
}

}  // namespace varve::sim
