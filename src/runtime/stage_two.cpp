#include "runtime/stage_two.h"

#include <algorithm>

#include "runtime/group_member.h"
#include "runtime/placement.h"

namespace varve {

namespace {
/// One thread lays down what the workers have hashed and encoded: more than that would wait for it.
constexpr uint32_t kUsefulWorkersMax = 16;

/// Half of what `varve save` lays together: all that a pack passes through on its way is the program's memory, of two
/// packs for each worker, and some more that wait to be written.
constexpr uint64_t kRunPackBytes = 512_KiB;

/// Who works for the checkpoint thread: on free processors, if there are any; else so many that each of the group's
/// ranks is disturbed alike. One of them that falls behind alone holds up the others.
uint32_t worker_count(const Settings& settings, const StageOne& stage_one) {
  if (settings.saving.threads) return static_cast<uint32_t>(*settings.saving.threads);
  const RankGroup& group = stage_one.plan().own_group();
  const ProcessorSet& free = stage_one.free_processors();
  const size_t processors = free.empty() ? processor_count() : free.size();
  return static_cast<uint32_t>(
      std::min({group.members.size() - group.remote.size(), processors, size_t{kUsefulWorkersMax}}));
}
}  // namespace

Status StageTwo::attach(Callbacks callbacks) {
  const uint32_t own = world_.ranks.rank(), leader = stage_one_.plan().own_group().leader();
  world_.work.push_threads = worker_count(settings_, stage_one_);
  if (stage_one_.plan().is_remote(own)) {
    VARVE_ASSIGN(std::unique_ptr<SnapshotView> view, SnapshotView::open(stage_one_.owner_of(own)));
    relay_ = std::make_unique<SnapshotRelay>(world_.ranks, leader, std::move(view));
    return {};
  }
  if (leader != own) return stage_one_.memory().group().attach_leader(stage_one_.owner_of(leader));
  VARVE_ASSIGN(std::vector<std::unique_ptr<GroupMember>> members, open_members());
  CheckpointDuty duty = make_duty();
  duty.may_save = std::move(callbacks.may_save);
  duty.note_published = std::move(callbacks.note_published);
  duty.report = std::move(callbacks.report);
  thread_ = std::make_unique<CheckpointThread>(levels_.nearest().access().slowed(), std::move(duty), std::move(members),
                                               stage_one_.memory().group().bell(), world_.warnings, world_.clock);
  return {};
}

Result<std::vector<std::unique_ptr<GroupMember>>> StageTwo::open_members() const {
  std::vector<std::unique_ptr<GroupMember>> members;
  for (uint32_t rank : stage_one_.plan().own_group().members) {
    if (stage_one_.plan().is_remote(rank)) {
      members.push_back(std::make_unique<RemoteMember>(world_.ranks, rank));
    } else {
      VARVE_ASSIGN(std::unique_ptr<LocalMember> member, LocalMember::open(stage_one_.owner_of(rank)));
      members.push_back(std::move(member));
    }
  }
  return members;
}

CheckpointDuty StageTwo::make_duty() const {
  const GroupPlan& plan = stage_one_.plan();
  CheckpointDuty duty;
  duty.group = {world_.run, settings_.job, plan.own, plan.count()};
  if (world_.has_node_level) {
    duty.group.ordinal = plan.own_of_node();
    duty.group.count = static_cast<uint32_t>(plan.groups_of_node().size());
    duty.origin = SetOrigin{world_.run, world_.ranks.rank_count()};
    duty.has_other_nodes = plan.nodes.size() > 1;
  }
  duty.tells_parts = duty.group.count > 1 && world_.ranks.concurrent();
  duty.save.scheme = settings_.saving.scheme;
  duty.save.codec = settings_.saving.codec;
  duty.adapts_effort = settings_.saving.adapts_effort;
  duty.has_processors = !stage_one_.free_processors().empty();
  duty.save.memory_bytes = settings_.saving.memory_bytes;
  duty.save.pack_bytes = kRunPackBytes;
  duty.save.thread_count = worker_count(settings_, stage_one_);
  duty.save.variables.small_bytes = 0;  // each variable keeps its description
  duty.save.made_by.run = world_.run;
  duty.save.made_by.run_ranks = world_.ranks.rank_count();
  duty.store_was_empty = levels_.nearest().access().was_empty();
  duty.retention = nearest_rules(levels_);
  duty.wait_seconds = settings_.snapshots.wait_limit;
  duty.group_name = [&plan, of_node = world_.has_node_level](uint32_t ordinal) {
    return plan.group_name(of_node ? plan.groups_of_node().at(ordinal) : ordinal);
  };
  duty.what_waits = [this] { return levels_.what_waits(); };
  duty.policy_for = [this](uint64_t step) { return levels_.nearest().policy_for(step); };
  // The first one of the node sees all of them, and the others see the first one.
  const std::vector<uint32_t> of_node = plan.groups_of_node();
  for (const uint32_t group : plan.own_of_node() == 0 ? std::span(of_node) : std::span(of_node).first(1)) {
    if (group != plan.own) duty.siblings.push_back(stage_one_.owner_of(plan.groups[group].leader()));
  }
  duty.stop_slowing = [this] { levels_.nearest().access().stop_slowing(); };
  duty.prepare_thread = [this] { place_thread(false); };
  if (settings_.saving.low_priority && stage_one_.free_processors().empty()) {
    duty.get_out_of_way = [this] { place_thread(true); };
  }
  duty.accept = [this](const NewSet& set) { levels_.accept(set); };
  return duty;
}

Status StageTwo::start(Status before) {
  if (before.ok() && thread_) return thread_->start();
  if (!relay_) return before;
  // Also after a failure: its leader waits for a word of it.
  const Status started = relay_->start();
  return before.ok() ? started : before;
}

void StageTwo::place_thread(bool out_of_way) const {
  const bool low = out_of_way && settings_.saving.low_priority;
  const Status placed = place_calling_thread(stage_one_.free_processors(), low);
  if (!placed.ok()) world_.warnings.add(placed.with_context("the checkpoint thread may get in the program's way"));
}

void StageTwo::note_begin(uint64_t step, double seconds, const LevelDuty& levels) {
  if (thread_) thread_->note_begin(step, seconds, levels);
}

void StageTwo::avoid(const std::set<ArenaId>& arenas) {
  if (thread_) thread_->avoid(arenas);
}

void StageTwo::note_set(uint64_t step, SetState state) {
  if (thread_) thread_->note_set(step, state);
}

void StageTwo::note_parts(uint64_t step, std::vector<ByteVector> parts) {
  if (thread_) thread_->note_parts(step, std::move(parts));
}

uint32_t StageTwo::own_ordinal() const {
  const GroupPlan& plan = stage_one_.plan();
  return world_.has_node_level ? plan.own_of_node() : plan.own;
}

bool StageTwo::makes_sets() const { return own_ordinal() == 0; }

std::vector<uint32_t> StageTwo::leaders_there() const {
  const GroupPlan& plan = stage_one_.plan();
  std::vector<uint32_t> leaders;
  if (world_.has_node_level) {
    for (const uint32_t group : plan.groups_of_node()) leaders.push_back(plan.groups[group].leader());
  } else {
    for (const RankGroup& group : plan.groups) leaders.push_back(group.leader());
  }
  return leaders;
}

void StageTwo::cancel() {
  if (thread_) thread_->cancel();
}

void StageTwo::wait_little_for_others() {
  if (thread_) thread_->wait_little_for_others();
}

void StageTwo::hurry(bool waits) {
  if (thread_) thread_->hurry(waits);
}

void StageTwo::stop(Moment end) {
  if (relay_) relay_->stop();
  if (thread_)
    thread_->stop(std::max(std::chrono::nanoseconds(end - MonotonicClock::now()), std::chrono::nanoseconds(0)));
}

void StageTwo::tidy() {
  if (thread_) thread_->tidy();
}

}  // namespace varve
