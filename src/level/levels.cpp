#include "level/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "comm/agreement.h"
#include "store/catalog.h"

namespace varve {

Levels::Levels(const std::vector<LevelSpec>& specs, LevelWorld& world) : world_(world) {
  world.has_node_level =
      std::any_of(specs.begin(), specs.end(), [](const LevelSpec& spec) { return spec.is_of_node(); });
  for (const LevelSpec& spec : specs) {
    all_.push_back(spec.kind->make(spec, world, *this));
    if (StoreLevel* const store = all_.back()->as_store()) stores_.push_back(store);
  }
}

/// The farthest first: what is brought there comes from the nearest.
Levels::~Levels() {
  while (!all_.empty()) all_.pop_back();
}

// To open them

Status Levels::look() {
  for (const auto& level : all_) VARVE_TRY(level->look());
  return {};
}

Status Levels::prepare_on_nodes() {
  for (auto level = all_.rbegin(); level != all_.rend(); ++level) VARVE_TRY((*level)->prepare_on_node());
  return {};
}

Status Levels::open() {
  for (const auto& level : all_) VARVE_TRY(level->open());
  return {};
}

Status Levels::start() {
  Status started;
  for (const auto& level : all_) {
    if (started.ok()) started = level->start();
  }
  return started;
}

void Levels::close_idle() {
  for (StoreLevel* const store : stores_) store->close_if_idle();
}

Result<uint64_t> Levels::learn_earlier_sets() {
  std::array<uint64_t, 1> number = {1};
  for (const StoreLevel* const store : stores_) {
    if (store->opened() == nullptr || !store->speaks()) continue;
    const Result<uint64_t> next = Catalog(*store->opened()).next_number(world_.job);
    // A level that fails now counts again when it is back: numbers only say whose turn it is.
    if (next.ok()) number[0] = std::max(number[0], *next);
  }
  VARVE_TRY(world_.ranks.all_max(number));
  if (!world_.has_node_level) return number[0];
  VARVE_ASSIGN(const std::vector<uint64_t> complete,
               agree_on_complete_sets(world_.ranks, nearest().speaks() ? nearest().opened() : nullptr, world_.clock,
                                      world_.job, world_.seat.nodes.size()));
  for (const uint64_t step : complete) world_.sets.note_complete(step);
  return number[0];
}

// A restart

Result<std::vector<RestartCandidate>> Levels::candidates() {
  // What a rank completes is seen by all who list later.
  for (StoreLevel* const store : stores_) store->complete_leftovers();
  VARVE_TRY(world_.ranks.barrier());
  std::vector<MemoryStep> snapshots;
  std::vector<StoreSteps> sets;
  for (uint32_t ordinal = 0; ordinal < all_.size(); ++ordinal) {
    for (const MemoryStep& step : all_[ordinal]->snapshots()) snapshots.push_back(step);
    StoreLevel* const store = all_[ordinal]->as_store();
    if (store == nullptr) continue;
    StoreSteps& of_store = sets.emplace_back();
    of_store.level = ordinal;
    if (stores_.size() > 1 || store->is_of_node()) of_store.place = store->name();
    VARVE_ASSIGN(of_store.steps, store->list());
  }
  return agree_on_candidates(world_.ranks, snapshots, std::move(sets));
}

Result<bool> Levels::never_were_whole(const std::vector<RestartCandidate>& candidates) {
  std::vector<uint64_t> steps;
  for (const RestartCandidate& candidate : candidates) {
    if (!at(candidate.level).spec().is_of_node()) return false;
    steps.push_back(candidate.step);
  }
  if (steps.empty()) return false;
  VARVE_ASSIGN(const bool never, nearest().never_were_whole(steps));
  for (const uint64_t step : steps) {
    if (never) note_found(nearest(), step, Found::damaged);
  }
  return never;
}

Status Levels::check_all_were_reached() {
  const auto away =
      std::find_if(stores_.begin(), stores_.end(), [](const StoreLevel* store) { return store->is_away(); });
  if (away == stores_.end()) return {};
  const Status& why = (*away)->why_away();
  return follow_first(world_.ranks,
                      Status::io_error(fmt::format("no whole checkpoint is in the levels that can be reached, and {} "
                                                   "cannot: {}",
                                                   (*away)->name(), why.message()),
                                       std::string(why.subject()),
                                       "try again when it is there, or take it out of the levels to start anew"));
}

void Levels::note_found(const Level& where, uint64_t step, Found found) {
  for (const auto& level : all_) level->note_found(where, step, found);
}

void Levels::bring_behind(uint64_t step, const std::vector<RestartCandidate>& candidates) {
  if (nearest().opened() == nullptr) return;
  const Result<SetRecord> record = Catalog(*nearest().opened()).read({world_.job, step});
  for (uint32_t ordinal = 0; ordinal < all_.size() && record.ok(); ++ordinal) {
    const bool has_it = std::any_of(candidates.begin(), candidates.end(), [&](const RestartCandidate& candidate) {
      return !candidate.memory_run && candidate.level == ordinal && candidate.step == step;
    });
    const StoreLevel* const store = all_[ordinal]->as_store();
    if (store != nullptr && !store->is_nearest() && !has_it) {
      all_[ordinal]->accept({.step = step, .number = record->number, .everywhere = true});
    }
  }
}

void Levels::drop_caches() {
  for (const StoreLevel* const store : stores_) {
    if (store->opened() != nullptr) store->opened()->drop_arena_cache();
  }
}

// Sets of a run

void Levels::accept(const NewSet& set) {
  for (const auto& level : all_) level->accept(set);
}

void Levels::forget(uint64_t step) {
  for (const auto& level : all_) level->forget(step);
}

bool Levels::owes_behind(const Level& level, uint64_t step, uint64_t number) const {
  const auto own = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.get() == &level; });
  return std::any_of(own, all_.end(), [&](const auto& one) { return one.get() != &level && one->owes(step, number); });
}

