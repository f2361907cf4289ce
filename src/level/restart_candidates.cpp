#include "level/restart_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "comm/agreement.h"
#include "comm/gather.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "core/sync.h"
#include "level/stored_image.h"
#include "store/catalog.h"
#include "store/commit.h"

namespace varve {

namespace {
constexpr uint64_t kEncodedStepBytes = 16 + 8 + 4 + 4 + 16 + 8;

void put_memory(ByteWriter& out, const std::vector<MemoryStep>& memory) {
  out.varint(memory.size());
  for (const MemoryStep& step : memory) {
    out.bytes(step.run.bytes);
    out.le64(step.step);
    out.le32(step.rank_count);
    out.le32(step.rank);
    out.bytes(step.made_by.bytes);
    out.le64(step.number);
  }
}

Result<std::vector<MemoryStep>> decode_memory(ByteReader& in) {
  VARVE_ASSIGN(const uint64_t count, in.count(kEncodedStepBytes));
  std::vector<MemoryStep> memory(count);
  for (MemoryStep& step : memory) {
    VARVE_ASSIGN(step.run, UniqueId::read(in));
    VARVE_ASSIGN(step.step, in.le64());
    VARVE_ASSIGN(step.rank_count, in.le32());
    VARVE_ASSIGN(step.rank, in.le32());
    VARVE_ASSIGN(step.made_by, UniqueId::read(in));
    VARVE_ASSIGN(step.number, in.le64());
  }
  return memory;
}

void put_steps(ByteWriter& out, const std::vector<StoreSteps>& stores) {
  for (const StoreSteps& store : stores) {
    out.varint(store.steps.size());
    for (const StoredStep& set : store.steps) {
      out.le64(set.step);
      out.le64(set.number);
      out.le32(set.rank_count);
      out.le64(static_cast<uint64_t>(set.made_s));
      out.bytes(set.made_by.bytes);
    }
  }
}

/// What a rank sees; nothing, if that is nothing.
ByteVector encode_seen(const std::vector<MemoryStep>& memory, const std::vector<StoreSteps>& stores) {
  ByteVector bytes;
  const bool sees_sets =
      std::any_of(stores.begin(), stores.end(), [](const StoreSteps& store) { return !store.steps.empty(); });
  if (memory.empty() && !sees_sets) return bytes;
  ByteWriter out(bytes);
  put_memory(out, memory);
  put_steps(out, stores);
  return bytes;
}

/// Adds what a rank sees to what is known.
Status add_steps(ByteReader& in, std::vector<StoreSteps>& stores) {
  for (StoreSteps& store : stores) {
    VARVE_ASSIGN(const uint64_t count, in.count(3 * sizeof(uint64_t) + sizeof(uint32_t) + sizeof(UniqueId)));
    for (uint64_t i = 0; i < count; ++i) {
      StoredStep set;
      VARVE_ASSIGN(set.step, in.le64());
      VARVE_ASSIGN(set.number, in.le64());
      VARVE_ASSIGN(set.rank_count, in.le32());
      VARVE_ASSIGN(const uint64_t made_s, in.le64());
      set.made_s = static_cast<int64_t>(made_s);
      VARVE_ASSIGN(set.made_by, UniqueId::read(in));
      store.steps.push_back(set);
    }
  }
  return {};
}

/// Of what several have seen, what one of them could read, or else knows the number of.
void sort_steps(std::vector<StoreSteps>& stores) {
  for (StoreSteps& store : stores) {
    std::sort(store.steps.begin(), store.steps.end(), [](const StoredStep& a, const StoredStep& b) {
      return std::tuple(a.step, a.made_s == 0, b.number) < std::tuple(b.step, b.made_s == 0, a.number);
    });
    const auto same = [](const StoredStep& a, const StoredStep& b) { return a.step == b.step; };
    store.steps.erase(std::unique(store.steps.begin(), store.steps.end(), same), store.steps.end());
  }
}

/// Those that the nodes have of all ranks that made them.
std::vector<MemoryStep> whole_steps(const std::vector<MemoryStep>& memory) {
  std::map<std::tuple<UniqueId, uint64_t, UniqueId>, std::set<uint32_t>> ranks_of;  // by memory, step and run
  std::vector<MemoryStep> whole;
  for (const MemoryStep& step : memory) {
    std::set<uint32_t>& ranks = ranks_of[{step.run, step.step, step.made_by}];
    const bool is_new = step.rank < step.rank_count && ranks.insert(step.rank).second;
    if (is_new && ranks.size() == step.rank_count) whole.push_back(step);
  }
  return whole;
}
}  // namespace

std::string RestartCandidate::to_string() const {
  return fmt::format("step {} in {}", step, memory_run ? "memory" : place);
}

bool RestartCandidate::is_same_checkpoint(const RestartCandidate& other) const {
  if (step != other.step) return false;
  const bool knows = made_by != UniqueId(), other_knows = other.made_by != UniqueId();
  // A run that has gone back, and makes a step anew in its memory, does so as another one.
  if (memory_run && memory_run == other.memory_run && !(knows && other_knows)) return true;
  // Of a set that cannot be read it is not known who made it; what is in memory is not taken for it.
  if (knows != other_knows && (memory_run || other.memory_run)) return false;
  return knows && other_knows ? made_by == other.made_by : number == other.number;
}

namespace {
/// What has no number, as sets of early versions, was made after all sets that have lower steps, and with that of its
/// own step.
void number_the_rest(std::vector<RestartCandidate>& candidates) {
  std::map<uint64_t, uint64_t> newest_to;  // by step
  for (const RestartCandidate& candidate : candidates) {
    uint64_t& number = newest_to[candidate.step];
    if (!candidate.memory_run) number = std::max(number, candidate.number);
  }
  uint64_t newest = 0;
  for (auto& [step, number] : newest_to) number = newest = std::max(newest, number);
  for (RestartCandidate& candidate : candidates) {
    if (candidate.number == 0) candidate.number = newest_to[candidate.step];
    candidate.is_known = candidate.memory_run || candidate.made_s;
  }
}
}  // namespace

std::vector<RestartCandidate> restart_candidates(const std::vector<MemoryStep>& memory,
                                                 const std::vector<StoreSteps>& stores) {
  std::vector<RestartCandidate> candidates;
  for (const MemoryStep& step : whole_steps(memory))
    candidates.push_back({step.step, step.run, 0, "memory", step.number, step.rank_count, {}, step.made_by});
  for (const StoreSteps& store : stores) {
    for (const StoredStep& set : store.steps) {
      const auto made_s = set.made_s != 0 ? std::optional(set.made_s) : std::nullopt;
      candidates.push_back(
          {set.step, std::nullopt, store.level, store.place, set.number, set.rank_count, made_s, set.made_by});
    }
  }
  number_the_rest(candidates);
  std::sort(candidates.begin(), candidates.end(), [](const RestartCandidate& a, const RestartCandidate& b) {
    if (a.number != b.number) return a.number > b.number;
    if (a.step != b.step) return a.step > b.step;
    if (a.memory_run.has_value() != b.memory_run.has_value()) return a.memory_run.has_value();
    if (a.level != b.level) return a.level < b.level;
    return a.memory_run < b.memory_run;
  });
  return candidates;
}

Result<std::vector<RestartCandidate>> agree_on_candidates(Communicator& ranks, const std::vector<MemoryStep>& memory,
                                                          std::vector<StoreSteps> stores) {
  VARVE_ASSIGN(const std::vector<Told> told, gather_told(ranks, encode_seen(memory, stores)));
  std::vector<MemoryStep> all_memory;
  for (StoreSteps& store : stores) store.steps.clear();
  for (const Told& of_rank : told) {
    ByteReader in(of_rank.bytes);
    VARVE_ASSIGN(const std::vector<MemoryStep> steps, decode_memory(in));
    all_memory.insert(all_memory.end(), steps.begin(), steps.end());
    VARVE_TRY(add_steps(in, stores));
  }
  sort_steps(stores);
  return restart_candidates(all_memory, stores);
}

// What the levels of a run have

namespace {
/// More than any run makes.
constexpr uint64_t kNumbersPerSecond = 65'536;
/// Turns that come back later than in a second's numbers are not kept.
constexpr uint64_t kTurnsMax = kNumbersPerSecond;

uint64_t turns_of(const std::vector<LevelSpec>& levels) {
  uint64_t turns = 1;
  for (const LevelSpec& level : levels) {
    if (level.every > kTurnsMax) return 1;
    turns = std::lcm(turns, level.every);
    if (turns > kTurnsMax) return 1;
  }
  return turns;
}
}  // namespace

uint64_t number_by_time(uint64_t next, const std::vector<LevelSpec>& levels, double seconds_since_1970) {
  constexpr double possible = 1e11;  // a calendar that says another thousand years tells nothing
  if (!(seconds_since_1970 > 0 && seconds_since_1970 < possible)) return next;
  const uint64_t turns = turns_of(levels);
  const auto by_time = static_cast<uint64_t>(seconds_since_1970 * static_cast<double>(kNumbersPerSecond));
  return std::max(next, by_time - by_time % turns + next % turns);
}

Status learn_earlier_sets(const Levels& levels) {
  LevelWorld& world = levels.world();
  // What number comes next, and of each store whether somebody could not ask it.
  std::vector<uint64_t> told = {1};
  for (const StoreLevel* const level : levels.stores()) {
    const StoreAccess& access = level->access();
    told.push_back(access.is_away() ? 1 : 0);
    if (access.opened() == nullptr || !access.speaks()) continue;
    PatientReads reads(*access.opened(), world.clock);
    const Result<uint64_t> next = reads([&] { return first_number_of_run(*access.opened(), world.job); });
    if (next.ok()) {
      told[0] = std::max(told[0], *next);
      continue;
    }
    told.back() = 1;
    if (!access.is_nearest()) continue;
    // What the run makes is to be newer than what is there, also if it restarts from nothing.
    const Result<uint64_t> about = Catalog(*access.opened()).next_number(world.job, Catalog::Unreadable::counts);
    if (about.ok()) told[0] = std::max(told[0], *about);
    world.warnings.add(next.status().with_context(
        "the numbers of the sets that are there could not all be read: those of new sets are counted behind them"));
  }
  VARVE_TRY(world.ranks.all_max(told));
  // Of the nearest what can be restarted from counts anyway (RunRestart); one behind it is asked when it is back.
  for (size_t i = 1; i < levels.stores().size(); ++i) {
    if (told[i + 1] != 0) levels.stores()[i]->note_unasked();
  }
  std::vector<LevelSpec> specs;
  for (const auto& level : levels.all()) {
    if (level.get() != &levels.nearest()) specs.push_back(level->spec());
  }
  std::vector<uint64_t> first = {world.ranks.rank() == 0 ? number_by_time(told[0], specs, calendar_time()) : 0};
  VARVE_TRY(world.ranks.all_max(first));
  world.first_number = first[0];
  world.unseen_from = told[0];
  world.unseen_to = first[0] > told[0] ? first[0] : UINT64_MAX;
  return learn_complete_sets(levels);
}

Result<uint64_t> number_behind_snapshots(const Levels& levels) {
  std::array<uint64_t, 1> number = {1};
  for (const auto& level : levels.all()) {
    for (const MemoryStep& step : level->snapshots()) number[0] = std::max(number[0], step.number + 1);
  }
  VARVE_TRY(levels.world().ranks.all_max(number));
  return number[0];
}

Status learn_complete_sets(const Levels& levels) {
  LevelWorld& world = levels.world();
  if (!world.has_node_level) return {};
  const StoreAccess& own = levels.nearest().access();
  VARVE_ASSIGN(const std::vector<uint64_t> complete,
               agree_on_complete_sets(world.ranks, own.speaks() ? own.opened() : nullptr, world.clock, world.job,
                                      world.seat.nodes.size()));
  world.sets.note_all_complete(complete);
  return {};
}

namespace {
/// Makes sets of parts that runs have left, if all are there; on the rank that speaks for the level.
void complete_leftovers(const StoreAccess& access, LevelWorld& world) {
  if (access.is_away() || !access.speaks() || access.opened() == nullptr) return;
  const Result<std::vector<SetName>> completed =
      run_guarded([&] { return complete_leftover_parts(*access.opened(), world.job); });
  if (!completed.ok()) {
    world.warnings.add(completed.status().with_context("a checkpoint that was nearly complete could not be completed"));
  }
}

/// The number of a set whose record cannot be read: that behind all which were committed before it. So it is tried, and
/// what is wrong is said, before a run goes on from what it had left behind.
Result<uint64_t> number_by_age(const Store& store, const std::string& job, uint64_t unread,
                               const std::vector<StoredStep>& others) {
  VARVE_ASSIGN(const std::vector<uint64_t> by_age, Catalog(store).steps_by_age(job));
  const auto end = std::find(by_age.begin(), by_age.end(), unread);
  uint64_t newest = 0;
  for (const StoredStep& other : others) {
    if (std::find(by_age.begin(), end, other.step) != end) newest = std::max(newest, other.number);
  }
  return newest + 1;
}

/// The job's sets, as this rank sees them. Collective.
Result<std::vector<StoredStep>> list_steps(StoreLevel& level, const LevelWorld& world) {
  StoreAccess& access = level.access();
  std::vector<StoredStep> sets;
  const Status listed = run_guarded([&]() -> Status {
    if (access.is_away() || (!level.spec().is_of_node() && world.ranks.rank() != 0)) return {};
    PatientReads reads(*access.opened(), world.clock);
    const Store& store = *access.opened();
    VARVE_ASSIGN(const std::vector<uint64_t> steps, reads([&] { return Catalog(store).steps(world.job); }));
    std::vector<size_t> unread;
    for (const uint64_t step : steps) {
      StoredStep& set = sets.emplace_back();
      set.step = step;
      if (!access.speaks()) continue;
      const Result<SetRecord> record = reads([&] { return Catalog(store).read({world.job, step}); });
      if (!record.ok()) {
        unread.push_back(sets.size() - 1);
        continue;
      }
      const uint64_t ranks = record->run_ranks != 0 ? record->run_ranks : record->rank_count;
      set = {step, record->number, static_cast<uint32_t>(ranks), record->created_s, record->run};
    }
    for (const size_t i : unread) {
      VARVE_ASSIGN(sets[i].number, reads([&] { return number_by_age(store, world.job, sets[i].step, sets); }));
    }
    return {};
  });
  VARVE_TRY(access.agree_on(listed));
  if (!listed.ok()) sets.clear();
  return sets;
}
}  // namespace

Result<std::vector<RestartCandidate>> find_candidates(const Levels& levels) {
  LevelWorld& world = levels.world();
  // What a rank completes is seen by all who list later. What nodes have in parts was made sets of, if it is whole
  // (complete_left_parts()); of what is not, no node is to have a share that seems to be owed to other levels.
  for (const StoreLevel* const level : levels.stores()) {
    if (!level->spec().is_of_node()) complete_leftovers(level->access(), world);
  }
  std::vector<MemoryStep> snapshots;
  std::vector<StoreSteps> sets;
  // This is also the barrier that the line above needs.
  VARVE_TRY(agree(world.ranks, run_guarded([&] {
                    for (uint32_t ordinal = 0; ordinal < levels.all().size(); ++ordinal) {
                      for (const MemoryStep& step : levels.at(ordinal).snapshots()) snapshots.push_back(step);
                      const StoreLevel* const level = levels.at(ordinal).as_store();
                      if (level == nullptr) continue;
                      StoreSteps& of_store = sets.emplace_back();
                      of_store.level = ordinal;
                      if (levels.stores().size() > 1 || level->spec().is_of_node()) of_store.place = level->name();
                    }
                  })));
  for (StoreSteps& of_store : sets) {
    VARVE_ASSIGN(of_store.steps, list_steps(*levels.at(of_store.level).as_store(), world));
  }
  return agree_on_candidates(world.ranks, snapshots, std::move(sets));
}

namespace {
/// Of the nodes' own stores: whether these sets (at least one) never were whole, as the run with which the job began
/// ended before all nodes had saved its first one: some node lacks each of them, the job began with the runs that made
/// them on all of these nodes, and the oldest is the first that it made. A node where it began with another run, or of
/// which the job knows nothing, may be in the place of one that had them. Collective.
Result<bool> never_were_on_all_nodes(const StoreAccess& own, const LevelWorld& world,
                                     const std::vector<RestartCandidate>& sets) {
  // For each set, and for all stores.
  std::vector<uint64_t> there(sets.size() + 1, 1);
  uint64_t oldest = UINT64_MAX, first = UINT64_MAX;  // numbers: of what is there, and of what these runs have made
  if (own.speaks()) {
    for (size_t i = 0; i < sets.size(); ++i) {
      const Result<SetRecord> record = Catalog(*own.opened()).read({world.job, sets[i].step});
      there[i] = record.status().code() == StatusCode::not_found ? 0 : 1;
      if (record.ok()) oldest = std::min(oldest, record->number);
      for (const UniqueId& run : {sets[i].made_by, record.ok() ? record->run : sets[i].made_by}) {
        const auto begun = std::find_if(own.beginnings().begin(), own.beginnings().end(),
                                        [&run](const JobBeginning& one) { return one.run == run; });
        if (begun != own.beginnings().end()) {
          first = std::min(first, begun->first_number);
        } else {
          there.back() = 0;
        }
      }
    }
  }
  there.insert(there.end(), {oldest, first});
  VARVE_TRY(world.ranks.all_min(there));
  const auto all_stores = there.end() - 3;
  return there[there.size() - 2] == there.back() && *all_stores == 1 && std::count(there.begin(), all_stores, 1) == 0;
}
}  // namespace

Result<bool> never_were_whole(Levels& levels, const std::vector<RestartCandidate>& candidates) {
  const bool only_of_nodes = std::all_of(candidates.begin(), candidates.end(), [&](const RestartCandidate& candidate) {
    return levels.at(candidate.level).spec().is_of_node();
  });
  if (candidates.empty() || !only_of_nodes) return false;
  VARVE_ASSIGN(const bool never, never_were_on_all_nodes(levels.nearest().access(), levels.world(), candidates));
  for (const RestartCandidate& candidate : candidates) {
    if (never) levels.note_found(levels.nearest(), candidate.step, Found::damaged);
  }
  return never;
}

Status check_all_were_reached(const Levels& levels) {
  const std::vector<StoreLevel*>& stores = levels.stores();
  const auto away =
      std::find_if(stores.begin(), stores.end(), [](const StoreLevel* level) { return level->access().is_away(); });
  if (away == stores.end()) return {};
  const Status& why = (*away)->access().why_away();
  return follow_first(levels.world().ranks,
                      Status::io_error(fmt::format("no whole checkpoint is in the levels that can be reached, and {} "
                                                   "cannot: {}",
                                                   (*away)->name(), why.message()),
                                       std::string(why.subject()),
                                       "try again when it is there, or take it out of the levels to start anew"));
}

void bring_behind(const Levels& levels, const RestartCandidate& taken,
                  const std::vector<RestartCandidate>& candidates) {
  const Store* const nearest = levels.nearest().access().opened();
  if (nearest == nullptr) return;
  std::optional<uint64_t> number;  // the set's, once it has been read
  for (uint32_t ordinal = 0; ordinal < levels.all().size(); ++ordinal) {
    const bool has_it = std::any_of(candidates.begin(), candidates.end(), [&](const RestartCandidate& candidate) {
      return !candidate.memory_run && candidate.level == ordinal && candidate.is_same_checkpoint(taken);
    });
    StoreLevel* const level = levels.at(ordinal).as_store();
    if (level == nullptr || level == &levels.nearest() || has_it) continue;
    if (!number) {
      const Result<SetRecord> record = Catalog(*nearest).read({levels.world().job, taken.step});
      if (!record.ok()) return;
      number = record->number;
    }
    level->accept({.step = taken.step, .number = *number, .everywhere = true});
  }
}

}  // namespace varve
