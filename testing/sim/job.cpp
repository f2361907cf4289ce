#include "sim/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "level/level_spec.h"
#include "runtime/run_session.h"

namespace varve::sim {

namespace {
/// No call of a session takes longer, whatever happens.
constexpr std::chrono::hours kCallLimit(2);
constexpr std::chrono::minutes kFinishLimit(30);
}  // namespace

/// A deterministic computation, each step of which depends on all before.
struct Job::Model {
  std::vector<double> field;
  uint64_t sum = 0;
  Model(uint32_t rank, size_t cells) : field(cells) { begin(rank); }
  /// The field stays where it is.
  void begin(uint32_t rank) {
    sum = 0;
    for (size_t i = 0; i < field.size(); ++i)
      field[i] = static_cast<double>(rank + 1) + static_cast<double>(i % 97) / 97.0;
  }
  void step(uint64_t number) {
    for (size_t i = 0; i + 1 < field.size(); ++i) {
      field[i] = 0.5 * (field[i] + field[i + 1]) + 1e-3 * static_cast<double>(number % 7);
    }
    sum = sum * 31 + number;
  }
  void go(size_t course, uint64_t first, uint64_t last) {
    for (uint64_t number = first; number <= last; ++number) step(number + 1000 * course);
  }
  bool operator==(const Model&) const = default;
};

namespace {
std::vector<JobLevel> levels_of(const std::string& text) {
  std::vector<JobLevel> levels;
  bool has_store = false;
  for (const LevelSpec& spec : parse_levels(text).value()) {
    Floor floor = has_store ? Floor::farther_store : Floor::nearest_store;
    if (spec.kind == &kMemoryLevel) floor = Floor::memory;
    if (spec.kind == &kRedundancyLevel) floor = Floor::redundancy;
    has_store = has_store || spec.holds_sets();
    levels.push_back({spec, levels.size(), floor});
  }
  return levels;
}

/// Who reports: of memory each rank; of what begins at the nodes' stores the first rank of each node; else the first
/// rank.
std::vector<Promises::Level> promises_of(const std::vector<JobLevel>& levels, const JobPlan& plan) {
  const bool by_node = std::any_of(levels.begin(), levels.end(), [](const JobLevel& level) { return level.of_node(); });
  std::vector<Promises::Level> promises;
  for (const JobLevel& level : levels) {
    uint32_t holders = by_node ? plan.node_count : 1;
    if (level.floor == Floor::memory) holders = plan.node_count * plan.ranks_per_node;
    promises.push_back({level.spec.name(), holders, {}});
  }
  return promises;
}
}  // namespace

/// What the ranks of one run share.
struct Job::Run {
  RunPlan plan;
  uint64_t seed = 0;  ///< of what they must do alike
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::optional<std::optional<CourseStep>> restarted;  ///< what the first rank said
  std::vector<size_t> courses;                         ///< that it has begun, in this order on all ranks
};

Job::Job(World& world, JobPlan plan)
    : world_(world), plan_(std::move(plan)), levels_(levels_of(plan_.levels)), promises_(promises_of(levels_, plan_)) {}

void Job::start_run(const RunPlan& plan) {
  auto run = std::make_shared<Run>();
  run->plan = plan;
  run->seed = world_.simulator().random().next();
  const uint32_t ranks = plan_.node_count * plan_.ranks_per_node;
  run->communicators = make_thread_communicators(ranks);
  processes_.clear();
  calls_.assign(ranks, {});
  // What is in memory goes to the nearest store with the next restart, or is lost with that.
  if (memory_of_run_ < run_count_) forget_memory();
  ++run_count_;
  world_.simulator().tell(fmt::format("run {} of {} ranks begins, with {}", run_count_, ranks, plan_.levels));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    Machine& machine = world_.nodes()[rank / plan_.ranks_per_node].machine;
    processes_.push_back(&world_.simulator().start_process(fmt::format("run{}.{}", run_count_, rank), machine,
                                                           [this, run, rank] { be_rank(run, rank); }));
  }
}

bool Job::running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process* process) { return process->alive && process->thread_count > 0; });
}

