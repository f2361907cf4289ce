#include "level/redundancy_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "comm/agreement.h"
#include "comm/communicators.h"
#include "core/bytes.h"
#include "core/guarded.h"
#include "level/levels.h"
#include "level/retention.h"
#include "level/stand_ins.h"
#include "redundancy/node_folder.h"
#include "redundancy/node_redundancy.h"
#include "redundancy/parity_group.h"
#include "store/catalog.h"

namespace varve {

namespace {
/// The step of a leader that will come with no more sets.
constexpr uint64_t kEnded = UINT64_MAX;

/// Messages between the leaders of nodes have tags from this one on, above all others of ours.
constexpr uint32_t kLeadersTag = 1024;
/// And, where they have stand-ins, from this one on.
constexpr uint32_t kStandInsTag = 2048;

struct Arrival {
  uint64_t step = 0;
  bool saved = false;
};

Result<Arrival> decode_arrival(ByteSpan bytes) {
  ByteReader in(bytes);
  Arrival arrival;
  VARVE_ASSIGN(arrival.step, in.le64());
  VARVE_ASSIGN(const uint8_t saved, in.u8());
  arrival.saved = saved == 1;
  return arrival;
}
}  // namespace

Status RedundancyLevel::prepare_on_node() {
  const size_t node_count = world_.seat.nodes.size();
  if (node_count < spec_.redundancy.nodes_min()) VARVE_TRY(take_fewer_nodes());
  if (node_count < 2) {
    return agree(world_.ranks, run_guarded([this] {
                   return LevelStore::prepare_parent(world_.files, store_.spec(), store_.access().own_path());
                 }));
  }
  std::array<uint64_t, 1> concurrent = {world_.ranks.concurrent() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_min(concurrent));
  if (concurrent[0] == 0) {
    return Status::unsupported("redundancy over the nodes needs MPI_THREAD_MULTIPLE", name(),
                               "initialise MPI with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)");
  }
  return agree(world_.ranks, world_.speaks_for_node() ? restore() : Status());
}

Status RedundancyLevel::take_fewer_nodes() {
  const auto node_count = static_cast<uint32_t>(world_.seat.nodes.size());
  const std::string needs =
      fmt::format("redundancy needs {} nodes, and this run has {}", spec_.redundancy.nodes_min(), node_count);
  // A job that begins has time to say what it wants; one that has lost nodes is to go on.
  const auto has_sets = [this] {
    const Result<std::vector<SetName>> own = list_redundancy(place(), world_.job);
    if (own.ok() && !own->empty()) return true;
    // What was protected may have been replaced by what this node has made alone since.
    const Result<std::unique_ptr<Store>> store = Store::open(world_.files, store_.access().own_path());
    const Result<std::vector<uint64_t>> steps =
        store.ok() ? Catalog(**store).steps(world_.job) : Result<std::vector<uint64_t>>(store.status());
    return steps.ok() && !steps->empty();
  };
  std::array<uint64_t, 1> goes_on = {world_.speaks_for_node() && has_sets() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(world_.ranks.all_max(goes_on));
  const std::optional<Redundancy> fewer = spec_.redundancy.of_nodes(node_count);
  if (goes_on[0] == 0) {
    return Status::invalid_argument(
        needs, name(), fewer ? fmt::format("use more nodes, or {}", fewer->text()) : "use more nodes, or none of it");
  }
  if (fewer) redundancy_ = *fewer;
  if (world_.ranks.rank() == 0) {
    world_.warnings.add(
        Status::unsupported(fmt::format("{}: it goes on with {}", needs, fewer ? fewer->text() : "none"), name()));
  }
  return {};
}

/// All leaders come here, or the others would wait.
Status RedundancyLevel::restore() {
  std::vector<uint32_t> leaders;
  for (const SeatNode& node : world_.seat.nodes) leaders.push_back(node.leader);
  VARVE_ASSIGN(leaders_, make_subset_communicator(world_.ranks, leaders, kLeadersTag));
  const Status parent = LevelStore::prepare_parent(world_.files, store_.spec(), store_.access().own_path());
  RestoreLostOptions options;
  options.job = world_.job;
  VARVE_ASSIGN(std::vector<RestoredSet> sets, restore_lost(*leaders_, place(), options));
  uint64_t nodes_missing = 0;
  for (const RestoredSet& set : sets) nodes_missing = std::max(nodes_missing, set.nodes_missing);
  if (nodes_missing > 0) {
    VARVE_ASSIGN(
        sets, restore_with_stand_ins(world_.ranks, kStandInsTag, *leaders_, leaders, place(), nodes_missing, options));
  } else if (std::all_of(sets.begin(), sets.end(), [](const RestoredSet& set) { return set.status.ok(); })) {
    drop_stand_ins();
  }
  for (const RestoredSet& set : sets) {
    for (const std::string& line : set.rebuilt) world_.warnings.add(Status::corrupt(line, set.set.to_string()));
    if (!set.status.ok()) {
      world_.warnings.add(
          set.status.with_context(fmt::format("{} cannot be rebuilt from other nodes", set.set.to_string())));
    }
    const MutexLock lock(mutex_);
    if (set.status.ok()) protected_.insert(set.set.step);
  }
  return parent;
}

void RedundancyLevel::drop_stand_ins() {
  const Status removed = remove_stand_ins(world_.files, store_.access().own_path(), world_.job);
  if (!removed.ok())
    world_.warnings.add(removed.with_context("what stood in for nodes that are gone could not be removed"));
}

Result<std::unique_ptr<RankImage>> RedundancyLevel::image(const RestartCandidate&, const RankWish&) {
  return Status::not_found("redundancy has no sets of its own", name());
}

/// What is mended is not what was protected. What is damaged, or left behind, stays protected until a new set takes its
/// place: what could not be rebuilt, or read, now, as a disk was full, or a node away, may be at the next start.
void RedundancyLevel::note_found(const Level& at, uint64_t step, Found found) {
  if (&at != &store_) return;
  if (found == Found::mended)
    return before_drop(step).ignore("what is left of it is refused when it does not fit the new set");
  const MutexLock lock(mutex_);
  const bool is_to_be_replaced = found == Found::damaged || found == Found::left_behind;
  if (is_to_be_replaced && newest_ && *newest_ >= step) newest_.reset();
}

void RedundancyLevel::accept(const NewSet& set) {
  try {
    meet_and_protect(set);
  } catch (...) {
    // Others would wait for what this one does next.
    broken_ = true;
    world_.ranks.revoke();
    record(status_from_current_exception(), set.step);
  }
}

void RedundancyLevel::meet_and_protect(const NewSet& set) {
  if (set.outcome.ok()) {
    const MutexLock lock(mutex_);
    protected_.erase(set.step);  // what is protected is the set whose place it has taken
  }
  if (!leaders_ || !(set.everywhere || is_due(spec_, set.number))) return;
  const uint64_t step = set.step;
  const Result<Meeting> met = meet(step, set.outcome.ok());
  if (!met.ok()) return record(met.status(), step);
  switch (*met) {
    case Meeting::all_have_it: {
      world_.sets.note_complete(step);
      const Status outcome = protect_now(step);
      if (!outcome.ok()) record(outcome.with_context(SetName{world_.job, step}.to_string()), step);
      return;
    }
    case Meeting::not_all_have_it:
    case Meeting::others_went_on:
      record(Status::io_error("not all nodes have the set", SetName{world_.job, step}.to_string()), step);
      return;
  }
}

Result<RedundancyLevel::Meeting> RedundancyLevel::meet(uint64_t step, bool saved) {
  ByteVector mine;
  ByteWriter out(mine);
  out.le64(step);
  out.u8(saved ? 1 : 0);
  for (;;) {
    if (broken_) return Status::io_error("the nodes cannot be reached");
    const Result<std::vector<ByteVector>> gathered = leaders_->all_gather(mine);
    broken_ = !gathered.ok();
    VARVE_TRY(gathered.status());
    bool together = true, all_saved = true;
    uint64_t farthest = step;
    for (const ByteVector& bytes : *gathered) {
      VARVE_ASSIGN(const Arrival arrival, decode_arrival(bytes));
      together = together && arrival.step == step;
      all_saved = all_saved && arrival.saved;
      farthest = std::max(farthest, arrival.step);
    }
    if (together) return all_saved ? Meeting::all_have_it : Meeting::not_all_have_it;
    if (farthest > step) return Meeting::others_went_on;
  }
}

Status RedundancyLevel::protect_now(uint64_t step) {
  VARVE_TRY(protect_set(*leaders_, place(), {world_.job, step}, redundancy_).status());
  {
    const MutexLock lock(mutex_);
    newest_ = step;
    protected_.insert(step);
  }
  if (world_.note_level) world_.note_level({.what = LevelNews::What::arrived, .level = name(), .step = step});
  // In any case, of what no node has any more: a node that has only that has nothing to drop it with.
  VARVE_ASSIGN(const std::vector<SetName> given_up,
               retain_redundancy(*leaders_, place(), world_.job, spec_.keep.value_or(UINT64_MAX),
                                 [this](uint64_t other) { return store_.is_made_anew(other); }));
  const MutexLock lock(mutex_);
  for (const SetName& set : given_up) protected_.erase(set.step);
  return {};
}

Status RedundancyLevel::before_drop(uint64_t step) {
  // A lone node, too, may have some from before.
  if (!world_.speaks_for_node()) return {};
  {
    const MutexLock lock(mutex_);
    protected_.erase(step);
    if (newest_ == step) newest_.reset();
  }
  return drop_redundancy(place(), {world_.job, step});
}

bool RedundancyLevel::protects(uint64_t step) const {
  const MutexLock lock(mutex_);
  return protected_.contains(step);
}

void RedundancyLevel::stop() {
  if (!leaders_) return;
  if (const Status met = meet(kEnded, false).status(); !met.ok()) record(met);
}

/// What stands in for other nodes is read by restarts until then.
Status RedundancyLevel::end(Ending ending) {
  if (leaders_ && ending == Ending::of_run) drop_stand_ins();
  return {};
}

LevelProgress RedundancyLevel::progress(const RunNews&) const {
  const MutexLock lock(mutex_);
  return {.level = name(), .newest = newest_, .last_error = last_error_};
}

void RedundancyLevel::record(const Status& failure, std::optional<uint64_t> step) {
  const Status what = failure.with_context(redundancy_.text());
  if (world_.note_level && step)
    world_.note_level({.what = LevelNews::What::failed, .level = name(), .step = step, .why = failure});
  world_.warnings.add(what);
  const MutexLock lock(mutex_);
  last_error_ = what;
}

Result<LevelContents> RedundancyLevel::contents(const Store* nearest) {
  LevelContents there;
  const std::string path = store_.access().own_path();
  VARVE_ASSIGN(const std::vector<SetName> sets, list_redundancy({&world_.files, path, world_.node}, ""));
  std::map<std::string, std::vector<uint64_t>> steps_of;
  for (const SetName& set : sets) {
    const Result<FileStatus> parity = world_.files.stat(join_path(NodeFolder::set_path(path, set), kParityFileName));
    if (!parity.ok()) continue;  // it is being made, or was given up
    there.bytes += parity->bytes;
    steps_of[set.job].push_back(set.step);
  }
  for (auto& [job, steps] : steps_of) {
    std::sort(steps.begin(), steps.end());
    LevelContents::Job& entry = there.jobs.emplace_back();
    entry = {.job = job, .sets = steps.size(), .newest = steps.back()};
    if (nearest != nullptr) {
      const auto is_there = [&protects = steps](uint64_t step) {
        return std::binary_search(protects.begin(), protects.end(), step);
      };
      VARVE_ASSIGN(entry.behind, sets_ahead(*nearest, job, is_there));
    }
  }
  return there;
}

// The kind

namespace {
Status take_scheme(LevelSpec& level, std::string_view word) {
  VARVE_ASSIGN(level.redundancy, Redundancy::parse(word));
  return {};
}
}  // namespace

constinit const LevelKind kRedundancyLevel{
    .form = "partner, xor:G, rs:K+M",
    .words = {"partner", "xor:", "rs:"},
    .position = LevelKind::Position::behind_node,
    .position_rule = "it protects a local level, and stands right behind it",
    .holds_sets = false,
    .takes_bandwidth = false,
    .take = take_scheme,
    .name = [](const LevelSpec& level) { return level.redundancy.text(); },
    .make = [](const LevelSpec& spec, LevelWorld& world, const Levels& before) -> std::unique_ptr<Level> {
      return std::make_unique<RedundancyLevel>(spec, world, before.nearest());
    },
};

}  // namespace varve
