#include "sim/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "sim/job.h"
#include "sim/whole_store.h"
#include "sim/world.h"
#include "store/catalog.h"

namespace varve::sim {

namespace {
/// What describes a group of a set in an arena, at most: roots, leaves, headers, an index.
constexpr uint64_t kOverheadOfSet = 2000;

/// Redundancy that so many nodes can have.
std::string draw_redundancy(Random& random, uint32_t node_count) {
  switch (random.below(node_count > 2 ? 4 : 2)) {
    case 0: return "partner";
    case 1: return fmt::format("xor:{}", node_count);
    case 2: return fmt::format("xor:{}", random.between(2, node_count));
    default: {
      const uint64_t data = random.between(1, node_count - 2);
      return fmt::format("rs:{}+{}", data, random.between(2, node_count - data));
    }
  }
}

/// The specifications of docs/GUIDE.md, with what they leave open.
std::string draw_levels(Random& random, uint32_t node_count) {
  const uint64_t keep = random.between(1, 2), every = random.between(1, 3);
  const std::string redundancy = draw_redundancy(random, node_count);
  switch (random.below(9)) {
    case 0: return "dir:/shared/store";
    case 1: return fmt::format("memory; dir:/shared/store keep={}", keep);
    case 2: return fmt::format("memory; local:/local/store keep={}", keep);
    case 3: return fmt::format("local:/local/store keep={}; dir:/shared/store every={}", keep, every);
    case 4: return fmt::format("memory; local:/local/store keep={}; dir:/server0/store every={} keep=2", keep, every);
    case 5: return fmt::format("memory; local:/local/store keep={}; {} keep={}", keep, redundancy, keep);
    case 6:
      return fmt::format("memory; local:/local/store keep={}; {}; dir:/shared/store every={}", keep, redundancy, every);
    case 7:
      return fmt::format("memory; local:/local/store keep={}; {}; dir:/server0/store every={}", keep, redundancy,
                         every);
    default: return fmt::format("memory; dir:/shared/store keep={}; dir:/server0/store every={}", keep, every);
  }
}

/// The faults that a schedule may have; each phase takes some of them.
struct Faults {
  bool full_disk = false, slow_node = false, errors = false, kill = false, power = false, pause = false, cut = false,
       lost_replies = false, calendar = false, read_errors = false;
  bool any() const { return full_disk || errors || kill || power || cut || lost_replies || read_errors; }
};

/// One kind alone: others would end the run before it has done its worst.
Faults draw_one_fault(Random& random) {
  bool Faults::*const kinds[] = {&Faults::full_disk, &Faults::full_disk, &Faults::errors,
                                 &Faults::power,     &Faults::pause,     &Faults::cut};
  Faults faults;
  faults.*kinds[random.below(std::size(kinds))] = true;
  return faults;
}

Faults draw_faults(Random& random) {
  Faults faults;
  if (random.chance(0.1)) return faults;  // nothing may fail then
  if (random.chance(0.25)) return draw_one_fault(random);
  faults.full_disk = random.chance(0.3);
  faults.slow_node = random.chance(0.3);
  faults.errors = random.chance(0.15);
  faults.read_errors = random.chance(0.1);
  faults.kill = random.chance(0.5);
  faults.power = random.chance(0.3);
  faults.pause = random.chance(0.2);
  faults.cut = random.chance(0.2);
  faults.lost_replies = random.chance(0.1);
  faults.calendar = random.chance(0.1);
  return faults;
}

class Story {
 public:
  Story(Simulator& simulator, const std::string& scratch);
  void play();

 private:
  RunPlan draw_run(bool faulty);
  void play_phase();
  void inject(const Faults& faults);
  /// Between the runs: as much as the levels are to outlast, or nothing.
  void lose_something();
  void lose_disks();
  void lose_shared_files();
  void fail_one_read();
  void check_stores();
  void check_store(FileSystem& files, const JobLevel& level);
  void check_backlog(const JobLevel& farther);

