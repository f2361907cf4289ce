#include "runtime/stage_one.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <utility>

#include "comm/agreement.h"
#include "level/memory_level.h"
#include "level/store_access.h"
#include "runtime/run_session.h"

namespace varve {

std::chrono::nanoseconds bounded_limit(std::chrono::duration<double> limit) {
  constexpr double kHundredYears = 100.0 * 365 * 24 * 3600;
  const std::chrono::duration<double> bounded(std::clamp(limit.count(), 0.0, kHundredYears));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(bounded);
}

// What dead runs left

Status LeftMemory::find(const std::vector<SegmentFamily>& places, const UniqueId& own_run) {
  places_ = places;
  VARVE_ASSIGN(runs_, find_left_runs(places, own_run));
  remains_ = !runs_.runs.empty();
  return {};
}

void LeftMemory::add_own(std::vector<LeftSnapshot> snapshots) {
  runs_.snapshots.resize(remains_ ? runs_.snapshots.size() - own_count_ : 0);
  own_count_ = snapshots.size();
  std::move(snapshots.begin(), snapshots.end(), std::back_inserter(runs_.snapshots));
}

Result<bool> LeftMemory::drop(uint64_t step, bool removes) {
  add_own({});
  bool found = false;
  for (const LeftSnapshot& snapshot : runs_.snapshots) {
    if (snapshot.checkpoint.step != step) continue;
    found = true;
    if (removes) VARVE_TRY(snapshot.remove());
  }
  std::erase_if(runs_.snapshots, [step](const LeftSnapshot& snapshot) { return snapshot.checkpoint.step == step; });
  return found;
}

bool LeftMemory::has_newer_than(const std::optional<RestartCandidate>& taken,
                                const std::vector<RestartCandidate>& rejected) const {
  const auto end = runs_.snapshots.end() - static_cast<ptrdiff_t>(own_count_);
  return std::any_of(runs_.snapshots.begin(), end, [&](const LeftSnapshot& left) {
    if (left.ranks_here == left.rank_count) return false;
    const CheckpointId& id = left.checkpoint;
    RestartCandidate one{.step = id.step, .memory_run = left.owner.run, .number = id.number};
    one.made_by = id.run;
    const bool newer = !taken || std::pair(one.number, one.step) > std::pair(taken->number, taken->step);
    return newer && std::none_of(rejected.begin(), rejected.end(),
                                 [&](const RestartCandidate& other) { return one.is_same_checkpoint(other); });
  });
}

void LeftMemory::remove() {
  if (!remains_) return;
  remains_ = false;
  const Status removed = remove_left_runs(places_, runs_.runs);
  if (!removed.ok()) warnings_.add(removed.with_context("the memory of an earlier run could not be removed"));
}

// The memory for snapshots, and what happens where it is short

namespace {
std::string absolute_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path made = std::filesystem::absolute(path, error);
  return error ? path : made.string();
}

std::string scratch_folder(const SettingsSources& sources) {
  const auto said = sources.environment.find("TMPDIR");
  const bool is_said = said != sources.environment.end() && !said->second.empty();
  return is_said ? absolute_path(said->second) : "/tmp";
}

std::string folder_beside(const std::string& store) { return parent_path(absolute_path(store)); }

/// Where snapshots go that have no room in memory, as the option says. The same on all ranks of a node: on disks of the
/// node before those that all share. Collective.
Result<std::vector<std::string>> choose_spill_folders(const std::string& option, const SettingsSources& sources,
                                                      const LevelWorld& world, const Levels& levels) {
  if (option == "none") return std::vector<std::string>();
  if (option != "auto") return std::vector<std::string>{absolute_path(option)};
  const std::string scratch = scratch_folder(sources);
  VARVE_ASSIGN(const ByteVector told, world.ranks.broadcast(as_bytes(scratch), 0));
  std::vector<std::string> folders;
  if (world.has_node_level) folders.push_back(folder_beside(levels.nearest().access().own_path()));
  folders.emplace_back(as_text(told));
  for (const StoreLevel* const level : levels.stores()) {
    if (level->spec().is_of_node() || level->spec().is_on_servers() || level->access().path().empty()) continue;
    folders.push_back(folder_beside(level->access().path()));
  }
  return folders;
}

RankSeat seat_of(const GroupPlan& plan, uint32_t rank) {
  RankSeat seat;
  seat.nodes.clear();
  for (const RankNode& node : plan.nodes) seat.nodes.push_back({node.name, node.leader()});
  seat.own_node = plan.own_node;
  seat.group = plan.own;
  seat.group_of_node = plan.own_of_node();
  seat.leads_group = plan.own_group().leader() == rank;
  return seat;
}
}  // namespace