void Job::await_run() {
  constexpr std::chrono::minutes look_interval(10);
  Simulator& simulator = world_.simulator();
  for (const Process* process : processes_) {
    while (!simulator.await_end(*process, simulator.now() + look_interval)) {
      for (uint32_t rank = 0; rank < processes_.size(); ++rank) {
        if (processes_[rank]->alive && processes_[rank]->thread_count > 0) check_call(rank);
      }
    }
  }
}

void Job::check_call(uint32_t rank) const {
  const Call& call = calls_[rank];
  const auto took = world_.simulator().now() - call.began;
  if (call.name == nullptr || took < kCallLimit) return;
  fail(fmt::format("{} of rank {} has taken {:.0f} s", call.name, rank, std::chrono::duration<double>(took).count()));
}

void Job::kill_run() {
  for (Process* process : processes_) world_.simulator().kill(*process);
}

const JobLevel& Job::nearest_store() const {
  return *std::find_if(levels_.begin(), levels_.end(),
                       [](const JobLevel& level) { return level.floor == Floor::nearest_store; });
}

std::vector<LevelSpec> Job::specs() const {
  std::vector<LevelSpec> specs;
  for (const JobLevel& level : levels_) specs.push_back(level.spec);
  return specs;
}

CourseStep Job::origin_of(size_t course, uint64_t step) const {
  while (course > 0 && step <= courses_[course].from) course = courses_[course].before;
  return {course, step};
}

Job::Model Job::model_of(uint32_t rank, CourseStep made) const {
  if (made.course == 0) {
    Model model(rank, plan_.cells);
    model.go(0, 1, made.step);
    return model;
  }
  const Course& course = courses_[made.course];
  Model model = model_of(rank, origin_of(course.before, course.from));
  model.go(made.course, course.from + 1, made.step);
  return model;
}

CourseStep Job::recognise(const Model& model, uint32_t rank, uint64_t step) const {
  for (size_t course = courses_.size(); course-- > 0;) {
    const CourseStep made = origin_of(course, step);
    if (model == model_of(rank, made)) return made;
  }
  fail(fmt::format("rank {} got wrong bytes for step {}", rank, step));
}

Result<std::optional<CourseStep>> Job::go_back(RunSession& session, Model& model, uint32_t rank, uint64_t to) {
  const Model before = model;
  const Result<std::optional<uint64_t>> restarted = session.restart({.at_most = to});
  // Some nodes may have dropped the only one of these steps, and others not yet; or a slow disk is not done with the
  // last.
  const StatusCode code = restarted.status().code();
  if ((code == StatusCode::corrupt || code == StatusCode::busy) && model == before) return std::optional<CourseStep>();
  VARVE_TRY(restarted.status());
  if (restarted->value_or(0) > to) fail("the run went back to a later step than it asked for");
  if (!*restarted) model.begin(rank);
  const CourseStep from = recognise(model, rank, restarted->value_or(0));
  world_.simulator().tell(fmt::format("rank {} goes back to {}", rank, from.to_string()));
  return std::optional(from);
}

Result<bool> Job::drop(RunSession& session, uint64_t step) {
  forget([step](uint64_t other) { return other == step; });
  const Status dropped = session.drop(step);
  if (dropped.code() == StatusCode::not_found || dropped.code() == StatusCode::busy) return false;
  VARVE_TRY(dropped);
  for (size_t course = 0; course < courses_.size(); ++course) dropped_.insert(origin_of(course, step));
  world_.simulator().tell(fmt::format("step {} is dropped", step));
  return true;
}

void Job::report_persistent(uint32_t rank, CourseStep made) {
  const JobLevel& nearest = nearest_store();
  promises_.report(nearest.ordinal, made, nearest.of_node() ? rank / plan_.ranks_per_node : 0);
}

void Job::report_progress(uint32_t rank, size_t course, const SessionProgress& progress) {
  if (progress.newest_persistent) report_persistent(rank, origin_of(course, *progress.newest_persistent));
  for (const JobLevel& level : levels_) {
    const std::optional<uint64_t> newest = progress.levels.at(level.ordinal).newest;
    if (!newest || level.floor == Floor::nearest_store) continue;
    if (level.floor == Floor::memory) {
      memory_of_run_ = run_count_;
      promises_.report(level.ordinal, origin_of(course, *newest), rank);
    } else {
      promises_.report(level.ordinal, origin_of(course, *newest),
                       nearest_store().of_node() ? rank / plan_.ranks_per_node : 0);
    }
  }
}

