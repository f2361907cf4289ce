#include "sim/stores.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "backend/folder_backend.h"
#include "engine/repair.h"
#include "engine/transfer.h"
#include "sim/chunk_set.h"
#include "sim/oracle.h"
#include "sim/whole_store.h"
#include "sim/world.h"
#include "store/prune.h"
#include "store/remarks.h"
#include "store/rename_job.h"
#include "store/spread.h"
#include "store/verify.h"

namespace varve::sim {

namespace {
constexpr uint64_t kUniverse = 150;  ///< of chunks: small, so that sets share many
/// What describes a set in an arena, at most: roots, leaves, headers, an index.
constexpr uint64_t kOverheadOfSet = 700;

struct Faults {
  bool pause = false, kill = false, power = false, errors = false, full = false, lost_replies = false, cut = false;
  /// Whether calls may fail that no other actor is in the way of.
  bool hurts() const { return kill || power || errors || full || lost_replies || cut; }
};

Faults draw_faults(Random& random) {
  Faults faults;
  if (random.chance(0.15)) return faults;
  faults.pause = random.chance(0.5);
  faults.kill = random.chance(0.4);
  faults.power = random.chance(0.2);
  faults.errors = random.chance(0.15);
  faults.full = random.chance(0.1);
  faults.lost_replies = random.chance(0.1);
  faults.cut = random.chance(0.1);
  return faults;
}

/// A set as far as it was told.
struct KnownSet {
  Numbers numbers;
  bool dropped = false;  ///< or being dropped
  bool pinned = false;   ///< for good: it stays, whoever drops it
};

/// Some schedules have few actors, who sleep where it matters: what needs three steps of two of them in a certain order
/// is not found among many.
Faults faults_of_few() {
  Faults faults;
  faults.pause = true;
  return faults;
}

/// On one server, or spread over several.
class Servers final : public StoreSite {
 public:
  Servers(World& world, uint64_t count) : world_(world) {
    for (uint64_t i = 0; i < count; ++i) {
      folders_.push_back(std::make_unique<FolderBackend>(world.files(), fmt::format("/server{}/store", i)));
      places_.push_back(folders_.back().get());
    }
  }

  Status create() override { return create_spread_store(places_); }

  Result<View> open() override {
    View view;
    if (places_.size() == 1) {
      VARVE_ASSIGN(view.store, Store::open(*places_.front()));
      return view;
    }
    VARVE_ASSIGN(const std::vector<Backend*> ordered, order_places(places_));
    auto spread = std::make_unique<SpreadBackend>(ordered);
    VARVE_ASSIGN(view.store, Store::open(*spread, nullptr, spread->spread()));
    view.backend = std::move(spread);
    return view;
  }

  Status rebalance() override { return places_.size() < 2 ? Status() : varve::rebalance(places_).status(); }

  void strike(SiteFault fault, Random& random) override {
    Disk& disk = *world_.servers()[random.below(places_.size())];
    switch (fault) {
      case SiteFault::errors:
        disk.faults.write_error = random.chance(0.5) ? 0.03 : 0;
        disk.faults.sync_error = random.chance(0.5) ? 0.05 : 0;
        disk.faults.read_error = random.chance(0.3) ? 0.02 : 0;
        return;
      case SiteFault::lost_replies: disk.faults.lost_reply = 0.03; return;
      case SiteFault::full: disk.capacity = disk.used_bytes() + random.below(40'000); return;
      case SiteFault::cut:
        disk.away_until = world_.simulator().now() + std::chrono::seconds(random.between(1, 120));
        return;
      case SiteFault::power:
        world_.simulator().tell(fmt::format("{} loses power", disk.name()));
        disk.lose_power(
            {random.chance(0.5) ? CrashPolicy::Kind::torn : CrashPolicy::Kind::drop_unsynced, random.next()});
        return;
    }
  }

 private:
  World& world_;
  std::vector<std::unique_ptr<FolderBackend>> folders_;
  std::vector<Backend*> places_;  ///< these
};

std::unique_ptr<StoreSite> make_servers(World& world, Random& random, bool few) {
  const uint64_t count = random.chance(few ? 0.2 : 0.5) ? 1 : random.between(2, 3);
  return std::make_unique<Servers>(world, count);
}

class StoreStory {
 public:
  StoreStory(Simulator& simulator, const std::string& scratch, const MakeSite& make);
  void play();