std::string Levels::what_waits() const {
  std::string waiting;
  for (const auto& level : all_) {
    const std::string waits = level->what_waits();
    if (!waits.empty()) waiting += (waiting.empty() ? "" : "; ") + waits;
  }
  return waiting;
}

Retention::Rules Levels::nearest_rules() {
  Retention::Rules rules = nearest().rules(world_.job);
  rules.owed = [this](uint64_t step, uint64_t number) { return owes_behind(nearest(), step, number); };
  if (!world_.has_node_level) return rules;
  rules.complete = [this](uint64_t step) { return world_.sets.is_complete(step); };
  rules.never_complete = [this](uint64_t step) { return world_.sets.is_never_complete(step); };
  for (const auto& level : all_) {
    if (!level->is_protection()) continue;
    Level* const protection = level.get();
    rules.has_redundancy = [protection](uint64_t step) { return protection->protects(step); };
    rules.keep_with_redundancy = protection->spec().keep.value_or(1);
    rules.before_drop = [protection](uint64_t step) { return protection->before_drop(step); };
    rules.whole_arenas = true;
  }
  return rules;
}

std::vector<LevelProgress> Levels::progress(const RunNews& run) const {
  std::vector<LevelProgress> levels;
  for (const auto& level : all_) levels.push_back(level->progress(run));
  return levels;
}

// The end of a run

void Levels::stop() {
  for (const auto& level : all_) level->stop();
}

Status Levels::finish(const std::optional<NewSet>& last, Moment end) {
  Status outcome;
  for (const auto& level : all_) {
    const Status finished = level->finish(last, end);
    if (outcome.ok()) outcome = finished;
  }
  return outcome;
}

Status Levels::end() {
  Status outcome;
  for (const auto& level : all_) {
    const Status ended = level->end();
    if (outcome.ok()) outcome = ended;
  }
  return outcome;
}

// Commands

const Store* Levels::find(const SetName& name) const {
  for (const StoreLevel* const store : stores_) {
    if (store->opened() != nullptr && Catalog(*store->opened()).has(name)) return store->opened();
  }
  return nullptr;
}

Onward Levels::bring_along(const std::string& job, ProgressSink& progress) {
  Onward onward;
  std::vector<OwedSteps> owed_to;
  std::vector<bool> failed;
  for (StoreLevel* const store : stores_) {
    const size_t before = onward.failures.size();
    owed_to.push_back(store->bring_all(job, onward, progress));
    failed.push_back(onward.failures.size() > before);
  }
  // From the farthest on: what a level is owed stays at all that are nearer.
  for (size_t i = stores_.size(); i-- > 0 && !progress.cancelled();) {
    const Status retained = stores_[i]->retain(job, onward.owed, progress);
    if (!retained.ok() && !failed[i])
      onward.failures.push_back(retained.with_context(stores_[i]->name() + ": old sets stay"));
    onward.owed.add(owed_to[i]);
  }
  if (onward.failures.empty() && progress.cancelled())
    onward.failures.push_back(Status::cancelled("stopped when the set was saved, but not brought to all levels"));
  return onward;
}

}  // namespace varve
