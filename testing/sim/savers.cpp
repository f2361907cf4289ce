#include "sim/savers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/command_levels.h"
#include "sim/chunk_set.h"
#include "sim/oracle.h"
#include "sim/world.h"
#include "store/prune.h"
#include "store/verify.h"

namespace varve::sim {

namespace {
constexpr std::chrono::hours kCallLimit(2);

struct Faults {
  bool cut = false, full = false, lost_replies = false, errors = false, kill = false, power = false, pause = false;
  bool hurts() const { return cut || full || lost_replies || errors || kill || power; }
};

Faults draw_faults(Random& random) {
  Faults faults;
  if (random.chance(0.1)) return faults;
  faults.cut = random.chance(0.6);
  faults.full = random.chance(0.2);
  faults.lost_replies = random.chance(0.15);
  faults.errors = random.chance(0.15);
  faults.kill = random.chance(0.3);
  faults.power = random.chance(0.2);
  faults.pause = random.chance(0.2);
  return faults;
}

class SaverStory {
 public:
  SaverStory(Simulator& simulator, const std::string& scratch);
  void play();

 private:
  /// A set of a job, as the program wrote it.
  struct Original {
    Numbers numbers;
    bool removed = false;  ///< by the watcher, which has it in its levels
    bool saved = false;    ///< as it was told
  };
  using Originals = std::map<uint64_t, Original>;  ///< by step

  Result<std::unique_ptr<CommandLevels>> open_levels();
  void be_saver(uint32_t ordinal, bool removes);
  /// Saves what is there and not saved yet, as a watcher that looks once.
  void look_once(const std::string& job, Originals& originals, bool removes, bool may_fail);
  static bool is_anywhere(CommandLevels& levels, const SetName& name);
  void note(const std::string& what, const Status& outcome, bool may_fail);
  void inject();
  void check_removed(const std::string& job, uint64_t step, const Numbers& numbers);
  void check_end();
  Status check_at(const LevelSpec& spec, const SetName& name, const Numbers& numbers);
  Result<std::unique_ptr<Store>> open_plain(const LevelSpec& spec);