 private:
  using View = StoreSite::View;
  enum class Act : uint8_t { save, drop, pin, rename, prune, rebalance, push, repair, read, go_back, drop_judged };

  Result<View> open_main() { return site_->open(); }
  Result<View> open_far();
  void create();
  std::vector<Act> draw_acts();
  void act(Act what, uint32_t ordinal);
  void do_once(Act what, uint32_t ordinal, Random& random);
  void save(uint32_t ordinal, Random& random);
  void drop(Random& random);
  void pin(Random& random);
  void rename(Random& random);
  Status check(const Store& store, const SetName& name, const KnownSet& set) const;
  void go_back(uint32_t ordinal, Random& random);
  void drop_judged(Random& random);
  void check_made_anew(const Store& store, const char* when);
  void prune(Random& random);
  void push(Random& random);
  void repair();
  void read(Random& random);
  std::optional<SetName> some_set(Random& random) const;
  void accept(const char* what, const Status& outcome, bool among_others);
  void inject();
  void check_end();

  Simulator& simulator_;
  Random random_;
  World world_;
  const bool few_;
  const Faults faults_;
  std::unique_ptr<StoreSite> site_;
  bool has_far_ = false;
  std::map<SetName, KnownSet> saved_;
  std::map<SetName, Numbers> begun_;  ///< saves that did not say how they ended
  /// Sets that runs make anew again and again, as they were told last, and the records that somebody was to drop.
  std::map<SetName, std::pair<SetRecord, Numbers>> made_anew_;
  std::map<SetName, std::vector<SetRecord>> judged_;
  std::set<std::string> renamed_jobs_;  ///< or being renamed: their sets may have either name
  uint64_t next_step_ = 1;
  std::optional<Numbers> last_numbers_;
  std::vector<Process*> actors_;
  double rest_seconds_ = 1;  ///< of an actor between two acts, at most
};

StoreStory::StoreStory(Simulator& simulator, const std::string& scratch, const MakeSite& make)
    : simulator_(simulator),
      random_(simulator.random().fork()),
      world_(simulator, static_cast<uint32_t>(random_.between(2, 4)), 3, scratch),
      few_(random_.chance(0.3)),
      faults_(few_ ? faults_of_few() : draw_faults(random_)) {
  site_ = make ? make(world_, random_) : make_servers(world_, random_, few_);
  has_far_ = random_.chance(0.5);
  const double rests[] = {0, 0.01, 1, 60};
  rest_seconds_ = few_ ? 60 : rests[random_.below(4)];
  for (const auto& server : world_.servers()) server->slowness = random_.chance(0.3) ? 100 : 1;
}

void StoreStory::create() {
  Status created = site_->create();
  if (!created.ok()) fail("a store cannot be made: " + created.to_string());
  if (!has_far_) return;
  created = Store::create(world_.files(), "/shared/far");
  if (!created.ok()) fail("a store cannot be made: " + created.to_string());
}

Result<StoreStory::View> StoreStory::open_far() {
  View view;
  VARVE_ASSIGN(view.store, Store::open(world_.files(), "/shared/far"));
  return view;
}

/// `among_others`: other actors may be in the way.
void StoreStory::accept(const char* what, const Status& outcome, bool among_others) {
  simulator_.tell(fmt::format("{}: {}", what, outcome.ok() ? "done" : outcome.to_string()));
  if (outcome.ok() || faults_.hurts()) return;
  if (outcome.code() == StatusCode::busy || (among_others && outcome.code() == StatusCode::not_found)) return;
  fail(fmt::format("{} failed without a fault: {}", what, outcome.to_string()));
}

std::optional<SetName> StoreStory::some_set(Random& random) const {
  std::vector<SetName> names;
  for (const auto& [name, set] : saved_) {
    if (!set.dropped) names.push_back(name);
  }
  if (names.empty()) return std::nullopt;
  return names[random.below(names.size())];
}

void StoreStory::save(uint32_t ordinal, Random& random) {
  Numbers numbers;
  if (last_numbers_ && random.chance(0.4)) {
    numbers = *last_numbers_;  // what somebody else saves, too, perhaps just now
  } else {
    const uint64_t first = random.below(kUniverse), count = random.between(4, 40);
    for (uint64_t i = 0; i < count; ++i) numbers.push_back((first + i) % kUniverse);
  }
  last_numbers_ = numbers;
  const SetName name{fmt::format("job{}", ordinal), next_step_++};
  begun_[name] = numbers;
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  const Status saved = save_numbers(*view->store, name, numbers);
  accept(fmt::format("save of {}", name.to_string()).c_str(), saved, false);
  if (saved.ok()) saved_[name] = {.numbers = numbers};
}

void StoreStory::drop(Random& random) {
  const std::optional<SetName> name = some_set(random);
  if (!name) return;
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  saved_[*name].dropped = true;
  const Status dropped = Catalog(*view->store).remove(*name);
  if (dropped.code() == StatusCode::permission_denied) {
    simulator_.tell(fmt::format("drop of {}: it is pinned", name->to_string()));
    return;
  }
  accept(fmt::format("drop of {}", name->to_string()).c_str(), dropped, true);
}

void StoreStory::pin(Random& random) {
  const std::optional<SetName> name = some_set(random);
  if (!name) return;
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  const Status pinned = Remarks(*view->store).pin(*name);
  accept(fmt::format("pin of {}", name->to_string()).c_str(), pinned, true);
  if (pinned.ok()) saved_[*name].pinned = true;
}

/// What its jobs are called once they are renamed: names that come before the others.
std::string new_name_of(const std::string& job) { return "a" + job; }

void StoreStory::rename(Random& random) {
  const std::optional<SetName> name = some_set(random);
  if (!name) return;
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  renamed_jobs_.insert(name->job);
  const Status renamed = rename_job(*view->store, name->job, new_name_of(name->job));
  if (renamed.code() == StatusCode::permission_denied) return;  // it was pinned meanwhile
  accept(fmt::format("rename of {}", name->job).c_str(), renamed, true);
}

/// Under either name, if it has been renamed.
Status StoreStory::check(const Store& store, const SetName& name, const KnownSet& set) const {
  const Status checked = check_numbers(store, name, set.numbers);
  if (checked.code() != StatusCode::not_found || !renamed_jobs_.contains(name.job)) return checked;
  const Status renamed = check_numbers(store, {new_name_of(name.job), name.step}, set.numbers);
  // It may have got that name just now; or be on its way to it, as the other look was before it was there.
  return renamed;
}

/// Only of this actor's own job.
void StoreStory::go_back(uint32_t ordinal, Random& random) {
  const SetName name{fmt::format("back{}", ordinal), random.between(1, 2)};
  const uint64_t first = random.below(kUniverse);
  const Numbers numbers{first, first + 1, kUniverse + ++next_step_};  // of which the last one is in no other set
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  made_anew_.erase(name);
  const Result<SetRecord> saved = save_numbers_anew(*view->store, name, numbers);
  accept(fmt::format("another {}", name.to_string()).c_str(), saved.status(), false);
  if (saved.ok()) made_anew_[name] = {*saved, numbers};
}

/// As a prune by rules does, and a run that keeps so many sets.
void StoreStory::drop_judged(Random& random) {
  std::vector<SetName> names;
  for (const auto& [name, set] : made_anew_) names.push_back(name);
  if (names.empty()) return;
  const SetName name = names[random.below(names.size())];
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  const Catalog catalog(*view->store);
  const Result<SetRecord> judged = catalog.read(name);
  if (!judged.ok()) return accept("look at what is to be dropped", judged.status(), true);
  judged_[name].push_back(*judged);
  const Status dropped =
      catalog.remove_if(name, [&](const SetRecord& now, const SetRemarks*) { return same_trees(now, *judged); })
          .status();
  accept(fmt::format("drop of {} as it was", name.to_string()).c_str(), dropped, true);
}

void StoreStory::check_made_anew(const Store& store, const char* when) {
  for (const auto& [name, set] : made_anew_) {
    (void)Catalog(store).steps(name.job);  // as a restart looks for it
    const Status checked = check_numbers(store, name, set.second);
    const std::vector<SetRecord>& judged = judged_[name];
    const bool may_be_gone = std::any_of(judged.begin(), judged.end(), [&, &record = set.first](const SetRecord& one) {
      return same_trees(one, record);
    });
    if (checked.ok() || (may_be_gone && checked.code() == StatusCode::not_found)) continue;
    fail(fmt::format("a set that was made anew is not there {}: {}", when, checked.to_string()));
  }
}

void StoreStory::prune(Random& random) {
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  PruneOptions options;
  options.wait_seconds = random.chance(0.5) ? 0 : 30;
  options.live_share_min = random.chance(0.3) ? 1.0 : 0.5;
  const Result<PruneReport> report = prune_store(*view->store, options);
  accept("prune", report.status(), true);
}

void StoreStory::push(Random& random) {
  const std::optional<SetName> name = some_set(random);
  if (!name || !has_far_) return;
  const Result<View> from = open_main();
  if (!from.ok()) return accept("open", from.status(), false);
  const Result<View> to = open_far();
  if (!to.ok()) return accept("open", to.status(), false);
  TransferOptions options;
  options.thread_count = 1;
  const Status pushed = copy_set(*from->store, *to->store, *name, options).status();
  accept(fmt::format("push of {}", name->to_string()).c_str(), pushed, true);
}

void StoreStory::repair() {
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  std::vector<RepairSource> sources;
  const Result<View> far = has_far_ ? open_far() : Status::not_found("no other store");
  if (far.ok()) sources.push_back({"far", far->store.get()});
  RepairOptions options;
  options.thread_count = 1;
  accept("repair", repair_store(*view->store, sources, options).status(), true);
}

void StoreStory::read(Random& random) {
  const std::optional<SetName> name = some_set(random);
  if (!name) return;
  const KnownSet known = saved_[*name];
  const Result<View> view = open_main();
  if (!view.ok()) return accept("open", view.status(), false);
  const Status checked = check(*view->store, *name, known);
  simulator_.tell(fmt::format("read of {}: {}", name->to_string(), checked.ok() ? "done" : checked.to_string()));
  if (checked.code() == StatusCode::internal) fail("wrong bytes: " + checked.to_string());
  if (checked.ok() || faults_.hurts() || saved_[*name].dropped || checked.code() == StatusCode::busy) return;
  fail("a set that was saved cannot be read: " + checked.to_string());
}

void StoreStory::do_once(Act what, uint32_t ordinal, Random& random) {
  switch (what) {
    case Act::save: return save(ordinal, random);
    case Act::drop: return drop(random);
    case Act::pin: return pin(random);
    case Act::rename: return rename(random);
    case Act::prune: return prune(random);
    case Act::rebalance: return accept("rebalance", site_->rebalance(), true);
    case Act::push: return push(random);
    case Act::repair: return repair();
    case Act::read: return read(random);
    case Act::go_back: return go_back(ordinal, random);
    case Act::drop_judged: return drop_judged(random);
  }
}

void StoreStory::act(Act what, uint32_t ordinal) {
  Random random = simulator_.random().fork();
  const uint64_t times = random.between(1, 4);
  for (uint64_t i = 0; i < times; ++i) {
    simulator_.spend(std::chrono::nanoseconds(static_cast<int64_t>(random.unit() * rest_seconds_ * 1e9)));
    do_once(what, ordinal, random);
  }
}

void StoreStory::inject() {
  auto a_moment = [&] {
    simulator_.spend(std::chrono::milliseconds(random_.below(random_.chance(0.5) ? 2'000 : 60'000)));
  };
  if (few_) {
    for (Process* actor : actors_) {
      if (random_.chance(0.6)) actor->removal_pause_chance = 0.3;
    }
  } else if (faults_.pause) {
    for (Process* actor : actors_) {
      actor->pause_seconds_max = site_->pause_seconds_max();
      if (random_.chance(0.4)) actor->pause_chance = random_.chance(0.5) ? 0.02 : 0.1;
    }
  }
  if (faults_.errors) site_->strike(SiteFault::errors, random_);
  if (faults_.lost_replies) site_->strike(SiteFault::lost_replies, random_);
  if (faults_.full) {
    a_moment();
    site_->strike(SiteFault::full, random_);
  }
  if (faults_.cut) {
    a_moment();
    site_->strike(SiteFault::cut, random_);
  }
  if (faults_.kill) {
    for (uint64_t i = random_.between(1, 3); i > 0; --i) {
      a_moment();
      simulator_.kill(*actors_[random_.below(actors_.size())]);
    }
  }
  if (faults_.power) {
    a_moment();
    site_->strike(SiteFault::power, random_);
  }
}

std::vector<StoreStory::Act> StoreStory::draw_acts() {
  const uint64_t savers = random_.between(1, 3);
  std::vector<Act> acts(savers, Act::save);
  if (few_) {
    const Act movers[] = {Act::prune, Act::repair, Act::rebalance, Act::rebalance, Act::rebalance};
    const Act mover = movers[random_.below(std::size(movers))];
    acts.insert(acts.end(), {mover, mover});
    if (random_.chance(0.5)) acts.push_back(Act::drop);
    if (random_.chance(0.3)) acts.insert(acts.end(), {Act::drop, Act::pin});
    if (random_.chance(0.3)) acts.push_back(Act::rename);
    if (random_.chance(0.3)) acts.push_back(Act::prune);
    if (random_.chance(0.3)) acts.insert(acts.end(), {Act::go_back, Act::drop_judged, Act::drop_judged});
    return acts;
  }
  const Act others[] = {Act::drop,      Act::pin,  Act::rename, Act::prune,
                        Act::rebalance, Act::push, Act::repair, Act::read};
  for (const Act other : others) {
    for (uint64_t i = random_.chance(0.6) ? random_.between(1, 2) : 0; i > 0; --i) acts.push_back(other);
  }
  if (random_.chance(0.4)) acts.insert(acts.end(), {Act::go_back, Act::drop_judged, Act::drop_judged});
  return acts;
}

void StoreStory::play() {
  create();
  const std::vector<Act> acts = draw_acts();
  for (uint32_t i = 0; i < acts.size(); ++i) {
    Machine& machine = world_.nodes()[random_.below(world_.nodes().size())].machine;
    const char* const names[] = {"save", "drop",   "pin",  "rename",  "prune",      "rebalance",
                                 "push", "repair", "read", "go_back", "drop_judged"};
    actors_.push_back(&simulator_.start_process(fmt::format("{}{}", names[static_cast<size_t>(acts[i])], i), machine,
                                                [this, what = acts[i], i] { act(what, i); }));
  }
  inject();
  for (const Process* actor : actors_) (void)simulator_.await_end(*actor, Moment::max());
  world_.end_faults();
  site_->end_faults();
  check_end();
}

void StoreStory::check_end() {
  simulator_.spend(site_->silence());
  const Result<View> view = open_main();
  if (!view.ok()) fail("the store cannot be opened: " + view.status().to_string());
  const Store& store = *view->store;
  auto check_sets = [&](const char* when, bool pruned) {
    for (const auto& [name, set] : saved_) {
      if (set.dropped && !set.pinned) continue;
      const Status checked = check(store, name, set);
      // Who had begun to drop it before it was pinned may have hidden it, until a prune comes.
      if (set.dropped && !pruned && checked.code() == StatusCode::not_found) continue;
      if (!checked.ok()) fail(fmt::format("a set that was saved is not there {}: {}", when, checked.to_string()));
    }
    for (const auto& [name, numbers] : begun_) {
      const Status checked = check_numbers(store, name, numbers);
      if (checked.ok() || checked.code() == StatusCode::not_found) continue;
      fail(fmt::format("a set is there, and not whole {}: {}", when, checked.to_string()));
    }
  };
  check_sets("at the end", false);
  check_made_anew(store, "at the end");
  check_one_prune(store, kOverheadOfSet);
  check_sets("after the last prune", true);
  check_made_anew(store, "after the last prune");
  site_->check_nothing_is_left();
  const Result<VerifyReport> verified = verify_store(store, /*deep=*/true);
  if (!verified.ok()) fail("the store cannot be verified: " + verified.status().to_string());
  for (const Damage& damage : verified->damages) {
    if (!damage.disposable) fail("the store is damaged: " + damage.what.to_string());
  }
}
}  // namespace

void play_stores(Simulator& simulator, const std::string& scratch) { play_stores_at(simulator, scratch, nullptr); }

void play_stores_at(Simulator& simulator, const std::string& scratch, const MakeSite& make) {
  auto* const director = new Machine{"-", {}};
  simulator.enter(*director);
  auto* const story = new StoreStory(simulator, scratch, make);
  story->play();
}

}  // namespace varve::sim
