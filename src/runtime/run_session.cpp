#include "runtime/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>

#include "comm/agreement.h"
#include "comm/ending_ranks.h"
#include "core/guarded.h"
#include "core/process.h"
#include "level/left_parts.h"
#include "level/memory_level.h"
#include "level/restart_points.h"
#include "runtime/live_file.h"
#include "runtime/node_drain.h"
#include "snapshot/node_note.h"

namespace varve {

namespace {
/// For warnings that a user would easily miss. On rank 0 they are printed, unless the options say otherwise.
std::function<void(const Status&)> notice_of(WarningList& warnings, const Settings& settings,
                                             const Communicator& ranks) {
  return [&warnings, prints = settings.print_warnings && ranks.rank() == 0](const Status& warning) {
    warnings.add(warning);
    if (prints) fmt::print(stderr, "varve: {}\n", warning.to_string());
  };
}

/// A name for this run, the same on all ranks. Collective.
Result<UniqueId> agree_on_run(Communicator& ranks) {
  VARVE_ASSIGN(const ByteVector told, told_by_first(ranks, []() -> Result<ByteVector> {
                 VARVE_ASSIGN(const UniqueId run, UniqueId::random());
                 return ByteVector(run.bytes.begin(), run.bytes.end());
               }));
  ByteReader in(told);
  return UniqueId::read(in);
}

/// Where the run's log is; empty: nowhere.
std::string timeline_of(const Settings& settings, const std::string& node, bool is_own_machine) {
  const std::vector<std::string> places = timeline_places(settings, node, settings.job);
  return places.empty() || (settings.timeline == "auto" && !is_own_machine) ? std::string() : places.front();
}

Status check_running(bool finished) { return finished ? Status::invalid_argument("the session has ended") : Status(); }

ReportContext report_context(const Settings& settings, const Communicator& ranks, const GroupPlan& plan) {
  ReportContext context;
  context.rank_count = ranks.rank_count();
  context.node_rank_count = plan.node_rank_count;
  context.group_rank_count = static_cast<uint32_t>(plan.own_group().members.size());
  context.processor_count = processor_count();
  context.effort = settings.saving.codec.name();
  context.adapts_effort = settings.saving.adapts_effort;
  context.mean_time_between_failures = settings.cadence.mean_time_between_failures;
  return context;
}
}  // namespace

// Opening: the options, the levels, the memory, stage 2, in this order, each agreed on by all ranks

Result<std::unique_ptr<RunSession>> RunSession::open(std::unique_ptr<Communicator> ranks, const SessionOptions& options,
                                                     SessionEnvironment environment) {
  if (!ranks) return Status::invalid_argument("a session needs a communicator");
  VARVE_ASSIGN(Settings settings, agree_on_settings(*ranks, options, environment.sources));
  std::unique_ptr<RunSession> session(new RunSession(std::move(ranks), std::move(settings), environment));
  VARVE_TRY(session->start(environment));
  session->finished_ = false;
  return session;
}

RunSession::RunSession(std::unique_ptr<Communicator> ranks, Settings settings, const SessionEnvironment& environment)
    : ranks_(std::move(ranks)),
      settings_(std::move(settings)),
      blocked_(*environment.clock),
      ledger_(*environment.clock),
      monitor_(blocked_, ledger_, warnings_, *environment.clock),
      left_(warnings_),
      world_{.ranks = *ranks_,
             .files = *environment.files,
             .clock = *environment.clock,
             .warnings = warnings_,
             .sets = job_sets_,
             .left_runs = left_.runs(),
             .job = settings_.job,
             .reach = settings_.reach,
             .node = environment.sources.node(),
             .shared_memory = settings_.snapshots.shared_memory,
             .work = {.memory_bytes = settings_.saving.memory_bytes,
                      .prepare_thread = [this] { stage_two_.place_thread(/*out_of_way=*/true); }},
             .note_level = [this](const LevelNews& news) { monitor_.note_level(news); }},
      levels_(settings_.levels, world_),
      lease_(settings_, world_, levels_, notice_of(warnings_, settings_, *ranks_)),
      stage_one_(settings_, world_, blocked_, notice_of(warnings_, settings_, *ranks_)),
      course_(settings_.cadence, world_.clock),
      sets_(settings_.levels, world_, levels_, stage_one_, stage_two_),
      stage_two_(settings_, world_, stage_one_, levels_) {
  warnings_.add(settings_.warnings);
  if (settings_.variables_may_change) stage_one_.variables().let_change();
  stage_one_.variables().overrule(settings_.redistribution);
}

Status RunSession::start(const SessionEnvironment& environment) {
  const BlockedTime::Part waits(blocked_, BlockedCause::open);
  VARVE_ASSIGN(world_.run, agree_on_run(*ranks_));
  VARVE_TRY(levels_.look());
  VARVE_TRY(stage_one_.open(environment, levels_));
  VARVE_TRY(agree(*ranks_, left_.find(stage_one_.places(), world_.run)));
  // Nothing of the job is changed before it is known that no other run of it lives.
  VARVE_TRY(lease_.take_shared());
  VARVE_TRY(levels_.prepare_on_nodes());
  VARVE_TRY(lease_.take_on_nodes());
  VARVE_TRY(agree(*ranks_, await_drain()));
  VARVE_TRY(levels_.open());
  VARVE_TRY(learn_earlier_sets(levels_));
  sets_.go_on_from(world_.first_number);
  sets_.await_numbers();
  VARVE_ASSIGN(number_behind_memory_, number_behind_snapshots(levels_));

  FileSystem* const named = environment.sources.files;
  FileSystem& files = named != nullptr ? *named : posix_file_system();
  Result<StopRequests> stop = StopRequests::start(settings_.stop, ranks_->rank() == 0, files, world_.clock);
  if (stop.ok()) course_.watch_for_stops(std::move(*stop));
  VARVE_TRY(agree(*ranks_, stop.status()));
  start_monitor(*environment.files);
  return start_stage_two();
}

/// A drain of this node (node_drain.h) that has come before this run sees it now, and ends; one that comes later leaves
/// the job alone. What is in memory may be in a store then.
Status RunSession::await_drain() {
  const std::vector<SegmentFamily>& places = stage_one_.places();
  const auto is_drained = [&] { return std::any_of(places.begin(), places.end(), NodeDrainLock::is_taken); };
  if (!is_drained()) return {};
  const Moment end = MonotonicClock::now() + stage_one_.wait_limit();
  while (is_drained()) {
    if (MonotonicClock::now() >= end) {
      return Status::busy("a drain is at work with what the job has left on this node, and does not end", settings_.job,
                          "wait for its end, or kill it: nothing is lost by that");
    }
    sleep_for(std::chrono::milliseconds(50));
  }
  return left_.find(places, world_.run);
}

Status RunSession::start_stage_two() {
  if (world_.speaks_for_node()) {
    NodeNote note = note_of_run(settings_, world_, levels_, stage_one_.plan(), stage_one_.family().spill_folders);
    note.earlier = earlier_;
    if (!earlier_.empty()) note.first_number = world_.first_number;
    note.copies = copies_;
    const Status noted = write_node_note(stage_one_.owner_of(ranks_->rank()), note);
    if (!noted.ok()) warnings_.add(noted.with_context("a drain of this node will not find what is in memory"));
  }
  const Status attached = stage_two_.attach(
      {.may_save = lease_.guard(RunLease::Place::near),
       .note_published = [this](uint64_t step, ByteVector part) { sets_.note_published(step, std::move(part)); },
       .report = [this](const DrainReport& report) { note_drained(report); }});
  VARVE_TRY(agree(*ranks_, attached));
  world_.may_bring = lease_.guard(RunLease::Place::far);
  const Status started = agree(*ranks_, stage_two_.start(levels_.start()));
  if (started.ok()) monitor_.let_ask([this] { return sample(); });
  return started;
}

// Who looks at the run from outside

/// The rank that speaks for its node tells who looks there, rank 0 whoever asks for the run.
void RunSession::start_monitor(FileSystem& files) {
  if (!world_.speaks_for_node()) return;
  std::vector<std::string> names;
  size_t nearest = 0;
  for (size_t i = 0; i < levels_.all().size(); ++i) {
    names.push_back(levels_.all()[i]->name());
    if (levels_.all()[i].get() == &levels_.nearest()) nearest = i;
  }
  MonitorPlaces places;
  const bool is_own_machine = &files == &posix_file_system();
  if (is_own_machine) places.live_file = take_live_file(stage_one_.family(), ranks_->rank());
  if (ranks_->rank() == 0) {
    places.metrics_file = settings_.metrics_file;
    places.timeline = timeline_of(settings_, world_.node, is_own_machine);
  }
  if (!places.any()) return;
  RunFacts facts{.job = settings_.job, .run = world_.run.hex().substr(0, 16), .store = levels_.nearest().name()};
  facts.host = stage_one_.plan().node().name;
  facts.process = own_process_number();
  facts.rank = ranks_->rank();
  facts.rank_count = ranks_->rank_count();
  monitor_.start(facts, places, names, nearest);
}

/// Called by the monitor's thread, while stage 2 is at work.
RunSample RunSession::sample() const {
  RunSample sample;
  sample.levels = levels_.progress({});
  if (const std::optional<GroupNews> news = stage_one_.memory().group().news()) {
    sample.bytes_to_write = news->bytes_to_write;
    sample.bytes_written = news->bytes_written;
  }
  if (world_.has_node_level && stage_one_.plan().nodes.size() > 1) sample.on_all_nodes = job_sets_.newest_complete();
  return sample;
}

// Grids

Result<std::byte*> RunSession::make_grid(std::string_view name, uint64_t bytes) {
  VARVE_TRY(check_running(finished_));
  return stage_one_.memory().make_grid(name, bytes);
}

Result<std::byte*> RunSession::lend(std::string_view name, std::byte* grid) {
  VARVE_TRY(check_running(finished_));
  return stage_one_.memory().lend(name, grid, stage_one_.variables(), stage_one_.wait_limit());
}

// Restart

namespace {
/// invalid_argument if not all ranks want the same. Collective.
Status agree_on_choice(Communicator& ranks, const RestartChoice& choice) {
  const std::array<uint64_t, 3> mine = {choice.exactly   ? uint64_t{2}
                                        : choice.at_most ? uint64_t{1}
                                                         : uint64_t{0},
                                        choice.exactly.value_or(0), choice.at_most.value_or(0)};
  std::array<uint64_t, 3> least = mine, most = mine;
  VARVE_TRY(ranks.all_min(least));
  VARVE_TRY(ranks.all_max(most));
  if (least != most) return Status::invalid_argument("not all ranks want to restart from the same step");
  if (!choice.at_most || !choice.exactly) return {};
  return Status::invalid_argument("a restart is to take exactly one step, and at most another one");
}
}  // namespace

Result<std::optional<uint64_t>> RunSession::restart(const RestartChoice& choice) {
  VARVE_TRY(check_running(finished_));
  const BlockedTime::Part waits(blocked_, BlockedCause::restart);
  VARVE_TRY(agree_on_choice(*ranks_, choice));
  VARVE_TRY(settle_before_restart());
  RestartSelection selection = selection_;
  selection.choice = choice;
  return go_on_from(selection);
}

Result<std::optional<uint64_t>> RunSession::reject() {
  VARVE_TRY(check_running(finished_));
  const BlockedTime::Part waits(blocked_, BlockedCause::restart);
  if (!loaded_) return Status::invalid_argument("nothing was loaded since the last checkpoint that could be rejected");
  // What is in memory alone began to go to the store when it was loaded.
  VARVE_TRY(settle_before_restart());
  RestartSelection selection = selection_;
  selection.rejected.push_back(*loaded_);
  if (saved_as_) selection.rejected.push_back(*saved_as_);
  selection.older_than = loaded_;
  stage_one_.variables().note_rejected();
  VARVE_ASSIGN(const std::optional<uint64_t> older, go_on_from(selection));
  if (!older) stage_one_.variables().note_begun_anew();
  selection_.rejected = std::move(selection.rejected);
  return older;
}

Result<std::vector<RestartPoint>> RunSession::restart_points() {
  const BlockedTime::Part waits(blocked_, BlockedCause::restart);
  VARVE_TRY(look_at_levels());
  left_.add_own({});
  if (!has_chosen_) VARVE_TRY(complete_left_parts(levels_));
  Result<std::vector<RestartPoint>> points = list_restart_points(levels_);
  levels_.close_idle();
  return points;
}

Result<std::vector<SavedVariable>> RunSession::saved_variables(uint64_t step) {
  const BlockedTime::Part waits(blocked_, BlockedCause::restart);
  VARVE_TRY(look_at_levels());
  left_.add_own({});
  if (!has_chosen_) VARVE_TRY(complete_left_parts(levels_));
  Result<std::vector<SavedVariable>> variables = list_saved_variables(levels_, step);
  levels_.drop_caches();
  levels_.close_idle();
  return variables;
}

Status RunSession::look_at_levels() {
  VARVE_TRY(check_running(finished_));
  VARVE_TRY(end_talk());
  VARVE_TRY(levels_.look());
  return levels_.open();
}

/// What is under way is settled: it is in the store, or has failed, which is a warning then.
Status RunSession::settle(std::string_view failed_while) {
  const BlockedTime::Part waits(blocked_, BlockedCause::store);
  const StageTwo::Hurry hurry(stage_two_);
  const Status settled = sets_.settle(stage_one_.wait_limit());
  sets_.note_told(settled);
  if (settled.code() == StatusCode::busy) return settled;
  if (!settled.ok()) world_.warnings.add(settled.with_context(std::string(failed_while)));
  return {};
}

Status RunSession::settle_before_restart() {
  const Status own_memory = stage_one_.variables().check_own_memory();
  std::array<uint64_t, 2> any = {stage_one_.has_snapshots() ? uint64_t{1} : uint64_t{0},
                                 own_memory.ok() ? uint64_t{0} : uint64_t{1}};
  VARVE_TRY(ranks_->all_max(any));
  if (any[1] != 0) VARVE_TRY(agree(*ranks_, own_memory));
  if (any[0] == 0) return {};
  VARVE_TRY(settle("the run goes back, and its last checkpoint has failed"));
  Result<std::vector<LeftSnapshot>> own = run_guarded([this] { return stage_one_.own_snapshots(); });
  VARVE_TRY(agree(*ranks_, own.status()));
  left_.add_own(std::move(*own));
  return {};
}

/// Whether a rank has something in the run's own memory. Collective.
Result<bool> RunSession::any_has_snapshots() {
  std::array<uint64_t, 1> any = {stage_one_.has_snapshots() ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks_->all_max(any));
  return any[0] != 0;
}

/// Nothing works beside the program any more, on no rank: what is on its way to a farther level begins anew with
/// start_stage_two().
Status RunSession::stop_stage_two() {
  monitor_.let_ask(nullptr);
  stage_two_.stop(MonotonicClock::now() + stage_one_.wait_limit());
  levels_.stop();
  levels_.end(Ending::pause).ignore("what was not brought on is found again");
  // Nobody forgets what a neighbour's thread may still read.
  return ranks_->barrier();
}

/// While nothing works beside the program: the run begins anew behind what it has made, as another run, so that nobody
/// takes what it makes of a step now, or a part of that, for what it had made before. What it goes on from stays where
/// it is if it is nowhere else (`kept`), until that is saved.
Status RunSession::turn_back(const std::optional<CheckpointId>& kept) {
  left_.add_own({});
  stage_one_.forget_snapshots(kept);
  sets_.turn_back();
  VARVE_ASSIGN(world_.run, agree_on_run(*ranks_));
  return {};
}

/// What of what this session has made as `made_as`, and as other runs before, it goes on behind, with which number; all
/// else it leaves.
void RunSession::note_course(const UniqueId& made_as, const RunRestart& restart) {
  if (!restart.begins_anew) sets_.go_on_behind(restart.next_number);
  // What was there to choose from was seen.
  world_.unseen_from = std::max(world_.unseen_from, restart.next_number);
  world_.first_number = sets_.next_number();
  copies_.reset();
  if (restart.in_memory_alone) {
    const RestartCandidate& taken = *restart.taken;
    copies_ = CheckpointId{.step = taken.step, .run = taken.made_by, .number = taken.number};
  }
  if (made_as != world_.run) earlier_.push_back({.run = made_as, .last_step = UINT64_MAX, .last_number = UINT64_MAX});
  const uint64_t step = restart.taken ? restart.taken->step : 0, number = restart.taken ? restart.taken->number : 0;
  for (NodeNote::Earlier& one : earlier_) {
    const bool made_it = restart.taken && one.run == restart.taken->made_by;  // it may have gone forward again
    one.last_step = made_it ? step : std::min(one.last_step, step);
    one.last_number = made_it ? number : std::min(one.last_number, number);
  }
}

Result<std::optional<uint64_t>> RunSession::go_on_from(const RestartSelection& selection) {
  Result<std::optional<uint64_t>> step = take_up(selection);
  if (!step.ok()) monitor_.note_restart_failed(step.status());
  return step;
}

Result<RunRestart> RunSession::load(const RestartSelection& selection) {
  std::optional<NodePacks> packs;
  if (stage_one_.plan().node_rank_count > 1)
    packs.emplace(stage_one_.owner_of(world_.seat.node().leader).path("packs"));
  world_.node_packs = packs ? &*packs : nullptr;
  Result<RunRestart> found = restart_from_levels(world_, levels_, stage_one_.variables(), selection);
  world_.node_packs = nullptr;
  levels_.close_idle();
  return found;
}

void RunSession::note_beginning(bool anew) {
  const Status noted = levels_.nearest().access().note_beginning(anew);
  if (!noted.ok()) warnings_.add(noted.with_context("it could not be noted that the job begins on this node"));
}

Result<std::optional<uint64_t>> RunSession::take_up(const RestartSelection& selection) {
  VARVE_TRY(look_at_levels());
  VARVE_ASSIGN(const bool has_snapshots, any_has_snapshots());
  // What comes to a farther level while the run chooses would not be known to be left behind.
  VARVE_TRY(stop_stage_two());
  const Result<RunRestart> found = load(selection);
  // What was rejected, under whatever name, is not to be mistaken for what the run makes now.
  std::optional<CheckpointId> kept;
  if (found.ok() && found->in_memory_alone)
    kept = CheckpointId{.step = found->taken->step, .run = found->taken->made_by};
  const UniqueId made_as = world_.run;
  const Status turned = found.ok() && (has_snapshots || !selection.rejected.empty()) ? turn_back(kept) : Status();
  if (found.ok()) {
    note_course(made_as, *found);
    job_sets_.note_on_trial(found->taken ? std::optional(found->taken->step) : std::nullopt);
  }
  if (found.ok() && turned.ok() && (found->begins || found->begins_anew)) note_beginning(found->begins_anew);
  const Status started = start_stage_two();
  VARVE_TRY(found.status());
  VARVE_TRY(turned);
  VARVE_TRY(started);
  const RunRestart& restart = *found;
  loaded_ = restart.taken;
  has_chosen_ = true;
  saved_as_.reset();
  const UniqueId own_memory = stage_one_.owner_of(ranks_->rank()).run;
  loaded_alone_ = restart.in_memory_alone && restart.taken->memory_run == own_memory;
  monitor_.note_restart(restart.taken, restart.passed_over);
  // Whether complete sets of earlier steps came before what is in memory alone is not known: a run may have gone back.
  job_sets_.go_on_from(loaded_ && !restart.in_memory_alone ? std::optional(loaded_->step) : std::nullopt);
  note_.restarted_from = loaded_ ? std::optional(loaded_->step) : std::nullopt;
  write_note();
  left_.note_useful(restart.in_memory_alone || restart.newer_in_memory_alone ||
                    left_.has_newer_than(restart.taken, selection.rejected));
  if (!restart.unreadable_arenas.empty()) stage_two_.avoid(restart.unreadable_arenas);
  // What is saved at once is what was loaded, whatever callbacks say: the program may take it over when this returns.
  std::optional<VariableTable::AsLoaded> as_loaded;
  if (restart.in_memory_alone) as_loaded.emplace(stage_one_.variables());
  stage_one_.reserve();
  if (!restart.taken) {
    course_.restart_at(std::nullopt);
    sets_.note_restarted(std::nullopt);
    return std::optional<uint64_t>();
  }
  const uint64_t step = restart.taken->step;
  course_.restart_at(step);
  sets_.note_restarted(restart.in_memory_alone ? std::nullopt : std::optional(step));
  if (levels_.at(restart.taken->level).spec().is_of_node() && restart.on_own_nodes) job_sets_.note_complete(step);
  if (restart.in_memory_alone && restart.leaves_out) {
    // What this run would save is not all of it: it stays where it is until there is a newer one.
    warnings_.add(Status::unsupported("what is in memory alone has more than is protected now, and stays there",
                                      "the checkpoint of step " + std::to_string(step),
                                      "protect all of it, and restart from it, to have it saved to the store"));
  } else if (restart.in_memory_alone) {
    // It goes to the store at once. Some nodes' own stores may have it; what all nodes have of its step is another one.
    const bool is_partly_there = world_.has_node_level && !job_sets_.is_complete(step);
    levels_.note_found(levels_.nearest(), step, is_partly_there ? Found::damaged : Found::left_behind);
    // All copy it or none: else there would be parts of two checkpoints, of which neither is whole.
    const Status ready = agree(*ranks_, stage_one_.variables().refresh());
    const Status saved = ready.ok() ? make_checkpoint(step, Persistence::later, /*saves=*/true) : ready;
    if (!saved.ok()) warnings_.add(saved.with_context("what is in memory alone could not be saved to the store"));
    saved_as_ = loaded_;
    saved_as_->made_by = world_.run;
  }
  return std::optional(step);
}

Status RunSession::drop(uint64_t step) {
  VARVE_TRY(check_running(finished_));
  const BlockedTime::Part waits(blocked_, BlockedCause::store);
  VARVE_TRY(agree_on_choice(*ranks_, {.exactly = step}));
  VARVE_TRY(look_at_levels());
  VARVE_TRY(settle("a checkpoint was to be dropped, and the last one has failed"));
  // From here on nothing comes to a level that it has left already.
  VARVE_TRY(stop_stage_two());
  const Status dropped = drop_everywhere(step);
  levels_.close_idle();
  const Status started = start_stage_two();
  return dropped.ok() ? started : dropped;
}

/// While nothing works beside the program. Nothing is dropped where a level cannot be asked. Collective.
Status RunSession::drop_everywhere(uint64_t step) {
  const Result<bool> in_stores = have_set(levels_, step);
  VARVE_TRY(agree(*ranks_, in_stores.status()));
  const Result<bool> was_left = left_.drop(step, world_.speaks_for_node());
  const bool in_memory = stage_one_.memory().drop(step);
  std::array<uint64_t, 1> found = {*in_stores || in_memory || (was_left.ok() && *was_left) ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks_->all_max(found));
  if (found[0] == 0) {
    return Status::not_found("there is no checkpoint of this step", SetName{settings_.job, step}.to_string(),
                             "restart_points() lists what there is");
  }
  const Status dropped = was_left.ok() ? drop_set(levels_, step) : was_left.status();
  VARVE_TRY(agree(*ranks_, dropped));
  return sets_.note_dropped(step);
}

// Checkpoints

bool RunSession::due(uint64_t step) {
  if (finished_) return false;
  const BlockedTime::Part waits(blocked_, BlockedCause::ranks);
  const Result<Due> due = course_.agree(*ranks_, step, sets_.tell());
  if (!due.ok()) {
    last_error_ = due.status();
    return false;
  }
  if (due->told) {
    const Status learnt = sets_.learn(*due->told);
    if (!learnt.ok()) last_error_ = learnt;
  }
  return due->checkpoint;
}

/// What was begun in due(), before something else is agreed on. Collective.
Status RunSession::end_talk() {
  const BlockedTime::Part waits(blocked_, BlockedCause::ranks);
  VARVE_ASSIGN(const std::optional<std::vector<uint64_t>> told, course_.end_talk(*ranks_));
  if (!told) return {};
  const Status learnt = sets_.learn(*told);
  if (!learnt.ok()) last_error_ = learnt;
  return {};
}

/// The program goes on from what it has loaded, and cannot reject it any more.
void RunSession::accept_loaded() {
  loaded_.reset();
  job_sets_.note_on_trial(std::nullopt);
  // What a run that did not ask for it has left in memory was made before.
  if (!has_chosen_) sets_.go_on_behind(number_behind_memory_);
  has_chosen_ = true;
}

Status RunSession::checkpoint(uint64_t step, Persistence persistence) {
  VARVE_TRY(check_running(finished_));
  const BlockedTime::Part waits(blocked_, BlockedCause::other);
  VARVE_TRY(end_talk());
  const Persistence wanted = course_.stop_is_agreed() ? Persistence::now : persistence;
  Status made;
  if (course_.ends_at(step)) {
    const BlockedTime::Part settles(blocked_, BlockedCause::store);
    made = sets_.settle(stage_one_.wait_limit());
  } else {
    made = course_.go_on_to(step);
    if (made.ok()) accept_loaded();
    if (made.ok()) made = make_checkpoint(step, wanted, wanted == Persistence::now);
  }
  if (!made.ok()) last_error_ = made;
  course_.note_made();
  return made;
}

/// As of StageOne; what is being written hurries if the program waits for it.
Result<bool> RunSession::take_slot(Persistence persistence) {
  const BlockedTime::Part waits(blocked_, BlockedCause::room);
  std::optional<StageTwo::Hurry> hurry;
  if (!stage_one_.memory().has_free_slot()) hurry.emplace(stage_two_);
  return stage_one_.take_slot(persistence);
}

namespace {
/// Of the time that is left when a run is to end, so much is for what comes after its checkpoints: the program's own
/// end.
constexpr double kEndSeconds = 1, kEndShare = 0.1;

bool keeps_in_memory(const Settings& settings) { return settings.levels.front().kind == &kMemoryLevel; }

double usable(double seconds_left) {
  return std::max(0.0, seconds_left - std::min(kEndSeconds, kEndShare * seconds_left));
}
}  // namespace

Status RunSession::make_checkpoint(uint64_t step, Persistence persistence, bool saves) {
  const double begin = world_.clock.seconds();
  monitor_.note_making(step, begin);
  const Status before = sets_.take_failure(step);
  {
    const BlockedTime::Part waits(blocked_, BlockedCause::ranks);
    VARVE_TRY(sets_.exchange());
  }
  const bool hastens = course_.stop_is_agreed() && std::isfinite(course_.seconds_left()) && keeps_in_memory(settings_);
  const Result<bool> taken = hastens ? take_last_slot() : take_slot(persistence);
  if (taken.ok() && memory_alone_) {
    // An older one stays in memory, in the place of this one.
    stage_one_.skip(step);
    ledger_.note_skipped();
    monitor_.note_skipped(step, begin);
    return before;
  }
  if (taken.ok() && !*taken) {
    const BlockedTime::Part waits(blocked_, BlockedCause::room);
    stage_one_.skip(step);
    ledger_.note_skipped();
    monitor_.note_skipped(step, begin);
    course_.cadence().note_checkpoint(step, world_.clock.seconds() - begin);
    return before;
  }
  std::optional<BlockedTime::Part> makes(std::in_place, blocked_, BlockedCause::copy);
  const LevelDuty duty = sets_.begin(step, saves, course_.stop_is_agreed());
  stage_two_.note_begin(step, begin, duty);
  const auto snapshot = [&]() -> Result<SnapshotCost> {
    VARVE_TRY(taken.status());
    if (stage_one_.variables().empty()) return Status::invalid_argument("nothing is protected");
    {
      const BlockedTime::Part waits(blocked_, BlockedCause::store);  // which may have to be asked
      VARVE_TRY(lease_.check());
    }
    VARVE_ASSIGN(const SnapshotCost cost, stage_one_.copy({step, world_.run, duty.number}, begin));
    sets_.note_copied(step, duty);
    ledger_.note_snapshot(cost);
    return cost;
  };
  const Result<SnapshotCost> cost = run_guarded(snapshot);
  monitor_.note_snapshot(step, begin, duty.save, cost);
  Status made = cost.status();
  if (!made.ok()) {
    stage_one_.memory().group().give_up(step);
    sets_.note_not_copied(step);
  }
  makes.reset();
  if (persistence == Persistence::now) {
    const double settle_begin = world_.clock.seconds();
    const BlockedTime::Part waits(blocked_, BlockedCause::store);
    const StageTwo::Hurry hurry(stage_two_);
    made = agree(*ranks_, made);
    if (made.ok()) made = settle_in_time(step);
    sets_.note_told(made, step);
    ledger_.note_blocked(world_.clock.seconds() - settle_begin);
    monitor_.note_waited(settle_begin);
  } else if (made.ok() && !before.ok()) {
    made = before.with_context(fmt::format("step {} is on its way", step));
  }
  course_.cadence().note_checkpoint(step, world_.clock.seconds() - begin);
  return made;
}

/// Room for the last checkpoint, when the run is ended at a known time. What is still being written is not waited for
/// longer than for half of that: of two snapshots that wait in memory the older is given up then, so that at no moment
/// the newer one is not there. Of one alone, that one is the last checkpoint. The same on all ranks. Collective.
Result<bool> RunSession::take_last_slot() {
  constexpr double kWaitShare = 0.5, kGiveUpSeconds = 5;
  SnapshotMemory& memory = stage_one_.memory();
  const double left = usable(course_.seconds_left());
  const auto wait = [&](double seconds) {
    const auto limit = std::min(stage_one_.wait_limit(), bounded_limit(std::chrono::duration<double>(seconds)));
    return memory.wait_for_free_slot(limit);
  };
  Status waited;
  {
    const StageTwo::Hurry hurry(stage_two_);
    waited = agree(*ranks_, wait(kWaitShare * left));
  }
  if (waited.code() != StatusCode::busy) return waited.ok() ? Result<bool>(true) : waited;
  uint64_t kept = 0;
  for (uint32_t i = 0; i < memory.slot_count(); ++i) kept += memory.slot(i).restartable ? 1 : 0;
  std::array<uint64_t, 2> least = {kept, memory.newest_step().value_or(0)}, most = least;
  VARVE_TRY(ranks_->all_min(least));
  VARVE_TRY(ranks_->all_max(most));
  if (least[0] >= 2) {
    gave_up_saving_ = true;
    stage_two_.cancel();
    waited = agree(*ranks_, wait(std::min(left, kGiveUpSeconds)));
    if (waited.ok()) return true;
  }
  if (least[0] == 0 || least[1] != most[1]) return waited;
  world_.end = MonotonicClock::now() + bounded_limit(std::chrono::duration<double>(left));
  VARVE_TRY(stay_in_memory(least[1], waited));
  return true;
}

/// Waits until the set of `step` is complete, if nobody ends the run before that. Where it is known that it takes
/// longer, or is seen to, and all ranks have the checkpoint in memory for who comes later, that is all that is waited
/// for. Collective.
Status RunSession::settle_in_time(uint64_t step) {
  const double left = usable(course_.seconds_left());
  if (!course_.stop_is_agreed() || !std::isfinite(left)) return sets_.settle(stage_one_.wait_limit());
  world_.end = MonotonicClock::now() + bounded_limit(std::chrono::duration<double>(left));
  const std::optional<double> expected = course_.cadence().persistent_seconds();
  std::array<uint64_t, 2> votes = {has_in_memory(step) ? uint64_t{0} : uint64_t{1},
                                   expected && *expected > left ? uint64_t{1} : uint64_t{0}};
  VARVE_TRY(ranks_->all_max(votes));
  const bool stays = votes[0] == 0, is_late = votes[1] == 1;
  if (stays && gave_up_saving_) {
    return stay_in_memory(step, Status::busy("the checkpoint before it was still being written"));
  }
  if (stays && is_late) {
    return stay_in_memory(step, Status::busy(fmt::format("writing it takes about {:.1f} s, and {:.1f} s are left",
                                                         expected.value_or(left), left)));
  }
  const std::chrono::nanoseconds limit =
      std::min(stage_one_.wait_limit(), bounded_limit(std::chrono::duration<double>(left)));
  const Status settled = agree(*ranks_, sets_.settle(limit));
  if (settled.code() != StatusCode::busy) return settled;
  // What was lent is complete in memory only when the checkpoint thread has gone through it: it may be by now.
  std::array<uint64_t, 1> lacks = {has_in_memory(step) ? uint64_t{0} : uint64_t{1}};
  VARVE_TRY(ranks_->all_max(lacks));
  return lacks[0] == 0 ? stay_in_memory(step, settled) : settled;
}

/// Whether who comes later can go on from what this rank has in memory of the step.
bool RunSession::has_in_memory(uint64_t step) const {
  if (!keeps_in_memory(settings_)) return false;
  for (uint32_t i = 0; i < stage_one_.memory().slot_count(); ++i) {
    const SlotNews slot = stage_one_.memory().slot(i);
    if (slot.step == step && slot.state != SlotState::filling && slot.restartable) return true;
  }
  return false;
}

/// The same on all ranks.
Status RunSession::stay_in_memory(uint64_t step, const Status& why) {
  memory_alone_ = step;
  notice_of(warnings_, settings_, *ranks_)(
      Status::busy(fmt::format("the last checkpoint stays in memory, as the time is too short: {}", why.message()),
                   SetName{settings_.job, step}.to_string(),
                   "a drain of each node brings it to a store, as does the next run there"));
  return {};
}

// What whoever started the run is told

/// Where the newest checkpoint is that nobody need wait for.
std::string RunSession::newest_place() const {
  if (memory_alone_) return levels_.all().front()->name();
  return levels_.nearest().name();
}

void RunSession::write_note() {
  if (settings_.note_file.empty() || ranks_->rank() != 0) return;
  const Status noted = write_run_note(world_.files, settings_.note_file, note_);
  if (!noted.ok()) warnings_.add(noted.with_context("what has started the run is not told how it goes"));
}

/// `settled`: what became of the last checkpoint.
void RunSession::note_end(const Status& settled) {
  note_.ended = true;
  const std::optional<NewSet>& last = sets_.last();
  if (last && settled.ok()) note_.last_step = last->step;
  if (memory_alone_) note_.last_step = memory_alone_;
  if (note_.last_step) note_.place = newest_place();
  if (course_.should_stop()) {
    const std::string reason = course_.stop_reason();
    note_.stopped_by = reason.empty() ? "a signal to another rank" : reason;
  }
  write_note();
}

Status RunSession::wait() {
  VARVE_TRY(check_running(finished_));
  VARVE_TRY(end_talk());
  const double begin = world_.clock.seconds();
  const BlockedTime::Part waits(blocked_, BlockedCause::store);
  const StageTwo::Hurry hurry(stage_two_);
  Status waited = sets_.settle(stage_one_.wait_limit());
  sets_.note_told(waited);
  ledger_.note_blocked(world_.clock.seconds() - begin);
  monitor_.note_waited(begin);
  return waited;
}

// Called by the checkpoint thread
void RunSession::note_drained(const DrainReport& report) {
  monitor_.note_drained(report);
  // What another run may make whole has not failed for good, and a node that has it keeps it.
  if (report.outcome.ok() || !report.may_come) sets_.note_drained(report.step, report.outcome.ok());
  if (!report.outcome.ok()) {
    ledger_.note_failed();
    return;
  }
  const double seconds = report.end_seconds - report.begin_seconds;
  ledger_.note_persistent({report.bytes, report.stored_bytes, seconds, report.drain_seconds, report.processor_seconds,
                           report.times, report.effort});
  const ReportContext context = report_context(settings_, *ranks_, stage_one_.plan());
  course_.cadence().note_persistent(seconds, disturbance_seconds(report.processor_seconds, context));
  if (sets_.has_saved()) left_.remove();
}

// The end

Status RunSession::finish(std::chrono::duration<double> limit) {
  if (finished_) return {};
  const BlockedTime::Part waits(blocked_, BlockedCause::end);
  end_talk().ignore("what follows says what is wrong");
  accept_loaded();
  const double begin = world_.clock.seconds();
  std::chrono::nanoseconds bounded = bounded_limit(limit);
  if (world_.end) bounded = std::clamp(*world_.end - MonotonicClock::now(), std::chrono::nanoseconds(0), bounded);
  const Moment end = MonotonicClock::now() + bounded;
  std::optional<StageTwo::Hurry> hurry(stage_two_);
  std::optional<BlockedTime::Part> waits_for(std::in_place, blocked_, BlockedCause::store);
  Status settled = sets_.settle(memory_alone_ ? std::chrono::nanoseconds(0) : bounded);
  if (settled.ok() && memory_alone_ && sets_.last() && sets_.last()->step >= *memory_alone_) memory_alone_.reset();
  if (!settled.ok() && memory_alone_) {
    stage_two_.cancel();
    settled = Status();
  } else if (settled.code() == StatusCode::busy) {
    stage_two_.cancel();
    settled = settled.with_context("the newest checkpoint was given up");
  }
  stage_two_.stop(end);
  waits_for.reset();
  waits_for.emplace(blocked_, BlockedCause::levels);
  levels_.stop();
  // Whoever clears up behind a job leaves only what is far away: the last set goes there, whatever its turn is.
  const bool may_push = settled.ok() && !memory_alone_;
  const Status pushed = levels_.finish(may_push ? sets_.last() : std::nullopt, end);
  waits_for.reset();
  ledger_.note_blocked(world_.clock.seconds() - begin);
  // Nobody takes its memory away while a neighbour's thread may still read it, nor looks for the others' parts too
  // soon.
  const Status together = ranks_->barrier();
  const Status ended = levels_.end(Ending::of_run);
  Status spread = agree(*ranks_, pushed.ok() ? ended : pushed);
  if (world_.end && !spread.ok()) {
    // There was no time for that, and who comes later has it.
    notice_of(warnings_, settings_, *ranks_)(spread.with_context(
        "not all levels have the last set yet: a drain of the node brings it there, as does the next run"));
    spread = Status();
  }
  note_end(settled);
  const Status outcome = !settled.ok() ? settled : together.ok() ? spread : together;
  close(outcome);
  return outcome;
}

/// Whether the newest checkpoint is whole in memory alone, as far as this rank knows.
bool RunSession::has_unsaved_snapshot() const {
  const SessionProgress made = progress();
  return keeps_in_memory(settings_) && made.newest_snapshot && made.newest_persistent != made.newest_snapshot;
}

void RunSession::close(const Status& outcome, Company company) {
  monitor_.let_ask(nullptr);
  stage_two_.stop(MonotonicClock::now() + kSessionEndPatience);
  levels_.end(Ending::of_run).ignore("finish() tells of it");
  // What is still owed to a level behind stays.
  stage_two_.tidy();
  if (!left_.is_useful() || sets_.has_saved()) left_.remove();
  const bool is_owed = world_.end && !levels_.what_waits().empty();
  // Where a stop was hastened and its checkpoint came to nothing, one before it may be in memory alone.
  const bool hastened = gave_up_saving_ || world_.end.has_value();
  const bool leaves_memory = memory_alone_ || (loaded_alone_ && !sets_.has_saved()) ||
                             (!outcome.ok() && hastened && keeps_in_memory(settings_)) ||
                             (company == Company::left && has_unsaved_snapshot());
  if (leaves_memory) {
    const bool all_end = company == Company::together;
    stage_one_.memory().leave(all_end ? ControlBlock::Ended::run : ControlBlock::Ended::rank);
  } else {
    stage_one_.memory().remove_files().ignore("the next run removes what is left");
  }
  if (world_.speaks_for_node() && !leaves_memory && !is_owed)
    remove_node_note(stage_one_.owner_of(ranks_->rank())).ignore("the next run removes what is left");
  note_ended(outcome);
}

void RunSession::note_ended(const Status& outcome) {
  monitor_.end(outcome.ok() ? std::string() : outcome.to_string());
  lease_.release();
  ledger_.note_end();
  course_.end();
  finished_ = true;
}

Status RunSession::abandon() {
  if (finished_) return {};
  monitor_.let_ask(nullptr);
  // First of all: threads beside the program that wait for a rank wait in vain, here and elsewhere.
  ranks_->revoke();
  stage_two_.cancel();
  stage_two_.stop(MonotonicClock::now());
  levels_.end(Ending::of_run).ignore("what was not brought on is found again");
  // Nothing of it changes any more: it may be restarted from.
  stage_one_.memory().leave(ControlBlock::Ended::run);
  note_ended(Status::cancelled("the program gave its session up"));
  return {};
}

/// By an exception, which may be what ends the other ranks, and waits here. What this rank has a snapshot of is saved
/// all the same. A leader on another node gets it by messages, and is told by the relay that this is all.
void RunSession::leave_the_others() {
  stage_two_.wait_little_for_others();
  if (!stage_one_.plan().crosses_nodes) break_off();
}

/// Threads beside the program that wait for a rank would wait in vain, here and elsewhere.
void RunSession::break_off() {
  stage_one_.memory().group().give_up(UINT64_MAX);
  ranks_->revoke();
}

RunSession::~RunSession() {
  // What it would ask goes first.
  monitor_.let_ask(nullptr);
  if (finished_) return;
  const bool is_thrown = std::uncaught_exceptions() > 0;
  if (is_thrown || have_ended(*ranks_)) {
    // The other ranks may not come here, or cannot be reached.
    if (is_thrown) leave_the_others();
    close(Status::cancelled("the program left its session by an exception, or ended its ranks"), Company::left);
    return;
  }
  finish(kSessionEndPatience).ignore("a program that wants to know calls finish()");
}

// What there is to tell

SessionProgress RunSession::progress() const {
  SessionProgress progress;
  progress.newest_snapshot = stage_one_.memory().newest_step();
  progress.skipped = ledger_.costs().skipped_count;
  progress.last_error = last_error_;
  sets_.add_progress(progress);
  return progress;
}

std::string RunSession::effective_options() const {
  const std::string where = world_.node.empty() ? "this machine" : "VARVE_NODE";
  return varve::effective_options(settings_) +
         fmt::format("# this rank is on the node {} ({})\n", stage_one_.plan().node().name, where);
}

std::string RunSession::report() const {
  return report_text(ledger_.costs(), report_context(settings_, *ranks_, stage_one_.plan()));
}

std::string RunSession::report_json() const {
  return varve::report_json(ledger_.costs(), report_context(settings_, *ranks_, stage_one_.plan()));
}

}  // namespace varve
