#include "level/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/agreement.h"
#include "level/left_parts.h"
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
  // Of nodes' own, one tells of all; and not all ranks are to ask a shared file system for the same paths.
  return agree(world_.ranks, world_.ranks.rank() == 0 ? check_are_different() : Status());
}

Status Levels::prepare_on_nodes() {
  for (auto level = all_.rbegin(); level != all_.rend(); ++level) VARVE_TRY((*level)->prepare_on_node());
  return {};
}

Status Levels::open() {
  for (const auto& level : all_) VARVE_TRY(level->open());
  tell_what_was_made();
  return {};
}

Status Levels::check_are_different() const {
  std::map<std::string, const StoreLevel*> levels;
  for (const StoreLevel* const level : stores_) {
    const StoreAccess& access = level->access();
    if (access.is_away()) continue;
    const auto [same, is_new] = levels.emplace(LevelStore::known_path(level->spec(), access.own_path()), level);
    if (is_new) continue;
    return Status::invalid_argument(fmt::format("{} and {} are the same folder", same->second->name(), level->name()),
                                    same->first, "name each store once among the levels");
  }
  return {};
}

Status Levels::start() {
  Status started;
  for (const auto& level : all_) {
    if (started.ok()) started = level->start();
  }
  return started;
}

void Levels::tell_what_was_made() {
  const auto has_sets = [](const StoreLevel* level) {
    const Store* const store = level->access().opened();
    if (store == nullptr) return false;
    const Result<std::vector<std::string>> jobs = Catalog(*store).jobs();
    return jobs.ok() && !jobs->empty();
  };
  for (StoreLevel* const made : stores_) {
    if (made->spec().is_of_node() || !made->access().take_made()) continue;
    const auto elder = std::find_if(stores_.begin(), stores_.end(), has_sets);
    if (elder == stores_.end()) continue;
    world_.warnings.add(Status::not_found(
        fmt::format("there was no store, so one was made, though {} has checkpoints already", (*elder)->name()),
        made->name(), "if the level is not new, look whether its file system is mounted"));
  }
}

void Levels::close_idle() {
  for (StoreLevel* const store : stores_) store->access().close_if_idle();
}

void Levels::drop_caches() {
  for (const StoreLevel* const store : stores_) {
    if (store->access().opened() != nullptr) store->access().opened()->drop_arena_cache();
  }
}

// Sets of a run

void Levels::note_found(const Level& where, uint64_t step, Found found) {
  for (const auto& level : all_) level->note_found(where, step, found);
}

void Levels::accept(const NewSet& set) {
  for (const auto& level : all_) level->accept(set);
}

void Levels::forget(uint64_t step) {
  for (const auto& level : all_) level->forget(step);
}

bool Levels::owes_behind(const Level& level, uint64_t step, uint64_t number) const {
  const auto own = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one.get() == &level; });
  const bool is_nearest = &level == &nearest();
  return std::any_of(own, all_.end(), [&](const auto& one) {
    return one.get() != &level && (one->owes(step, number) || (is_nearest && one->has_overlooked(step, number)));
  });
}

namespace {
/// How many sets wait for a level, with its name and what is wrong with it; empty: none.
std::string waiting_for(const LevelProgress& level) {
  if (level.waiting == 0) return {};
  const std::string why = level.last_error.ok() ? std::string() : fmt::format(" ({})", level.last_error.message());
  return fmt::format("{} wait{} for {}{}", level.waiting == 1 ? "1 set" : fmt::format("{} sets", level.waiting),
                     level.waiting == 1 ? "s" : "", level.level, why);
}
}  // namespace

