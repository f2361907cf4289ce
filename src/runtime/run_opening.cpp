// Opening a session: the options, the levels, the memory, stage 2, in this order, each agreed on by all ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "comm/agreement.h"
#include "runtime/placement.h"
#include "runtime/remote_member.h"
#include "runtime/run_session.h"

namespace varve {

namespace {
constexpr const char* kNodeVariable = "VARVE_NODE";

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
             .key_file = settings_.key_file,
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

}  // namespace varve
