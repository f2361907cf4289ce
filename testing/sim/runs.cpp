#include "sim/runs.h"

#include <fmt/format.h>

#include <vector>

#include "sim/job.h"
#include "sim/world.h"
#include "store/prune.h"
#include "store/verify.h"

namespace varve::sim {

namespace {
/// The specifications of docs/GUIDE.md, with what they leave open.
std::string draw_levels(Random& random, uint32_t node_count) {
  const uint64_t keep = random.between(1, 2), every = random.between(1, 3);
  switch (random.below(8)) {
    case 0: return "dir:/shared/store";
    case 1: return fmt::format("memory; dir:/shared/store keep={}", keep);
    case 2: return fmt::format("memory; local:/local/store keep={}", keep);
    case 3: return fmt::format("local:/local/store keep={}; dir:/shared/store every={}", keep, every);
    case 4: return fmt::format("memory; local:/local/store keep={}; dir:/server0/store every={} keep=2", keep, every);
    case 5: return fmt::format("memory; local:/local/store keep={}; partner; dir:/shared/store every={}", keep, every);
    case 6:
      return fmt::format("memory; local:/local/store keep={}; xor:{}; dir:/server0/store every={}", keep, node_count,
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

Faults draw_faults(Random& random) {
  Faults faults;
  if (random.chance(0.1)) return faults;  // nothing may fail then
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
  void check_stores();
  void check_store(FileSystem& files, const std::string& path);

  Simulator& simulator_;
  Random random_;
  World world_;
  Job job_;
  const Faults faults_;
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
    a_moment();
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
  if (random_.chance(0.7)) {
    // What is in memory alone may go.
    for (Node& node : world_.nodes()) world_.lose_power(node, job_.processes(), {CrashPolicy::Kind::drop_unsynced, 0});
  }
  // One read that fails, once, costs a restart nothing but time.
  if (random_.chance(0.3)) {
    const std::vector<Disk*> disks = world_.disks();
    disks[random_.below(disks.size())]->failing_read = random_.between(1, 12);
  }
  job_.start_run(draw_run(false));
  job_.await_run();
  check_stores();
}

void Story::check_stores() {
  for (const JobLevel& level : job_.levels()) {
    if (!level.of_node) {
      check_store(world_.disk_of(level.path, world_.director())->plain(), level.path);
      continue;
    }
    for (const Node& node : world_.nodes()) check_store(node.disk->plain(), level.path);
  }
}

void Story::check_store(FileSystem& files, const std::string& path) {
  auto store = Store::open(files, path);
  if (!store.ok()) fail("a level cannot be opened: " + store.status().to_string());
  const Result<VerifyReport> report = verify_store(**store, /*deep=*/true);
  if (!report.ok()) fail("a level cannot be verified: " + report.status().to_string());
  for (const Damage& damage : report->damages) {
    if (!damage.affected_sets.empty()) fail("a set is damaged: " + damage.what.to_string());
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
