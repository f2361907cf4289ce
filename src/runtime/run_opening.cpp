// Opening a session: the options, the levels, the memory, stage 2, in this order, each agreed on by all ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "comm/agreement.h"
#include "comm/subset_communicator.h"
#include "runtime/own_folder.h"
#include "runtime/placement.h"
#include "runtime/remote_member.h"
#include "runtime/run_session.h"

namespace varve {

namespace {
constexpr const char* kNodeVariable = "VARVE_NODE";

/// Messages between the leaders of nodes have tags from this one on, above all others of ours.
constexpr uint32_t kLeadersTag = 1024;

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
  VARVE_TRY(session->prepare_shared_levels());
  VARVE_TRY(session->prepare_memory());
  VARVE_TRY(session->take_shared_lease());
  VARVE_TRY(session->prepare_node_level());
  VARVE_TRY(session->take_node_lease());
  VARVE_TRY(session->open_levels());
  VARVE_TRY(session->learn_earlier_sets());
  VARVE_TRY(session->prepare_stage_two());
  session->finished_ = false;
  return session;
}

RunSession::RunSession(std::unique_ptr<Communicator> ranks, Settings settings, SessionEnvironment environment)
    : ranks_(std::move(ranks)),
      settings_(std::move(settings)),
      environment_(std::move(environment)),
      clock_(*environment_.clock),
      node_name_(said_node(environment_.sources)),
      cadence_(cadence_rule(settings_), clock_),
      ledger_(clock_),
      schedule_(settings_.levels) {
  warnings_.add(settings_.warnings);
}

bool RunSession::has_node_level() const {
  return std::any_of(settings_.levels.begin(), settings_.levels.end(),
                     [](const LevelSpec& level) { return level.kind == LevelSpec::Kind::local; });
}

/// The store of the own node, if nodes have some. Not before it is known that no other run of the job lives.
Status RunSession::prepare_node_level() {
  if (!has_node_level()) return {};
  const auto is_local = [](const LevelSpec& level) { return level.kind == LevelSpec::Kind::local; };
  const LevelSpec spec = *std::find_if(settings_.levels.begin(), settings_.levels.end(), is_local);
  const std::string path = StoreLevel::path_of(spec, node_name_);
  FileSystem& files = *environment_.files;
  VARVE_TRY(restore_node_levels(spec, path));
  VARVE_TRY(agree(*ranks_,
                  speaks_for_node() ? StoreLevel::prepare(files, spec, path, settings_.key_file).status() : Status()));
  Result<std::unique_ptr<StoreLevel>> level = StoreLevel::open(files, spec, path, settings_.key_file, clock_);
  VARVE_TRY(agree(*ranks_, level.status()));
  levels_.front() = std::move(*level);
  return check_own_folders(*ranks_, plan_, files, path, run_);
}

/// Lets the nodes rebuild each other's stores, if they have redundancy.
Status RunSession::restore_node_levels(const LevelSpec& local, const std::string& path) {
  const auto spec = std::find_if(settings_.levels.begin(), settings_.levels.end(),
                                 [](const LevelSpec& level) { return level.kind == LevelSpec::Kind::redundancy; });
  if (spec == settings_.levels.end()) return {};
  if (plan_.nodes.size() < spec->redundancy.nodes_min()) {
    return Status::invalid_argument(
        fmt::format("redundancy needs {} nodes, and this run has {}", spec->redundancy.nodes_min(), plan_.nodes.size()),
        spec->name());
  }
  std::array<uint64_t, 1> concurrent = {ranks_->concurrent() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks_->all_min(concurrent));
  if (concurrent[0] == 0) {
    return Status::unsupported("redundancy over the nodes needs MPI_THREAD_MULTIPLE", spec->name(),
                               "initialise MPI with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...)");
  }
  Status restored;
  if (speaks_for_node()) {
    restored = StoreLevel::prepare_parent(*environment_.files, local, path);
    Result<std::unique_ptr<SetProtection>> made = make_protection(*spec, path);
    if (made.ok()) protection_ = std::move(*made);
    // All leaders come here, or the others would wait.
    const Status rebuilt = protection_ ? protection_->restore() : made.status();
    if (restored.ok()) restored = rebuilt;
  }
  return agree(*ranks_, restored);
}

Result<std::unique_ptr<SetProtection>> RunSession::make_protection(const LevelSpec& spec, const std::string& path) {
  std::vector<uint32_t> leaders;
  for (const RankNode& node : plan_.nodes) leaders.push_back(node.leader());
  VARVE_ASSIGN(std::unique_ptr<Communicator> subset, make_subset_communicator(*ranks_, leaders, kLeadersTag));
  ProtectionDuty duty;
  duty.place = {environment_.files, path, plan_.node().name};
  duty.job = settings_.job;
  duty.level = spec;
  duty.note_complete = [this](uint64_t step) { job_sets_.note_complete(step); };
  return std::make_unique<SetProtection>(std::move(subset), std::move(duty), warnings_);
}

/// What earlier runs have left at the levels: which sets all nodes have, and what number comes next. Collective.
Status RunSession::learn_earlier_sets() {
  std::array<uint64_t, 1> number = {1};
  for (size_t level = 0; level < levels_.size(); ++level) {
    if (!levels_[level] || !speaks_for(level)) continue;
    const Result<uint64_t> next = Catalog(levels_[level]->store()).next_number(settings_.job);
    // A level that fails now counts again when it is back: numbers only say whose turn it is.
    if (next.ok()) number[0] = std::max(number[0], *next);
  }
  VARVE_TRY(ranks_->all_max(number));
  schedule_.go_on_from(number[0]);
  if (!has_node_level()) return {};
  VARVE_ASSIGN(const std::vector<uint64_t> complete,
               agree_on_complete_sets(*ranks_, speaks_for_node() ? &levels_.front()->store() : nullptr, settings_.job,
                                      plan_.nodes.size()));
  for (const uint64_t step : complete) job_sets_.note_complete(step);
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
  Status started = thread_ ? thread_->start() : Status();
  for (const auto& push : pushes_) {
    if (started.ok()) started = push->start();
  }
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
  if (has_node_level() ? speaks_for_node() : ranks_->rank() == 0) make_pushes();
  return {};
}

/// The way to the levels behind the nearest store: for all of it, if all nodes share it; else for the own node's.
void RunSession::make_pushes() {
  for (size_t level = 1; level < levels_.size(); ++level) {
    PushDuty duty;
    duty.from = &levels_.front()->store();
    duty.to = store_to_push_to(level);
    duty.level = level_places_[level].spec;
    duty.job = settings_.job;
    duty.run = run_;
    if (has_node_level()) {
      duty.ordinal = plan_.own_node;
      duty.count = static_cast<uint32_t>(plan_.nodes.size());
      duty.complete_before = [this](uint64_t step) { return job_sets_.is_complete(step); };
    }
    duty.owed_farther = [this, level](uint64_t step, uint64_t set_number) {
      return std::any_of(pushes_.begin() + static_cast<ptrdiff_t>(level), pushes_.end(),
                         [&](const auto& push) { return push->owes(step, set_number); });
    };
    duty.thread_count = worker_count();
    duty.memory_bytes = settings_.memory_bytes;
    duty.prepare_thread = [this] { place_thread(); };
    pushes_.push_back(std::make_unique<LevelPush>(std::move(duty), warnings_));
  }
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
  return std::make_unique<CheckpointThread>(levels_.front()->slowed(), std::move(duty), std::move(members),
                                            memory_->bell(), warnings_, clock_);
}

CheckpointDuty RunSession::make_duty() {
  CheckpointDuty duty;
  duty.run = run_;
  duty.job = settings_.job;
  duty.ordinal = plan_.own;
  duty.group_count = plan_.count();
  if (has_node_level()) {
    duty.ordinal = plan_.own_of_node();
    duty.group_count = static_cast<uint32_t>(plan_.groups_of_node().size());
    duty.origin = SetOrigin{run_, ranks_->rank_count()};
  }
  duty.save.scheme = settings_.scheme;
  duty.save.codec = settings_.codec;
  duty.save.memory_bytes = settings_.memory_bytes;
  duty.save.thread_count = worker_count();
  duty.save.small_bytes = 0;  // each variable keeps its description
  duty.save.run = run_;
  duty.save.run_ranks = ranks_->rank_count();
  duty.retention = retention_rules();
  duty.wait_seconds = settings_.wait_limit;
  duty.group_name = [this](uint32_t ordinal) {
    return group_name(has_node_level() ? plan_.groups_of_node().at(ordinal) : ordinal);
  };
  duty.what_waits = [this] {
    std::string all;
    for (const auto& push : pushes_) {
      const std::string waits = push->what_waits();
      if (!waits.empty()) all += (all.empty() ? "" : "; ") + waits;
    }
    return all;
  };
  for (const RankGroup& group : plan_.groups) {
    if (group.leader() != ranks_->rank()) duty.siblings.push_back(owner_of(group.leader()));
  }
  // A far server that does not answer must not hold up what is saved near: there, rank 0 alone looks.
  const bool looks = lease_level_ && works_on(static_cast<uint32_t>(*lease_level_)) &&
                     (*lease_level_ == 0 || !level_places_[*lease_level_].spec.is_on_servers());
  const StoreLevel* const lease_level = looks ? levels_[*lease_level_].get() : nullptr;
  duty.may_save = [this, store = lease_level ? &lease_level->store() : nullptr] { return check_lease(store); };
  duty.prepare_thread = [this] { place_thread(); };
  duty.report = [this](const DrainReport& report) { note_drained(report); };
  duty.spread = [this](uint64_t step, const LevelDuty& levels, const Status& outcome) {
    for (const auto& push : pushes_) {
      if (outcome.ok()) push->note_set(step, levels.number, levels.everywhere);
    }
    if (protection_ && (levels.everywhere || is_due(protection_->level(), levels.number)))
      protection_->protect(step, outcome);
  };
  return duty;
}

/// Of the nearest store.
Retention::Rules RunSession::retention_rules() {
  Retention::Rules rules;
  rules.job = settings_.job;
  rules.keep = level_places_.front().spec.keep;
  rules.owed = [this](uint64_t step, uint64_t number) {
    return std::any_of(pushes_.begin(), pushes_.end(), [&](const auto& push) { return push->owes(step, number); });
  };
  if (!has_node_level()) return rules;
  rules.complete = [this](uint64_t step) { return job_sets_.is_complete(step); };
  rules.never_complete = [this](uint64_t step) { return job_sets_.is_never_complete(step); };
  if (protection_) {
    rules.has_redundancy = [this](uint64_t step) { return protection_->protects(step); };
    rules.keep_with_redundancy = protection_->level().keep.value_or(1);
    rules.before_drop = [this](uint64_t step) { return protection_->forget(step); };
    rules.whole_arenas = true;
  }
  return rules;
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