  Simulator& simulator_;
  Random random_;
  World world_;
  const Faults faults_;
  std::vector<LevelSpec> levels_;
  std::string levels_text_;
  std::map<std::string, Originals> jobs_;
  std::vector<Process*> savers_;
};

SaverStory::SaverStory(Simulator& simulator, const std::string& scratch)
    : simulator_(simulator),
      random_(simulator.random().fork()),
      world_(simulator, 1, 2, scratch),
      faults_(draw_faults(random_)) {
  const uint64_t keep = random_.between(1, 3), every = random_.between(1, 3);
  levels_text_ = random_.chance(0.7) ? fmt::format("local:/local/near keep={}", keep) : "local:/local/near";
  levels_text_ += fmt::format("; dir:/server0/far every={}", every);
  if (random_.chance(0.3)) levels_text_ += fmt::format(" keep={}", random_.between(1, 3));
  if (random_.chance(0.3)) levels_text_ += "; dir:/server1/farther";
  levels_ = parse_levels(levels_text_).value();
}

Result<std::unique_ptr<CommandLevels>> SaverStory::open_levels() {
  CommandLevels::World taken;
  taken.files = &world_.files();
  taken.sources = {};
  return CommandLevels::open({.levels = levels_text_, .store = {}, .reach = {}}, CommandLevels::Use::save, taken);
}

void SaverStory::note(const std::string& what, const Status& outcome, bool may_fail) {
  simulator_.tell(fmt::format("{}: {}", what, outcome.ok() ? "done" : outcome.to_string()));
  if (!outcome.ok() && !may_fail) fail(fmt::format("{} failed without a fault: {}", what, outcome.to_string()));
}

bool SaverStory::is_anywhere(CommandLevels& levels, const SetName& name) {
  const Result<const Store*> found = find_set(levels.levels(), name);
  return found.ok() && *found != nullptr;
}

void SaverStory::look_once(const std::string& job, Originals& originals, bool removes, bool may_fail) {
  const Moment begun = simulator_.now();
  Result<std::unique_ptr<CommandLevels>> levels = open_levels();
  note("open", levels.status(), may_fail);
  if (!levels.ok()) return;
  for (auto& [step, original] : originals) {
    if (original.removed) continue;
    const SetName name{job, step};
    // As a watcher, which looks for a set at all levels before it saves it, and until its original is removed.
    const bool known = (original.saved && !removes) || is_anywhere(**levels, name);
    const Status saved = known ? Status() : save_numbers((*levels)->for_saving(), name, original.numbers);
    const bool is_there = saved.ok() || saved.code() == StatusCode::already_exists;
    note("save of " + name.to_string(), is_there ? Status() : saved, may_fail);
    if (!is_there) continue;
    original.saved = true;
    const Onward onward = (*levels)->bring_along(job, null_progress());
    for (const Status& failure : onward.failures) note("bringing along of " + job, failure, may_fail);
    if (!removes || onward.owed.contains(step)) continue;
    // As a watcher, which reads it back. Where all levels keep few sets, newer ones may have pushed it out meanwhile.
    if (!is_anywhere(**levels, name)) continue;
    simulator_.tell("the original of " + name.to_string() + " is removed");
    original.removed = true;
    check_removed(job, step, original.numbers);
  }
  if (simulator_.now() - begun > kCallLimit) fail("a look at what is to be saved took too long");
}

void SaverStory::be_saver(uint32_t ordinal, bool removes) {
  Random random = simulator_.random().fork();
  const std::string job = fmt::format("job{}", ordinal);
  Originals& originals = jobs_[job];
  const uint64_t sets = random.between(2, 6);
  for (uint64_t step = 1; step <= sets; ++step) {
    simulator_.spend(std::chrono::milliseconds(random.below(random.chance(0.5) ? 100 : 100'000)));
    const uint64_t first = random.below(100), count = random.between(2, 20);
    for (uint64_t i = 0; i < count; ++i) originals[step].numbers.push_back(first + i);
    look_once(job, originals, removes, faults_.hurts());
  }
}

Result<std::unique_ptr<Store>> SaverStory::open_plain(const LevelSpec& spec) {
  return Store::open(world_.disk_of(spec.place, world_.nodes().front().machine)->plain(), spec.place);
}

Status SaverStory::check_at(const LevelSpec& spec, const SetName& name, const Numbers& numbers) {
  VARVE_ASSIGN(const auto store, open_plain(spec));
  return check_numbers(*store, name, numbers);
}

/// What is removed has to be at every level where it is due; and somewhere.
void SaverStory::check_removed(const std::string& job, uint64_t step, const Numbers& numbers) {
  const SetName name{job, step};
  uint64_t copies = 0;
  std::string told;
  for (const LevelSpec& spec : levels_) {
    const Status checked = check_at(spec, name, numbers);
    if (checked.ok()) ++copies;
    if (!checked.ok()) told += "\n  " + spec.name() + ": " + checked.to_string();
  }
  if (copies == 0) fail(fmt::format("the original of {} is removed, and no level has it:{}", name.to_string(), told));
}

void SaverStory::inject() {
  auto a_moment = [&] {
    simulator_.spend(std::chrono::milliseconds(random_.below(random_.chance(0.5) ? 500 : 100'000)));
  };
  auto a_server = [&]() -> Disk& { return *world_.servers()[random_.below(2)]; };
  Disk& near = *world_.nodes().front().disk;
  if (faults_.lost_replies) a_server().faults.lost_reply = 0.03;
  if (faults_.errors) {
    Disk& disk = random_.chance(0.5) ? near : a_server();
    disk.faults.write_error = 0.03;
    disk.faults.sync_error = 0.03;
  }
  if (faults_.pause) {
    for (Process* saver : savers_) saver->pause_chance = 0.01;
  }
  for (uint64_t i = random_.between(1, 3); faults_.cut && i > 0; --i) {
    if (i > 1 || random_.chance(0.5)) a_moment();
    Disk& disk = a_server();
    disk.away_until = simulator_.now() + std::chrono::seconds(random_.between(1, 600));
    simulator_.tell(disk.name() + " is cut off");
  }
  if (faults_.full) {
    a_moment();
    Disk& disk = random_.chance(0.5) ? near : a_server();
    disk.capacity = disk.used_bytes() + random_.below(20'000);
  }
  if (faults_.kill) {
    a_moment();
    simulator_.kill(*savers_[random_.below(savers_.size())]);
  }
  if (faults_.power) {
    a_moment();
    world_.lose_power(world_.nodes().front(), savers_, {CrashPolicy::Kind::torn, random_.next()});
  }
}

void SaverStory::play() {
  for (uint64_t i = random_.between(1, 2); i > 0; --i) {
    const bool removes = random_.chance(0.5);
    savers_.push_back(&simulator_.start_process(fmt::format("saver{}", i), world_.nodes().front().machine,
                                                [this, i, removes] { be_saver(static_cast<uint32_t>(i), removes); }));
  }
  inject();
  for (const Process* saver : savers_) (void)simulator_.await_end(*saver, Moment::max());
  world_.end_faults();
  simulator_.spend(std::chrono::minutes(2));
  // Everybody comes by once more.
  Process& last = simulator_.start_process("last", world_.nodes().front().machine, [this] {
    for (auto& [job, originals] : jobs_) {
      originals[1000].numbers = {7, 8, 9};
      look_once(job, originals, false, false);
    }
  });
  (void)simulator_.await_end(last, Moment::max());
  check_end();
}

void SaverStory::check_end() {
  // Whoever was killed before he came to save anything has made no store either.
  if (jobs_.empty()) return;
  for (const auto& [job, originals] : jobs_) {
    for (const auto& [step, original] : originals) {
      const SetName name{job, step};
      uint64_t copies = 0;
      bool gives_up = false;
      for (const LevelSpec& spec : levels_) {
        const Status checked = check_at(spec, name, original.numbers);
        if (checked.ok()) ++copies;
        if (!checked.ok() && checked.code() != StatusCode::not_found) fail("a set is damaged: " + checked.to_string());
        gives_up = gives_up || spec.keep.has_value();
        // A level that keeps all sets has all that are due there.
        if (!checked.ok() && !spec.keep && spec.every == 1) {
          fail(fmt::format("{} is not in {}, and nothing fails any more", name.to_string(), spec.name()));
        }
      }
      if (copies == 0 && !gives_up) fail(name.to_string() + " was saved, and is nowhere");
    }
  }
  for (const LevelSpec& spec : levels_) {
    const auto store = open_plain(spec);
    if (!store.ok()) fail("a level cannot be opened: " + store.status().to_string());
    const Result<VerifyReport> verified = verify_store(**store, /*deep=*/true);
    if (!verified.ok()) fail("a level cannot be verified: " + verified.status().to_string());
    for (const Damage& damage : verified->damages) {
      if (!damage.affected_sets.empty()) fail("a set is damaged: " + damage.what.to_string());
    }
  }
}
}  // namespace

void play_savers(Simulator& simulator, const std::string& scratch) {
  auto* const director = new Machine{"-", {}};
  simulator.enter(*director);
  auto* const story = new SaverStory(simulator, scratch);
  story->play();
}

}  // namespace varve::sim