std::vector<std::string> expected_spill_folders(const Settings& settings, const SettingsSources& sources) {
  const std::string& option = settings.snapshots.spill_folder;
  if (option == "none") return {};
  if (option != "auto") return {absolute_path(option)};
  std::vector<std::string> folders{scratch_folder(sources)};
  for (const LevelSpec& level : settings.levels) {
    if (level.holds_sets() && !level.is_on_servers())
      folders.push_back(folder_beside(LevelStore::path_of(level, sources.node())));
  }
  return folders;
}

Status StageOne::open(const SessionEnvironment& environment, const Levels& levels) {
  run_ = world_.run;
  const StoreLevel& nearest = levels.nearest();
  SegmentFamily home = job_memory(settings_.snapshots.shared_memory, settings_.job, nearest.spec(),
                                  nearest.access().path(), world_.node);
  VARVE_ASSIGN(home.spill_folders,
               choose_spill_folders(settings_.snapshots.spill_folder, environment.sources, world_, levels));
  const std::vector<std::string>& spill_folders = home.spill_folders;
  family_ = home;
  Status made = make_memory(environment, settings_.snapshots.shared_memory, /*restartable=*/true);
  const Status why = made;
  // Not even the little that says how far each rank is has room there, or there is no such memory: all goes elsewhere.
  const bool may_go = SnapshotMemory::lacks_room(made) || made.code() == StatusCode::not_found ||
                      made.code() == StatusCode::unsupported;
  for (size_t i = 0; i < spill_folders.size() && !made.ok() && may_go; ++i) {
    const auto next = spill_folders.begin() + static_cast<std::ptrdiff_t>(i);
    family_.spill_folders.assign(next + 1, spill_folders.end());
    made = make_memory(environment, *next, is_memory_folder(*next));
    if (!made.ok()) continue;
    notice_(why.with_context(
        fmt::format("shared memory cannot be used, so that snapshots are made in {}", family_.folder)));
  }
  places_ = home.memory_places(family_.folder);
  return made.ok() ? made : why;
}

/// And finds out who shares it. The same outcome on all ranks.
Status StageOne::make_memory(const SessionEnvironment& environment, const std::string& folder, bool restartable) {
  Communicator& ranks = world_.ranks;
  family_.folder = folder;
  Result<RankPlace> place = environment.find_place(folder);
  if (place.ok() && !world_.node.empty()) place = at_named_node(*place, world_.node);
  VARVE_TRY(agree(ranks, place.status()));
  GroupRule rule = settings_.group;
  rule.stay_on_nodes = world_.has_node_level;
  VARVE_ASSIGN(plan_, agree_on_groups(ranks, *place, rule));
  world_.seat = seat_of(plan_, ranks.rank());
  world_.work.load_threads = std::max(1u, processor_count() / plan_.node_rank_count);
  VARVE_ASSIGN(free_processors_, agree_on_free_processors(ranks, plan_));

  SnapshotOptions options;
  options.rank_count = ranks.rank_count();
  const WhenBusy when_busy = settings_.snapshots.when_busy;
  options.slots = when_busy == WhenBusy::two_slots || when_busy == WhenBusy::automatic ? 2 : 1;
  options.second_is_extra = when_busy == WhenBusy::automatic;
  options.machine_rank_count = plan_.node_rank_count;
  options.copy_threads = std::max(1u, processor_count() / plan_.node_rank_count);
  options.restartable = restartable;
  Result<std::unique_ptr<SnapshotMemory>> memory = SnapshotMemory::create(owner_of(ranks.rank()), options);
  VARVE_TRY(agree(ranks, memory.status()));
  memory_ = std::move(*memory);
  world_.warnings.add(plan_.warnings);
  return {};
}

