#include "runtime/rank_restart.h"

#include <fmt/format.h>

#include <algorithm>

#include "level/repair.h"
#include "store/catalog.h"
#include "store/condemn.h"

namespace varve {

std::vector<MemoryStep> memory_steps(const std::vector<LeftSnapshot>& all) {
  std::vector<MemoryStep> steps;
  steps.reserve(all.size());
  for (const LeftSnapshot& left : all) steps.push_back({left.owner.run, left.step, left.rank_count});
  return steps;
}

Status RankRestart::look(const RestartCandidate& candidate) {
  memory_.reset();
  stored_.reset();
  if (candidate.memory_run) return look_in_memory(candidate);
  level_ = candidate.level;
  shelf_ = &shelves_.at(level_);
  const Result<const Store*> opened = shelf_->open();
  if (!opened.ok()) {
    // Out of reach for this rank, it may be whole all the same.
    return Status::io_error(std::string(opened.status().message()), std::string(opened.status().subject()),
                            std::string(opened.status().hint()));
  }
  store_ = *opened;
  stored_ = std::make_unique<StoredImage>(*store_, clock_);
  return with_consequences(look_in_store(candidate));
}

Status RankRestart::look_in_memory(const RestartCandidate& candidate) {
  const auto left = std::find_if(left_.begin(), left_.end(), [&](const LeftSnapshot& snapshot) {
    return snapshot.owner.run == *candidate.memory_run && snapshot.step == candidate.step;
  });
  if (left == left_.end()) return Status::not_found("this rank has no such snapshot in memory");
  VARVE_ASSIGN(memory_, left->open_verified());
  return variables_.check_loadable(memory_->image());
}

Status RankRestart::look_in_store(const RestartCandidate& candidate) {
  PatientReads reads(*store_, clock_);
  VARVE_ASSIGN(const SetRecord record, reads([&] { return Catalog(*store_).read({place_.job, candidate.step}); }));
  VARVE_TRY(shelf_->of_node ? stored_->open_of_node(record, place_.rank, place_.rank_count, shelf_->group)
                            : stored_->open(record, place_.rank, place_.rank_count, shelf_->group));
  return variables_.check_loadable(stored_->image());
}

Status RankRestart::check() {
  if (memory_) return {};  // it was verified when it was opened
  if (!stored_) return Status::internal("nothing was looked at before it was checked");
  return with_consequences(stored_->verify(place_.thread_count, place_.kept_bytes_max));
}

Status RankRestart::with_consequences(const Status& outcome) {
  const CopyFaults& faults = stored_->faults();
  unreadable_arenas_[level_].insert(faults.unreadable.begin(), faults.unreadable.end());
  const Status condemned = condemn_arenas(*store_, faults.damaged);
  if (!condemned.ok()) {
    warnings_.add(condemned.with_context("what is damaged could not be marked, so that new sets may rest on it"));
  }
  return outcome;
}

std::optional<SetOrigin> RankRestart::origin() const {
  return stored_ && shelf_->of_node ? std::optional(stored_->origin()) : std::nullopt;
}

Status RankRestart::load() {
  if (memory_) {
    return variables_.load(memory_->image(),
                           [this](uint64_t offset, MutableByteSpan into) { return memory_->read(offset, into); });
  }
  if (!stored_) return Status::internal("nothing was checked before it was loaded");
  return variables_.load(stored_->image(),
                         [this](uint64_t offset, MutableByteSpan into) { return stored_->read(offset, into); });
}

Status RankRestart::mend(const RestartCandidate& candidate) {
  const Shelf& shelf = shelves_.at(candidate.level);
  if (candidate.memory_run || !shelf.mends) return {};
  const SetName name{place_.job, candidate.step};
  VARVE_ASSIGN(const Store* const store, shelf.open());
  // A node's own set has only its ranks: what another store has under that name is not the same.
  if (shelf.of_node) VARVE_TRY(Catalog(*store).read(name).status());
  std::vector<RepairSource> sources;
  for (const Shelf& other : shelves_) {
    if (&other == &shelf) continue;
    const Result<const Store*> source = other.open();
    if (source.ok()) sources.push_back({other.name, *source});
  }
  stored_.reset();  // it has readers of what is going to be replaced
  store->drop_arena_cache();
  VARVE_ASSIGN(const SetRepair repair, repair_set(*store, name, sources, {.thread_count = place_.thread_count}));
  store->drop_arena_cache();
  for (const MendedFrom& from : repair.mended) {
    warnings_.add(Status::corrupt(fmt::format("{} of {} in {} were damaged, and taken from {}",
                                              from.packs + from.nodes + from.records > 1 ? "parts" : "a part",
                                              name.to_string(), shelf.name, from.source)));
  }
  return repair.lost;
}

}  // namespace varve
