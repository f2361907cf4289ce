// The memory for snapshots, and what happens where it is short.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "comm/agreement.h"
#include "level/job_memory.h"
#include "runtime/placement.h"
#include "runtime/run_session.h"

namespace varve {

namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path made = std::filesystem::absolute(path, error);
  return error ? path : made.string();
}
}  // namespace

/// The same on all ranks of a node: on disks of the node before those that all share. Collective.
Result<std::vector<std::string>> RunSession::choose_spill_folders() {
  if (settings_.snapshot_folder == "none") return std::vector<std::string>();
  if (settings_.snapshot_folder != "auto") return std::vector<std::string>{absolute(settings_.snapshot_folder)};
  const auto said = environment_.sources.environment.find("TMPDIR");
  const bool is_said = said != environment_.sources.environment.end() && !said->second.empty();
  const std::string scratch = is_said ? absolute(said->second) : "/tmp";
  VARVE_ASSIGN(const ByteVector told, ranks_->broadcast(as_bytes(scratch), 0));
  std::vector<std::string> folders;
  if (world_.has_node_level) folders.push_back(parent_path(absolute(levels_.nearest().own_path())));
  folders.emplace_back(as_text(told));
  for (const StoreLevel* const level : levels_.stores()) {
    if (level->is_of_node() || level->spec().is_on_servers() || level->path().empty()) continue;
    folders.push_back(parent_path(absolute(level->path())));
  }
  return folders;
}

Status RunSession::prepare_memory() {
  const StoreLevel& nearest = levels_.nearest();
  family_ = job_memory(settings_.shared_memory, settings_.job, nearest.spec(), nearest.path(), world_.node);
  VARVE_ASSIGN(const std::vector<std::string> spill_folders, choose_spill_folders());
  family_.spill_folders = spill_folders;
  Status made = make_memory_in(settings_.shared_memory, /*restartable=*/true);
  const Status why = made;
  // Not even the little that says how far each rank is has room there: all goes elsewhere.
  for (size_t i = 0; i < spill_folders.size() && !made.ok() && SnapshotMemory::lacks_room(made); ++i) {
    const auto next = spill_folders.begin() + static_cast<std::ptrdiff_t>(i);
    family_.spill_folders.assign(next + 1, spill_folders.end());
    made = make_memory_in(*next, is_memory_folder(*next));
    if (!made.ok()) continue;
    notify(why.with_context(
        fmt::format("shared memory cannot be used, so that snapshots are made in {}", family_.folder)));
  }
  if (!made.ok()) return why;
  // Our own memory is there before we look for others': of two jobs that start together, at least one sees the other.
  Result<LeftRuns> left = find_left_runs(family_, world_.run);
  VARVE_TRY(agree(*ranks_, left.status()));
  left_ = std::move(*left);
  left_runs_remain_ = !left_.runs.empty();
  return {};
}

/// And finds out who shares it. The same outcome on all ranks.
Status RunSession::make_memory_in(const std::string& folder, bool restartable) {
  family_.folder = folder;
  Result<RankPlace> place = environment_.find_place(folder);
  if (place.ok() && !world_.node.empty()) place = at_named_node(*place, world_.node);
  VARVE_TRY(agree(*ranks_, place.status()));
  GroupRule rule = settings_.group;
  rule.stay_on_nodes = world_.has_node_level;
  VARVE_ASSIGN(plan_, agree_on_groups(*ranks_, *place, rule));
  take_seat();
  VARVE_ASSIGN(free_processors_, agree_on_free_processors(*ranks_, place->node, world_.seat.leads_group));

  SnapshotOptions options;
  options.rank_count = ranks_->rank_count();
  options.slots = settings_.when_busy == WhenBusy::two_slots ? 2 : 1;
  options.copy_threads = std::max(1u, processor_count() / plan_.node_rank_count);
  options.restartable = restartable;
  Result<std::unique_ptr<SnapshotMemory>> memory = SnapshotMemory::create(owner_of(ranks_->rank()), options);
  VARVE_TRY(agree(*ranks_, memory.status()));
  memory_ = std::move(*memory);
  warnings_.add(plan_.warnings);
  return {};
}

void RunSession::take_seat() {
  RankSeat& seat = world_.seat;
  seat.nodes.clear();
  for (const RankNode& node : plan_.nodes) seat.nodes.push_back({node.name, node.leader()});
  seat.own_node = plan_.own_node;
  seat.group = plan_.own;
  seat.group_of_node = plan_.own_of_node();
  seat.leads_group = plan_.own_group().leader() == ranks_->rank();
  world_.load_threads = std::max(1u, processor_count() / plan_.node_rank_count);
}

Status RunSession::reserve_memory() {
  Status reserved = variables_.empty() ? Status() : memory_->reserve(variables_);
  // It will be shown instead.
  if (SnapshotMemory::lacks_room(reserved)) reserved = {};
  const Status shortage = memory_->take_shortage();
  VARVE_ASSIGN(const std::vector<RankFailure> shortages, gather_failures(*ranks_, shortage));
  if (ranks_->rank() == 0 && !shortages.empty()) {
    const std::string where = ranks_->rank_count() == 1 ? "" : fmt::format("rank {}: ", shortages.front().rank);
    const Status& first = shortages.front().what;
    notify(
        {first.code(), where + std::string(first.message()), std::string(first.subject()), std::string(first.hint())});
  } else if (!shortage.ok()) {
    warnings_.add(shortage);
  }
  return agree(*ranks_, reserved);
}

Status RunSession::take_snapshot(uint64_t step) {
  Status made = memory_->fill(step, variables_);
  if (made.code() == StatusCode::busy) {
    // One of two slots was given up, and the other is being written.
    VARVE_TRY(memory_->wait_for_free_slot(wait_limit()));
    made = memory_->fill(step, variables_);
  }
  if (SnapshotMemory::lacks_room(made)) made = memory_->show(step, variables_, wait_limit());
  if (const Status shortage = memory_->take_shortage(); !shortage.ok()) notify(shortage);
  return made;
}

}  // namespace varve