void StageOne::reserve() {
  if (shortage_ == Shortage::unknown) shortage_ = Shortage::to_be_told;
  if (variables_.empty()) return;
  memory_->reserve(variables_).ignore("what is wrong with the variables is an error of the first checkpoint");
}

Status StageOne::tell_shortage() {
  shortage_ = Shortage::told;
  const Status shortage = memory_->take_shortage();
  Communicator& ranks = world_.ranks;
  VARVE_ASSIGN(const std::vector<RankFailure> shortages, gather_failures(ranks, shortage));
  if (ranks.rank() == 0 && !shortages.empty()) {
    const RankFailure& first = shortages.front();
    notice_(ranks.rank_count() == 1 ? first.what : first.what.with_context(fmt::format("rank {}", first.rank)));
  } else if (!shortage.ok()) {
    world_.warnings.add(shortage);
  }
  return {};
}

// One checkpoint

Result<bool> StageOne::take_slot(Persistence persistence) {
  if (shortage_ == Shortage::to_be_told) VARVE_TRY(tell_shortage());
  if (settings_.snapshots.when_busy == WhenBusy::skip && persistence == Persistence::later) {
    // Together: a set of which one rank leaves out its part is never complete.
    std::array<uint64_t, 1> busy = {memory_->has_free_slot() ? uint64_t{0} : uint64_t{1}};
    VARVE_TRY(world_.ranks.all_max(busy));
    return busy[0] == 0;
  }
  const Status waited = memory_->wait_for_free_slot(wait_limit());
  if (waited.code() != StatusCode::busy) VARVE_TRY(waited);
  VARVE_TRY(waited.with_context(fmt::format("{} is still writing an earlier checkpoint", plan_.group_name(plan_.own))));
  return true;
}

void StageOne::skip(uint64_t step) {
  memory_->skip(variables_);
  memory_->group().give_up(step);
}

Result<std::vector<LeftSnapshot>> StageOne::own_snapshots() const {
  std::vector<SegmentOwner> owners;
  for (const uint32_t rank : plan_.node().ranks) owners.push_back(owner_of(rank));
  return find_snapshots(owners);
}

void StageOne::forget_snapshots(const std::optional<CheckpointId>& kept) {
  memory_->forget(variables_, kept);
  const Result<std::vector<LeftSnapshot>> own = own_snapshots();
  has_snapshots_ = !own.ok() || !own->empty();
}

Result<SnapshotCost> StageOne::copy(const CheckpointId& checkpoint, double begin_seconds) {
  const BlockedTime::Part waits(blocked_, BlockedCause::copy);
  const double copy_begin = world_.clock.seconds();
  VARVE_TRY(fill(checkpoint));
  has_snapshots_ = true;
  SnapshotCost cost;
  cost.bytes = cost.copied_bytes = variables_.image().image_bytes;
  for (size_t i = 0; i < variables_.memory().size(); ++i) {
    if (variables_.memory()[i].lent_grid) cost.copied_bytes -= variables_.image().variables[i].bytes;
  }
  const double end = world_.clock.seconds();
  cost.copy_seconds = end - copy_begin;
  cost.blocked_seconds = end - begin_seconds;
  return cost;
}

Status StageOne::fill(const CheckpointId& checkpoint) {
  Status made = memory_->fill(checkpoint, variables_);
  if (made.code() == StatusCode::busy) {
    // One of two slots was given up, and the other is being written.
    const BlockedTime::Part waits(blocked_, BlockedCause::room);
    VARVE_TRY(memory_->wait_for_free_slot(wait_limit()));
  }
  if (made.code() == StatusCode::busy) made = memory_->fill(checkpoint, variables_);
  if (SnapshotMemory::lacks_room(made)) {
    const BlockedTime::Part waits(blocked_, BlockedCause::store);
    made = memory_->show(checkpoint, variables_, wait_limit());
  }
  if (const Status shortage = memory_->take_shortage(); !shortage.ok()) notice_(shortage);
  return made;
}

}  // namespace varve