/// A checkpoint that is being copied takes the place of the one before.
void Job::forget_memory() {
  if (levels_.front().floor == Floor::memory) promises_.note_lost(0);
}

void Job::forget(const std::function<bool(uint64_t step)>& such) {
  for (const JobLevel& level : levels_) {
    if (level.floor == Floor::farther_store && !level.spec.keep) {
      promises_.forget(level.ordinal, such);
    } else {
      promises_.note_lost(level.ordinal);
    }
  }
}

/// The program has gone back to this step, and makes later ones anew. In the nodes' own stores each of these stays
/// until the new one is on all nodes, or something later: so what was promised there is, until something newer is.
/// Where there is memory, what is made anew of the step itself may have come before.
void Job::forget_behind(uint64_t step) {
  const auto such = [step](uint64_t later) { return later > step; };
  const size_t nearest = nearest_store().ordinal;
  const bool stays = nearest_store().of_node() && nearest == 0;
  const auto reported = promises_.levels()[nearest].reported;
  forget(such);
  if (stays) promises_.levels()[nearest].reported = reported;
}

void Job::note_loss(Loss loss, uint32_t lost_nodes) {
  const Floor floor = floor_of(specs(), loss, lost_nodes);
  for (const JobLevel& level : levels_) {
    const bool far_is_gone = loss == Loss::shared_file_system && level.floor == Floor::farther_store;
    if (level.floor < floor || far_is_gone) promises_.note_lost(level.ordinal);
  }
}

void Job::check_restart(const Run& run, uint32_t rank, std::optional<CourseStep> from) {
  Simulator& simulator = world_.simulator();
  const std::optional<CourseStep> promised = promises_.newest();
  const auto text = [](const std::optional<CourseStep>& made) { return made ? made->to_string() : "nothing"; };
  simulator.tell(fmt::format("rank {} restarts from {}; promised: {}", rank, text(from), text(promised)));
  if (run.restarted && *run.restarted != from) fail("ranks of one run restart from different steps");
  if (from && dropped_.contains(*from)) fail(fmt::format("step {} was dropped, and is back", text(from)));
  if (run.plan.may_lose || !promised) return;
  if (!from || *from < *promised) {
    fail(fmt::format("step {} was reported persistent, and the restart is from {}", text(promised), text(from)));
  }
}

void Job::note_warnings(RunSession& session, uint32_t rank, const RunPlan& plan) {
  for (const Status& warning : session.warnings()) {
    world_.simulator().tell(fmt::format("warning to rank {}: {}", rank, warning.to_string()));
    const bool wrong = plan.all_is_whole && promises_.newest() && warning.code() == StatusCode::corrupt &&
                       warning.message().find("damaged") != std::string_view::npos;
    if (wrong) fail("what nobody has damaged is called damaged: " + warning.to_string());
  }
}