  Simulator& simulator_;
  Random random_;
  World world_;
  Job job_;
  const Faults faults_;
  bool lost_files_ = false;  ///< disks are empty that were not
};

JobPlan draw_job(Random& random, uint32_t node_count) {
  JobPlan plan;
  plan.node_count = node_count;
  plan.ranks_per_node = static_cast<uint32_t>(random.between(1, 2));
  plan.group = random.chance(0.7) ? "node" : "rank";
  plan.cells = random.between(20, 400);
  plan.two_slots = random.chance(0.3);
  plan.levels = draw_levels(random, node_count);
  return plan;
}

uint32_t draw_node_count(Random& random) {
  if (random.chance(0.02)) return static_cast<uint32_t>(random.between(9, 16));
  return static_cast<uint32_t>(random.chance(0.1) ? random.between(5, 8) : random.between(2, 4));
}

Story::Story(Simulator& simulator, const std::string& scratch)
    : simulator_(simulator),
      random_(simulator.random().fork()),
      world_(simulator, draw_node_count(random_), 1, scratch),
      job_(world_, draw_job(random_, static_cast<uint32_t>(world_.nodes().size()))),
      faults_(draw_faults(random_)) {}

RunPlan Story::draw_run(bool faulty) {
  RunPlan plan;
  plan.steps = random_.between(2, 8);
  plan.step_seconds = random_.chance(0.5) ? 0.05 : 2;
  plan.now_chance = random_.chance(0.3) ? 0.3 : 0;
  plan.wait_chance = random_.chance(0.5) ? 0.5 : 0;
  plan.drop_chance = random_.chance(0.2) ? 0.15 : 0;
  plan.back_chance = random_.chance(0.3) ? 0.25 : 0;
  plan.may_fail = plan.may_lose = faulty;
  return plan;
}

/// Faults, while the ranks run.
void Story::inject(const Faults& faults) {
  auto a_node = [&]() -> Node& { return world_.nodes()[random_.below(world_.nodes().size())]; };
  auto a_disk = [&]() -> Disk& {
    const std::vector<Disk*> disks = world_.disks();
    return *disks[random_.below(disks.size())];
  };
  auto a_moment = [&] {
    simulator_.spend(
        std::chrono::nanoseconds(static_cast<int64_t>(random_.unit() * (random_.chance(0.5) ? 1e9 : 1e10))));
  };
  if (faults.slow_node) a_node().disk->slowness = 1 + random_.unit() * 300;
  if (faults.full_disk && random_.chance(0.7)) {
    a_moment();
    Disk& disk = a_disk();
    disk.capacity = disk.used_bytes() + random_.below(30'000);
    simulator_.tell(fmt::format("the disk {} has room for {} bytes", disk.name(), disk.capacity - disk.used_bytes()));
  }
  if (faults.full_disk && random_.chance(0.3)) {
    if (random_.chance(0.5)) a_moment();
    Node& node = a_node();
    world_.shared().full_for = &node.machine;
    simulator_.tell(fmt::format("{} has no room on the shared disk", node.machine.name));
  }
  if (faults.errors && random_.chance(0.7)) {
    a_moment();
    Disk& disk = a_disk();
    disk.faults.write_error = random_.chance(0.5) ? 0.05 : 0;
    disk.faults.sync_error = random_.chance(0.5) ? 0.1 : 0;
  }
  if (faults.read_errors && random_.chance(0.7)) a_disk().faults.read_error = 0.05;
  if (faults.lost_replies && !world_.servers().empty()) world_.servers().front()->faults.lost_reply = 0.05;
  if (faults.cut && random_.chance(0.7)) {
    a_moment();
    Disk& disk = random_.chance(0.7) ? *world_.servers().front() : world_.shared();
    disk.away_until = simulator_.now() + std::chrono::seconds(random_.between(1, 600));
    simulator_.tell(fmt::format("{} is cut off", disk.name()));
    if (random_.chance(0.5)) disk.forget_open_files();
  }
  if (faults.pause && random_.chance(0.7)) {
    a_moment();
    const auto& ranks = job_.processes();
    Process& process = *ranks[random_.below(ranks.size())];
    if (process.alive) simulator_.pause(process, std::chrono::seconds(random_.between(1, 300)));
  }
  if (faults.calendar) a_node().machine.calendar_error = static_cast<int64_t>(random_.below(100'000)) - 50'000;
  if (faults.kill && random_.chance(0.6)) {
    a_moment();
    job_.kill_run();
  }
  if (faults.power && random_.chance(0.6)) {
    a_moment();
    const bool all = random_.chance(0.5);
    Node& chosen = a_node();
    job_.kill_run();
    job_.note_loss(Loss::power);
    for (Node& node : world_.nodes()) {
      if (!all && &node != &chosen) continue;
      const bool torn = random_.chance(0.5);
      world_.lose_power(node, job_.processes(),
                        {torn ? CrashPolicy::Kind::torn : CrashPolicy::Kind::drop_unsynced, random_.next()});
    }
  }
}

void Story::play_phase() {
  job_.start_run(draw_run(faults_.any()));
  inject(faults_);
  job_.await_run();
}

void Story::play() {
  const uint64_t phases = random_.between(1, 3);
  for (uint64_t phase = 0; phase < phases; ++phase) {
    play_phase();
    if (random_.chance(0.3)) world_.end_faults();
  }
  job_.kill_run();
  world_.end_faults();
  lose_something();
  fail_one_read();
  RunPlan last = draw_run(false);
  last.all_is_whole = !lost_files_;
  job_.start_run(last);
  job_.await_run();
  check_stores();
}

void Story::lose_something() {
  if (random_.chance(0.3)) return;
  const bool has_local = job_.nearest_store().of_node();
  const bool has_more = job_.levels().back().floor > Floor::nearest_store;
  if (has_local && has_more && random_.chance(0.5)) return random_.chance(0.7) ? lose_disks() : lose_shared_files();
  // What is in memory alone may go.
  job_.note_loss(Loss::power);
  for (Node& node : world_.nodes()) world_.lose_power(node, job_.processes(), {CrashPolicy::Kind::drop_unsynced, 0});
}

/// The disks of some nodes, with all that is in their memory.
void Story::lose_disks() {
  const uint32_t lost = static_cast<uint32_t>(random_.chance(0.6) ? 1 : random_.between(1, world_.nodes().size()));
  job_.note_loss(Loss::disks, lost);
  lost_files_ = true;
  std::vector<size_t> nodes(world_.nodes().size());
  std::iota(nodes.begin(), nodes.end(), size_t{0});
  for (uint32_t i = 0; i < lost; ++i) {
    std::swap(nodes[i], nodes[i + random_.below(nodes.size() - i)]);
    world_.lose_disk(world_.nodes()[nodes[i]], job_.processes());
  }
}

void Story::lose_shared_files() {
  job_.note_loss(Loss::shared_file_system);
  lost_files_ = true;
  for (const JobLevel& level : job_.levels()) {
    if (level.floor == Floor::farther_store) world_.lose_shared(level.spec.place);
  }
}

/// One read that fails, once, costs a restart nothing but time.
void Story::fail_one_read() {
  if (!random_.chance(0.5)) return;
  Machine& machine = world_.nodes()[random_.below(world_.nodes().size())].machine;
  world_.disk_of(job_.nearest_store().spec.place, machine)->failing_read = random_.between(1, 8);
}

void Story::check_stores() {
  // As long after the last sign of life that dead writers are known.
  simulator_.spend(std::chrono::minutes(2));
  for (const JobLevel& level : job_.levels()) {
    if (!level.spec.holds_sets()) continue;
    if (level.floor == Floor::farther_store) check_backlog(level);
    if (!level.of_node()) {
      check_store(world_.disk_of(level.spec.place, world_.director())->plain(), level);
      continue;
    }
    for (const Node& node : world_.nodes()) check_store(node.disk->plain(), level);
  }
}

void Story::check_store(FileSystem& files, const JobLevel& level) {
  auto store = Store::open(files, level.spec.place);
  if (!store.ok()) fail("a level cannot be opened: " + store.status().to_string());
  check_is_whole(**store);
  const bool is_protected = level.of_node() && job_.levels().size() > level.ordinal + 1 &&
                            job_.levels()[level.ordinal + 1].floor == Floor::redundancy;
  // What redundancy is of, stays as it is.
  if (!is_protected) check_one_prune(**store, kOverheadOfSet * world_.nodes().size() * job_.plan().ranks_per_node);
}

/// What all nodes have of what is due at a farther level is there, once a run went well.
void Story::check_backlog(const JobLevel& farther) {
  if (farther.spec.keep) return;
  const JobLevel& nearest = job_.nearest_store();
  std::vector<std::unique_ptr<Store>> stores;
  for (const Node& node : world_.nodes()) {
    FileSystem& disk = world_.disk_of(nearest.spec.place, node.machine)->plain();
    stores.push_back(Store::open(disk, nearest.spec.place).value());
    if (!nearest.of_node()) break;
  }
  FileSystem& there = world_.disk_of(farther.spec.place, world_.director())->plain();
  const auto store = Store::open(there, farther.spec.place).value();
  const std::vector<uint64_t> steps = Catalog(*stores.front()).steps("job").value();
  // What a run has gone back behind, and not made anew.
  const auto is_left_behind = [&](uint64_t step, uint64_t number) {
    return step > job_.last_step() || std::any_of(steps.begin(), steps.end(), [&](uint64_t other) {
             return other < step && Catalog(*stores.front()).read({"job", other}).value().number > number;
           });
  };
  for (const uint64_t step : steps) {
    const SetRecord here = Catalog(*stores.front()).read({"job", step}).value();
    const bool is_whole = std::all_of(stores.begin(), stores.end(), [&](const std::unique_ptr<Store>& other) {
      const Result<SetRecord> record = Catalog(*other).read({"job", step});
      return record.ok() && record->run == here.run;
    });
    if (!is_whole || here.number == 0 || here.number % farther.spec.every != 0) continue;
    if (is_left_behind(step, here.number)) continue;
    const Result<SetRecord> copy = Catalog(*store).read({"job", step});
    if (copy.ok() && copy->number == here.number) continue;
    fail(fmt::format("step {} is the {}th set, and is not in {} after a run without faults{}", step, here.number,
                     farther.spec.name(), copy.ok() ? fmt::format(", but the {}th", copy->number) : std::string()));
  }
}
}  // namespace

void play_runs(Simulator& simulator, const std::string& scratch) {
  auto* const director = new Machine{"-", {}};
  simulator.enter(*director);
  auto* const story = new Story(simulator, scratch);
  story->play();
}

}  // namespace varve::sim