std::string Levels::what_waits() const {
  std::string waiting;
  for (const LevelProgress& level : progress({})) {
    const std::string waits = waiting_for(level);
    if (!waits.empty()) waiting += (waiting.empty() ? "" : "; ") + waits;
  }
  return waiting;
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

Status Levels::end(Ending ending) {
  Status outcome;
  // What a level owes one behind it is known when that one has ended.
  for (auto level = all_.rbegin(); level != all_.rend(); ++level) {
    const Status ended = (*level)->end(ending);
    if (!ended.ok()) outcome = ended;
  }
  return outcome;
}

// What is asked of several of them

Retention::Rules nearest_rules(const Levels& levels) {
  LevelWorld& world = levels.world();
  Retention::Rules rules = levels.nearest().rules(world.job);
  rules.owed = [&levels](uint64_t step, uint64_t number) { return levels.owes_behind(levels.nearest(), step, number); };
  if (!world.has_node_level) return rules;
  rules.complete = [&world](uint64_t step) { return world.sets.is_complete(step); };
  rules.never_complete = [&world](uint64_t step) { return world.sets.is_never_complete(step); };
  for (const auto& level : levels.all()) {
    if (!level->spec().is_redundancy()) continue;
    Level* const redundancy = level.get();
    rules.has_redundancy = [redundancy](uint64_t step) { return redundancy->protects(step); };
    rules.keep_with_redundancy = redundancy->spec().keep.value_or(1);
    rules.before_drop = [redundancy](uint64_t step) { return redundancy->before_drop(step); };
    rules.whole_arenas = true;
  }
  return rules;
}

Result<bool> have_set(const Levels& levels, uint64_t step) {
  const SetName name{levels.world().job, step};
  bool found = false;
  for (StoreLevel* const level : levels.stores()) {
    if (!level->access().speaks()) continue;
    const Result<const Store*> store = level->access().store();
    if (!store.ok()) return store.status().with_context(level->name() + " cannot be asked for the set");
    const Status read = Catalog(**store).read(name).status();
    // One that is damaged is there, too.
    if (read.ok() || read.code() == StatusCode::corrupt) found = true;
    if (!found && read.code() != StatusCode::not_found) return read;
  }
  return found;
}

Status drop_set(const Levels& levels, uint64_t step) {
  const std::vector<StoreLevel*>& stores = levels.stores();
  for (size_t i = stores.size(); i-- > 0;) {
    StoreAccess& access = stores[i]->access();
    if (!access.speaks()) continue;
    VARVE_ASSIGN(const Store* const store, access.store());
    // The next run would make the set of them again.
    VARVE_TRY(remove_left_parts(*store, {levels.world().job, step}));
    Retention retention(i == 0 ? nearest_rules(levels) : stores[i]->rules(levels.world().job));
    VARVE_TRY(retention.drop(*store, step));
    const Status given_back = retention.give_space_back(*store, null_progress(), /*wait_seconds=*/0);
    if (!given_back.ok())
      levels.world().warnings.add(given_back.with_context("the space of a set that was dropped comes back later"));
  }
  return {};
}

Result<uint64_t> next_number(const Levels& levels, const std::string& job) {
  uint64_t number = 1;
  for (const StoreLevel* const level : levels.stores()) {
    const Store* const store = level->access().opened();
    if (store == nullptr) continue;
    const Result<uint64_t> next = Catalog(*store).next_number(job);
    if (!next.ok() && level != &levels.nearest()) continue;  // it is away
    VARVE_TRY(next.status());
    number = std::max(number, *next);
  }
  return number;
}

std::optional<NewSet> newest_set(const Levels& levels) {
  const Store* const store = levels.nearest().access().opened();
  if (store == nullptr) return std::nullopt;
  const LevelWorld& world = levels.world();
  const Result<std::vector<uint64_t>> steps = Catalog(*store).steps(world.job);
  std::optional<NewSet> newest;
  for (const uint64_t step : steps.ok() ? *steps : std::vector<uint64_t>()) {
    if (world.has_node_level && !world.sets.is_complete(step)) continue;
    // The run has gone back behind it.
    if (levels.nearest().is_made_anew(step)) continue;
    const Result<SetRecord> record = Catalog(*store).read({world.job, step});
    if (record.ok() && (!newest || record->number >= newest->number))
      newest = NewSet{.step = step, .number = record->number};
  }
  return newest;
}

Result<const Store*> find_set(const Levels& levels, const SetName& name) {
  Status unknown;
  for (StoreLevel* const level : levels.stores()) {
    const Result<const Store*> store = level->access().store();
    const Status read = store.ok() ? Catalog(**store).read(name).status() : store.status();
    // One that is damaged is there, too.
    if (store.ok() && (read.ok() || read.code() == StatusCode::corrupt)) return *store;
    if (unknown.ok() && (!store.ok() || read.code() != StatusCode::not_found))
      unknown = read.with_context(level->name() + " cannot be asked for the set");
  }
  if (!unknown.ok()) return unknown;
  return nullptr;
}

Result<std::optional<LeaseHolder>> living_run(const Levels& levels, const std::string& job,
                                              const std::vector<UniqueId>& ended) {
  // A run takes its lease in the nearest store that all nodes see and that is there then: another one, perhaps, than
  // now.
  bool any_shared = false;
  for (const StoreLevel* const level : levels.stores()) {
    if (level->spec().is_of_node() || level->access().opened() == nullptr) continue;
    any_shared = true;
    VARVE_ASSIGN(std::optional<LeaseHolder> holder, living_lease_holder(*level->access().opened(), job, ended));
    if (holder) return holder;
  }
  const Store* const nearest = levels.nearest().access().opened();
  if (any_shared || nearest == nullptr) return std::optional<LeaseHolder>();
  return living_lease_holder(*nearest, job, ended);
}

namespace {
Status no_run_is_at_work(const Levels& levels, const std::string& job, const std::vector<UniqueId>& ended) {
  VARVE_ASSIGN(const std::optional<LeaseHolder> holder, living_run(levels, job, ended));
  if (!holder) return {};
  return Status::busy(
      fmt::format("a run of the job is at work, and brings its sets on itself: {}", holder->to_string()), job,
      "do it again when the run has ended");
}
}  // namespace

Onward bring_along(const Levels& levels, const std::string& job, ProgressSink& progress,
                   const std::vector<UniqueId>& ended) {
  const std::vector<StoreLevel*>& stores = levels.stores();
  Onward onward;
  const auto is_alone = [&] { return no_run_is_at_work(levels, job, ended); };
  if (Status alone = is_alone(); !alone.ok()) {
    onward.failures.push_back(std::move(alone));
    onward.owed.is_known = false;  // nobody has looked
    return onward;
  }
  std::vector<OwedSteps> owed_to;
  std::vector<bool> failed;
  for (StoreLevel* const level : stores) {
    const size_t before = onward.failures.size();
    owed_to.push_back(level->bring_all(job, is_alone, onward, progress));
    failed.push_back(onward.failures.size() > before);
  }
  // From the farthest on: what a level is owed stays at all that are nearer.
  for (size_t i = stores.size(); i-- > 0 && !progress.cancelled();) {
    // One may have begun while much was copied.
    const Status alone = is_alone();
    const Status retained = alone.ok() ? stores[i]->retain(job, onward.owed, progress) : alone;
    if (!retained.ok() && !failed[i])
      onward.failures.push_back(retained.with_context(stores[i]->name() + ": old sets stay"));
    onward.owed.add(owed_to[i]);
  }
  // Also what was not come to.
  for (const OwedSteps& owed : owed_to) onward.owed.add(owed);
  if (onward.failures.empty() && progress.cancelled())
    onward.failures.push_back(Status::cancelled("stopped when the set was saved, but not brought to all levels"));
  return onward;
}

}  // namespace varve