void Job::be_rank(const std::shared_ptr<Run>& run, uint32_t rank) {
  Simulator& simulator = world_.simulator();
  const RunPlan& plan = run->plan;
  Random together(run->seed);  // the same draws on all ranks
  // What each call came to is told, and checked against what may be.
  auto note = [&](const char* call, const Status& outcome, bool may_fail) {
    check_call(rank);
    calls_[rank].name = nullptr;
    if (outcome.ok()) return true;
    simulator.tell(fmt::format("{} of rank {}: {}", call, rank, outcome.to_string()));
    if (!may_fail) fail(fmt::format("{} of rank {} failed without a fault: {}", call, rank, outcome.to_string()));
    return false;
  };
  auto begin = [&](const char* call) { calls_[rank] = {call, simulator.now()}; };

  SessionOptions options;
  options.levels = plan_.levels;
  options.job = "job";
  options.group = plan_.group;
  options.codec = "store";
  options.shared_memory = kMemoryFolder;
  options.stop_on_signals = false;
  options.low_priority = false;
  options.every_steps = 1;
  options.memory_bytes = 32 << 20;
  options.threads = 1;
  if (plan_.two_slots) options.when_busy = WhenBusy::two_slots;
  SessionEnvironment environment;
  environment.files = &world_.files();
  environment.sources = {};
  environment.find_place = [name = simulator.current_process().machine->name](const std::string&) -> Result<RankPlace> {
    return RankPlace{name, 0, name};
  };

  begin("open");
  auto opened = RunSession::open(std::move(run->communicators[rank]), options, environment);
  if (!note("open", opened.status(), plan.may_fail)) return;
  RunSession& session = **opened;
  Model model(rank, plan_.cells);
  Status protection =
      session.variables().protect_array("field", element_type_of<double>(), model.field.data(), model.field.size(), {});
  if (protection.ok()) protection = session.variables().protect_scalar("sum", element_type_of<uint64_t>(), &model.sum);
  if (!note("protect", protection, false)) return;

  begin("restart");
  const Result<std::optional<uint64_t>> restarted = session.restart();
  // What some nodes have of checkpoints that never were whole is for the user to drop, unless it is of the very first.
  const bool was_never_whole = restarted.status().code() == StatusCode::corrupt && !promises_.newest();
  if (!note("restart", restarted.status(), plan.may_fail || was_never_whole)) return;
  CourseStep at = recognise(model, rank, restarted->value_or(0));
  const std::optional<CourseStep> restarted_from = *restarted ? std::optional(at) : std::nullopt;
  check_restart(*run, rank, restarted_from);
  for (Disk* disk : world_.disks()) disk->failing_read = 0;
  run->restarted = restarted_from;

  size_t times_back = 0;
  /// It goes on from there as nobody has before. The first rank begins the course, and the others follow.
  auto begin_course = [&](CourseStep from) {
    if (times_back == run->courses.size()) {
      courses_.push_back({from.course, from.step});
      run->courses.push_back(courses_.size() - 1);
    }
    at = {run->courses[times_back++], from.step};
  };
  // Where the job has gone back before, there may be later steps that were computed in another way.
  if (courses_.size() > 1) begin_course(at);

  for (uint64_t done = 0; done < plan.steps; ++done) {
    simulator.spend(
        std::chrono::nanoseconds(static_cast<int64_t>(simulator.random().unit() * plan.step_seconds * 1e9)));
    const uint64_t step = ++at.step;
    model.go(at.course, step, step);
    const bool now = together.chance(plan.now_chance);
    const bool waits = together.chance(plan.wait_chance);
    const char* const kind = now ? "checkpoint(now)" : "checkpoint";
    forget_memory();
    begin(kind);
    const bool made = note(kind, session.checkpoint(step, now ? Persistence::now : Persistence::later), plan.may_fail);
    if (made && now) report_persistent(rank, at);
    if (waits) {
      begin("wait");
      (void)note("wait", session.wait(), plan.may_fail);
    }
    report_progress(rank, at.course, session.progress());
    note_warnings(session, rank, plan);
    if (together.chance(plan.drop_chance)) {
      const uint64_t far = together.between(0, 2);
      forget_memory();
      begin("drop");
      const Result<bool> dropped = drop(session, step > far ? step - far : step);
      if (!note("drop", dropped.status(), plan.may_fail)) return;
      // If it is made again, it is another one.
      if (*dropped) begin_course(at);
      report_progress(rank, at.course, session.progress());
    }
    if (!together.chance(plan.back_chance)) continue;
    forget_memory();
    begin("going back");
    const uint64_t far = together.between(0, 3);
    const auto from = go_back(session, model, rank, step > far ? step - far : 0);
    if (!note("going back", from.status(), plan.may_fail)) return;
    if (!*from) continue;
    begin_course(**from);
    forget_behind(at.step);
    report_progress(rank, at.course, session.progress());
  }
  last_step_ = at.step;
  if (!plan.finishes) return;
  begin("finish");
  const Status finished = session.finish(kFinishLimit);
  report_progress(rank, at.course, session.progress());
  forget_memory();
  note_warnings(session, rank, plan);
  (void)note("finish", finished, plan.may_fail);
}

}  // namespace varve::sim
