#include "monitor/store_facts.h"

#include <algorithm>
#include <vector>

#include "core/step_text.h"
#include "core/sync.h"
#include "store/catalog.h"
#include "store/needs.h"
#include "store/prune.h"

namespace varve {

Result<StoreFacts> look_at_store(const Store& store) {
  StoreFacts facts{.looked_at = calendar_time()};
  VARVE_ASSIGN(facts.arena_bytes, arena_bytes(store));
  if (const Result<uint64_t> free = store.backend().free_bytes(store.arenas_path()); free.ok())
    facts.free_bytes = *free;
  const Catalog catalog(store);
  VARVE_ASSIGN(const std::vector<std::string> jobs, catalog.jobs());
  for (const std::string& job : jobs) {
    VARVE_ASSIGN(const std::vector<uint64_t> steps, catalog.steps(job));
    if (steps.empty()) continue;
    const SetName newest{job, steps.back()};
    // One that was dropped just now, or is damaged, says nothing.
    const Result<SetRecord> record = catalog.read(newest);
    if (record.ok()) facts.jobs[job] = {steps.size(), newest, record->created_s};
  }
  return facts;
}

Result<uint64_t> garbage_bytes(const Store& store, ProgressSink& progress) {
  // Arenas that come later are of sets that are not known here.
  VARVE_ASSIGN(const std::vector<ArenaId> arenas, store.list_arenas());
  VARVE_ASSIGN(const Needs needs, needs_of_sets(store, /*certain=*/false, progress));
  double garbage = 0;
  VARVE_TRY(each_arena(store, arenas, [&](const ArenaId&, const Result<std::shared_ptr<ArenaReader>>& arena) {
    if (progress.cancelled()) return Status::cancelled();
    if (!arena.ok()) return arena.status().code() == StatusCode::not_found ? Status() : arena.status();
    double bytes = 0;
    for (const auto* entries : {&(*arena)->index().packs, &(*arena)->index().nodes}) {
      for (const FrameEntry& entry : *entries) bytes += frame_bytes(entry);
    }
    garbage += std::max(0.0, bytes - needed_bytes(**arena, needs));
    return Status();
  }));
  return static_cast<uint64_t>(garbage);
}

void tell(const StoreFacts& facts, Metrics& metrics) {
  const auto number = [](auto value) { return static_cast<double>(value); };
  metrics.gauge("varve_store_updated_timestamp_seconds", "When the store was looked at.").sample(facts.looked_at);
  metrics.gauge("varve_store_arena_bytes", "What the store's arenas take.").sample(number(facts.arena_bytes));
  metrics.gauge("varve_store_free_bytes", "What may still be written where the store lies.");
  if (facts.free_bytes) metrics.sample(number(*facts.free_bytes));
  metrics.gauge("varve_store_sets", "Sets of a job.");
  for (const auto& [name, job] : facts.jobs) metrics.sample(number(job.set_count), {{"job", name}});
  metrics.gauge("varve_store_newest_step", "The step of a job's newest set.");
  for (const auto& [name, job] : facts.jobs) {
    const uint64_t step = job.newest.step;
    metrics.sample(time_of_step(step).value_or(number(step)), {{"job", name}});
  }
  metrics.gauge("varve_store_newest_timestamp_seconds", "When a job's newest set was saved.");
  for (const auto& [name, job] : facts.jobs) metrics.sample(number(job.newest_saved_s), {{"job", name}});
}

void tell_garbage(uint64_t bytes, Metrics& metrics) {
  metrics.gauge("varve_store_garbage_bytes", "What of the arenas no set needs; a prune gives most of it back.")
      .sample(static_cast<double>(bytes));
}

}  // namespace varve
