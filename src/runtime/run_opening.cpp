// Opening a session: the options, the levels, the memory, stage 2, in this order, each agreed on by all ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iterator>

#include "comm/agreement.h"
#include "level/memory_level.h"
#include "runtime/placement.h"
#include "runtime/run_session.h"
#include "runtime/snapshot_relay.h"

namespace varve {

namespace {
/// One thread lays down what the workers have hashed and encoded: more than that would wait for it.
constexpr uint32_t kUsefulWorkersMax = 16;

CadenceRule cadence_rule(const Settings& settings) {
  return {settings.every_steps, settings.every_seconds, settings.mean_time_between_failures};
}

std::string said_node(const SettingsSources& sources) {
  const auto said = sources.environment.find(kNodeVariable);
  return said == sources.environment.end() ? std::string() : said->second;
}
}  // namespace

Result<std::unique_ptr<RunSession>> RunSession::open(std::unique_ptr<Communicator> ranks, const SessionOptions& options,
                                                     SessionEnvironment environment) {
  if (!ranks) return Status::invalid_argument("a session needs a communicator");
  VARVE_ASSIGN(Settings settings, agree_on_settings(*ranks, options, environment.sources));
  std::unique_ptr<RunSession> session(new RunSession(std::move(ranks), std::move(settings), std::move(environment)));
  VARVE_TRY(session->agree_on_run());
  VARVE_TRY(session->levels_.look());
  VARVE_TRY(session->prepare_memory());
  // Nothing of the job is changed before it is known that no other run of it lives.
  VARVE_TRY(session->take_shared_lease());
  VARVE_TRY(session->levels_.prepare_on_nodes());
  VARVE_TRY(session->take_node_lease());
  VARVE_TRY(session->levels_.open());
  VARVE_ASSIGN(const uint64_t next_number, session->levels_.learn_earlier_sets());
  session->schedule_.go_on_from(next_number);
  VARVE_TRY(session->prepare_stage_two());
  session->finished_ = false;
  return session;
}

RunSession::RunSession(std::unique_ptr<Communicator> ranks, Settings settings, SessionEnvironment environment)
    : ranks_(std::move(ranks)),
      settings_(std::move(settings)),
      environment_(std::move(environment)),
      clock_(*environment_.clock),
      world_{.ranks = *ranks_,
             .files = *environment_.files,
             .clock = clock_,
             .warnings = warnings_,
             .sets = job_sets_,
             .left_runs = left_,
             .job = settings_.job,
             .reach = settings_.reach,
             .node = said_node(environment_.sources),
             .shared_memory = settings_.shared_memory,
             .memory_bytes = settings_.memory_bytes,
             .prepare_thread = [this] { place_thread(); }},
      levels_(settings_.levels, world_),
      cadence_(cadence_rule(settings_), clock_),
      ledger_(clock_),
      schedule_(settings_.levels) {
  warnings_.add(settings_.warnings);
}

/// By a name for this run, the same on all ranks. Collective.
Status RunSession::agree_on_run() {
  const Result<UniqueId> run = ranks_->rank() == 0 ? UniqueId::random() : UniqueId();
  VARVE_TRY(agree(*ranks_, run.status()));
  VARVE_ASSIGN(const ByteVector told, ranks_->broadcast(run->bytes, 0));
  VARVE_ASSIGN(const ByteSpan id, ByteReader(told).bytes(world_.run.bytes.size()));
  std::copy(id.begin(), id.end(), world_.run.bytes.begin());
  return {};
}

Status RunSession::prepare_stage_two() {
  Status prepared = attach();
  if (prepared.ok()) {
    FileSystem* const named = environment_.sources.files;
    FileSystem& files = named != nullptr ? *named : posix_file_system();
    const StopRule rule{settings_.stop_on_signals, settings_.stop_after_seconds, settings_.stop_file};
    Result<StopRequests> stop = StopRequests::start(rule, ranks_->rank() == 0, files, clock_);
    prepared = stop.status();
    if (stop.ok()) stop_.emplace(std::move(*stop));
  }
  VARVE_TRY(agree(*ranks_, prepared));
  world_.push_threads = worker_count();
  Status started = levels_.start();
  if (started.ok() && thread_) started = thread_->start();
  if (relay_) {
    // Also after a failure: its leader waits for a word of it.
    const Status relayed = relay_->start();
    if (started.ok()) started = relayed;
  }
  return agree(*ranks_, started);
}

/// Brings this rank and its checkpoint thread together.
Status RunSession::attach() {
  const uint32_t leader = plan_.own_group().leader();
  if (plan_.is_remote(ranks_->rank())) {
    VARVE_ASSIGN(std::unique_ptr<SnapshotView> view, SnapshotView::open(owner_of(ranks_->rank())));
    relay_ = std::make_unique<SnapshotRelay>(*ranks_, leader, std::move(view));
    return {};
  }
  VARVE_TRY(memory_->attach_leader(owner_of(leader)));
  if (leader == ranks_->rank()) {
    VARVE_ASSIGN(thread_, make_thread());
  }
  return {};
}

/// On a thread of ours, before it works.
void RunSession::place_thread() {
  const Status placed = place_calling_thread(free_processors_, settings_.low_priority);
  if (!placed.ok()) warnings_.add(placed.with_context("the checkpoint thread may get in the program's way"));
}

Result<std::unique_ptr<CheckpointThread>> RunSession::make_thread() {
  std::vector<std::unique_ptr<GroupMember>> members;
  for (uint32_t rank : plan_.own_group().members) {
    if (plan_.is_remote(rank)) {
      members.push_back(std::make_unique<RemoteMember>(*ranks_, rank));
    } else {
      VARVE_ASSIGN(std::unique_ptr<LocalMember> member, LocalMember::open(owner_of(rank)));
      members.push_back(std::move(member));
    }
  }
  CheckpointDuty duty = make_duty();
  return std::make_unique<CheckpointThread>(levels_.nearest().slowed(), std::move(duty), std::move(members),
                                            memory_->bell(), warnings_, clock_);
}

CheckpointDuty RunSession::make_duty() {
  CheckpointDuty duty;
  duty.run = world_.run;
  duty.job = settings_.job;
  duty.ordinal = plan_.own;
  duty.group_count = plan_.count();
  if (world_.has_node_level) {
    duty.ordinal = plan_.own_of_node();
    duty.group_count = static_cast<uint32_t>(plan_.groups_of_node().size());
    duty.origin = SetOrigin{world_.run, ranks_->rank_count()};
  }
  duty.save.scheme = settings_.scheme;
  duty.save.codec = settings_.codec;
  duty.save.memory_bytes = settings_.memory_bytes;
  duty.save.thread_count = worker_count();
  duty.save.small_bytes = 0;  // each variable keeps its description
  duty.save.run = world_.run;
  duty.save.run_ranks = ranks_->rank_count();
  duty.retention = levels_.nearest_rules();
  duty.wait_seconds = settings_.wait_limit;
  duty.group_name = [this](uint32_t ordinal) {
    return group_name(world_.has_node_level ? plan_.groups_of_node().at(ordinal) : ordinal);
  };
  duty.what_waits = [this] { return levels_.what_waits(); };
  duty.policy_for = [this](uint64_t step) { return levels_.nearest().policy_for(step); };
  for (const RankGroup& group : plan_.groups) {
    if (group.leader() != ranks_->rank()) duty.siblings.push_back(owner_of(group.leader()));
  }
  // A far server that does not answer must not hold up what is saved near: there, rank 0 alone looks.
  const bool looks = lease_level_ != nullptr && lease_level_->is_at_work() &&
                     (lease_level_->is_nearest() || !lease_level_->spec().is_on_servers());
  duty.may_save = [this, store = looks ? lease_level_->opened() : nullptr] { return check_lease(store); };
  duty.prepare_thread = world_.prepare_thread;
  duty.report = [this](const DrainReport& report) { note_drained(report); };
  duty.accept = [this](const NewSet& set) { levels_.accept(set); };
  return duty;
}

/// "group 2 of 4 (rank 8 on n1)"
std::string RunSession::group_name(uint32_t ordinal) const {
  const uint32_t leader = plan_.groups[ordinal].leader();
  const auto node = std::find_if(plan_.nodes.begin(), plan_.nodes.end(), [&](const RankNode& one) {
    return std::binary_search(one.ranks.begin(), one.ranks.end(), leader);
  });
  return fmt::format("group {} of {} (rank {} on {})", ordinal + 1, plan_.count(), leader,
                     node != plan_.nodes.end() ? node->name : "a node without a name");
}

/// Who works for the checkpoint thread: on free processors, if there are any; else so many that each of the group's
/// ranks is disturbed alike. One of them that falls behind alone holds up the others.
uint32_t RunSession::worker_count() const {
  if (settings_.threads) return static_cast<uint32_t>(*settings_.threads);
  const RankGroup& group = plan_.own_group();
  const size_t processors = free_processors_.empty() ? processor_count() : free_processors_.size();
  return static_cast<uint32_t>(
      std::min({group.members.size() - group.remote.size(), processors, size_t{kUsefulWorkersMax}}));
}

// The memory for snapshots, and what happens where it is short.

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
    const RankFailure& first = shortages.front();
    notify(ranks_->rank_count() == 1 ? first.what : first.what.with_context(fmt::format("rank {}", first.rank)));
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

// The job's lease, so that one run at a time goes on from its sets and saves new ones.

/// In the nearest store that all ranks share. Before anything of the job is changed.
Status RunSession::take_shared_lease() {
  for (StoreLevel* const level : levels_.stores()) {
    if (level->is_of_node() || level->is_away()) continue;
    // One that has gone away this very moment is no place for it; open() says what that means.
    if (!agree(*ranks_, ranks_->rank() == 0 ? level->store().status() : Status()).ok()) continue;
    return take_lease(*level);
  }
  return {};
}

/// In each node's own, if there is no other.
Status RunSession::take_node_lease() {
  return lease_level_ == nullptr && world_.has_node_level ? take_lease(levels_.nearest()) : Status();
}

Status RunSession::take_lease(StoreLevel& level) {
  lease_level_ = &level;
  Status taken;
  if (level.speaks()) {
    JobLease::Terms terms;
    terms.job = settings_.job;
    terms.run = world_.run;
    terms.take_over = settings_.take_over;
    terms.notice = [this](const Status& what) { notify(what); };
    Result<std::unique_ptr<JobLease>> lease = JobLease::acquire(*level.opened(), std::move(terms), clock_);
    taken = lease.status();
    if (lease.ok()) lease_ = std::move(*lease);
  }
  // Only a run that lives is a reason not to begin. A store that is full may have room later.
  if (!taken.ok() && taken.code() != StatusCode::busy) {
    warnings_.add(
        taken.with_context("this run could not take its job's lease, so that a second one would not notice it"));
    taken = {};
  }
  return agree(*ranks_, taken);
}

Status RunSession::check_lease(const Store* store) const {
  if (lease_) return lease_->check();
  return store != nullptr ? check_job_lease(*store, settings_.job, world_.run) : Status();
}

void RunSession::notify(const Status& warning) {
  warnings_.add(warning);
  if (settings_.print_warnings && ranks_->rank() == 0) fmt::print(stderr, "varve: {}\n", warning.to_string());
}

}  // namespace varve
