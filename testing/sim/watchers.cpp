#include "sim/watchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/bytes.h"
#include "engine/inspect.h"
#include "engine/save.h"
#include "layout/layout_service.h"
#include "level/retention.h"
#include "runtime/command_levels.h"
#include "sim/oracle.h"
#include "sim/world.h"
#include "sim/written_files.h"
#include "store/verify.h"
#include "watch/watcher.h"

namespace varve::sim {

namespace {
constexpr const char* kJob = "run";

struct Faults {
  bool cut = false, full = false, lost_replies = false, errors = false, kill = false, pause = false;
  bool hurts() const { return cut || full || lost_replies || errors || kill; }
};

Faults draw_faults(Random& random) {
  Faults faults;
  if (random.chance(0.3)) return faults;
  faults.cut = random.chance(0.4);
  faults.full = random.chance(0.1);
  faults.lost_replies = random.chance(0.1);
  faults.errors = random.chance(0.1);
  faults.kill = random.chance(0.4);
  faults.pause = random.chance(0.2);
  return faults;
}

/// Ends a watcher's run, as a signal does.
class Stop final : public ProgressSink {
 public:
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return stopped; }
  bool stopped = false;
};

class WatchStory final : public WatchListener {
 public:
  WatchStory(Simulator& simulator, const std::string& scratch);
  void play();

  void happened(const WatchEvent& event) override;
  void begins(const SetName& name) override { tell("saves " + name.to_string()); }
  void rests(const SetTracker&) override {}

 private:
  void write_sets();
  void write_more();
  void add_to(uint64_t step, const std::string& name);
  std::string draw_text();
  /// What a program does meanwhile: nothing for a moment, or for as long as a watcher waits for it, or longer.
  void rest();

  Process& start_watcher(bool once);
  void watch(bool once);
  WatchDuty duty_of(CommandLevels& levels);
  void inject();
  void check_removed();
  Status check_at(const LevelSpec& spec, const WrittenFiles::File& file);
  std::optional<uint64_t> number_of(uint64_t step);
  void check_end();
  /// Without the names of real folders, which differ from one play to the next.
  void tell(std::string text);
  std::string shown(std::string text) const;

  Simulator& simulator_;
  Random random_;
  World world_;
  const Faults faults_;
  WrittenFiles written_;
  std::unique_ptr<LayoutService> layouts_;
  std::string levels_text_;
  std::vector<LevelSpec> levels_;
  double quiet_seconds_ = 1;
  Stop stop_;
  bool may_fail_ = false;
  std::vector<Process*> programs_;
  Process* watcher_ = nullptr;
};

WatchStory::WatchStory(Simulator& simulator, const std::string& scratch)
    : simulator_(simulator),
      random_(simulator.random().fork()),
      world_(simulator, 1, 2, scratch),
      faults_(draw_faults(random_)),
      written_(simulator, scratch + "/watched"),
      layouts_(LayoutService::start().value()),
      may_fail_(faults_.hurts()) {
  levels_text_ = "local:/local/near";
  if (random_.chance(0.5)) levels_text_ += fmt::format(" keep={}", random_.between(1, 3));
  if (random_.chance(0.8)) levels_text_ += fmt::format("; dir:/server0/far every={}", random_.between(1, 2));
  if (random_.chance(0.3)) levels_text_ += "; dir:/server1/farther";
  levels_ = parse_levels(levels_text_).value();
  const double quiets[] = {0.2, 1, 10};
  quiet_seconds_ = quiets[random_.below(3)];
}

std::string WatchStory::shown(std::string text) const {
  for (size_t at; (at = text.find(written_.folder())) != std::string::npos;) text.erase(at, written_.folder().size());
  return text;
}

void WatchStory::tell(std::string text) { simulator_.tell(shown(std::move(text))); }

// Programs

std::string WatchStory::draw_text() {
  Random& random = simulator_.random();
  std::string text(random.between(10, random.chance(0.5) ? 100 : 3000), ' ');
  for (char& letter : text) letter = static_cast<char>('a' + random.below(26));
  return text;
}

void WatchStory::rest() {
  Random& random = simulator_.random();
  const double longest = random.chance(0.6) ? 0.3 : random.chance(0.7) ? 3 * quiet_seconds_ : 60;
  simulator_.spend(std::chrono::nanoseconds(static_cast<int64_t>(random.unit() * longest * 1e9)));
}

void WatchStory::write_sets() {
  Random& random = simulator_.random();
  const uint64_t sets = random.between(1, 5);
  for (uint64_t step = 1; step <= sets; ++step) {
    std::vector<WrittenFiles::Writer> held;
    for (uint64_t file = 0, count = random.between(1, 3); file < count; ++file) {
      std::optional<WrittenFiles::Writer> writer = written_.create(step, fmt::format("data.{}", file));
      if (!writer) continue;
      for (uint64_t pieces = random.between(1, 3); pieces > 0; --pieces) {
        rest();
        written_.append(*writer, draw_text());
      }
      if (random.chance(0.3)) {
        held.push_back(std::move(*writer));
      } else {
        written_.close(std::move(*writer));
      }
    }
    rest();
    for (WrittenFiles::Writer& writer : held) written_.close(std::move(writer));
  }
}

/// Another program, which comes back to what is there.
void WatchStory::write_more() {
  Random& random = simulator_.random();
  for (uint64_t i = random.between(2, 12); i > 0; --i) {
    rest();
    const std::vector<WrittenFiles::File>& files = written_.files();
    if (files.empty()) continue;
    const size_t recent = std::min<size_t>(files.size(), 4);
    const WrittenFiles::File& chosen = files[files.size() - 1 - random.below(recent)];
    const uint64_t step = chosen.step;
    const std::string name = chosen.name;
    if (random.chance(0.2)) {
      (void)written_.replace(step, name, draw_text());
    } else {
      add_to(step, name);
    }
  }
}

void WatchStory::add_to(uint64_t step, const std::string& name) {
  Random& random = simulator_.random();
  std::optional<WrittenFiles::Writer> writer = written_.open(step, name);
  if (!writer && random.chance(0.3)) writer = written_.create(step, name);
  if (!writer) return;
  for (uint64_t pieces = random.between(0, 2); pieces > 0; --pieces) {
    rest();
    written_.append(*writer, draw_text());
  }
  rest();
  written_.close(std::move(*writer));
}

// The watcher

WatchDuty WatchStory::duty_of(CommandLevels& levels) {
  WatchDuty duty;
  duty.save = [this, &levels](const SetToSave& set, const SetName& name, ProgressSink& progress) {
    SaveOptions options;
    options.job = name.job;
    options.step = name.step;
    options.chunker.bytes_average = 512;
    options.thread_count = 1;
    options.memory_bytes = 32 << 20;
    options.direct_io = false;
    return save_files(levels.for_saving(), set.folder, set.files, name, options, *layouts_, progress,
                      set.check_as_found);
  };
  duty.bring_along = [this, &levels](const SetName& name, ProgressSink& progress) -> Status {
    const Onward onward = levels.bring_along(name.job, progress);
    for (const Status& failure : onward.failures) tell("bringing along: " + failure.to_string());
    if (!onward.owed.contains(name.step)) return {};
    return onward.failures.empty() ? Status::cancelled("stopped") : onward.failures.front();
  };
  duty.find = [&levels](const SetName& name) { return find_set(levels.levels(), name); };
  return duty;
}

void WatchStory::watch(bool once) {
  CommandLevels::World taken;
  taken.files = &world_.files();
  taken.sources = {};
  Result<std::unique_ptr<CommandLevels>> levels =
      CommandLevels::open({.levels = levels_text_, .store = {}, .reach = {}}, CommandLevels::Use::save, taken);
  if (!levels.ok()) {
    tell("the watcher does not come up: " + levels.status().to_string());
    if (!may_fail_) fail("a watcher's levels cannot be opened: " + levels.status().to_string());
    return;
  }
  WatchOptions options;
  options.folders = {written_.folder()};
  options.job = kJob;
  options.quiet_seconds = quiet_seconds_;
  options.remove_originals = true;
  const auto watcher = Watcher::open((*levels)->for_saving(), options, duty_of(**levels), *this);
  if (!watcher.ok()) fail("a watcher cannot be opened: " + shown(watcher.status().to_string()));
  const Status ran = (*watcher)->run(once, stop_);
  tell("the watcher ends: " + (ran.ok() ? "OK" : ran.to_string()));
  if (!ran.ok()) fail("a watcher ended by itself: " + shown(ran.to_string()));
}

Process& WatchStory::start_watcher(bool once) {
  watcher_ = &simulator_.start_process("watcher", world_.nodes().front().machine, [this, once] { watch(once); });
  if (faults_.pause && !once) watcher_->pause_chance = 0.02;
  return *watcher_;
}

void WatchStory::happened(const WatchEvent& event) {
  using enum WatchEvent::Kind;
  const std::string name = event.entry.name.to_string();
  switch (event.kind) {
    case found: return;
    case saved: return tell(name + " is saved");
    case was_saved: return tell(name + " was saved already");
    case differs: return tell(name + " is another one in the store");
    case removed: tell("the originals of " + name + " are removed"); return check_removed();
    case failed: break;
  }
  tell(name + ": " + event.entry.failure.to_string());
  // A file whose place a program has taken meanwhile is left aside, and that is said.
  if (may_fail_ || event.entry.failure.code() == StatusCode::already_exists) return;
  fail("a watcher fails without a fault: " + shown(event.entry.failure.to_string()));
}

// Checks

std::optional<uint64_t> WatchStory::number_of(uint64_t step) {
  for (const LevelSpec& spec : levels_) {
    const auto store = Store::open(world_.disk_of(spec.place, world_.nodes().front().machine)->plain(), spec.place);
    if (!store.ok()) continue;
    const Result<SetRecord> record = Catalog(**store).read({kJob, step});
    if (record.ok()) return record->number;
  }
  return std::nullopt;
}

Status WatchStory::check_at(const LevelSpec& spec, const WrittenFiles::File& file) {
  FileSystem& disk = world_.disk_of(spec.place, world_.nodes().front().machine)->plain();
  VARVE_ASSIGN(const auto store, Store::open(disk, spec.place));
  std::string text;
  VARVE_TRY(read_set_file(
      *store, {kJob, file.step}, file.name, {},
      [&text](ByteSpan bytes) {
        text += as_text(bytes);
        return Status();
      },
      null_progress()));
  return text == file.text ? Status() : Status::already_exists("the level has another file", file.name);
}

/// What is gone from the folder is at all levels where it is due.
void WatchStory::check_removed() {
  for (WrittenFiles::File& file : written_.files()) {
    if (file.given_up || file.saved || written_.is_there(file)) continue;
    const std::string name = fmt::format("{}/{}", WrittenFiles::folder_of(file.step), file.name);
    const std::optional<uint64_t> number = number_of(file.step);
    bool anywhere = false;
    for (const LevelSpec& spec : levels_) {
      const Status there = check_at(spec, file);
      anywhere = anywhere || there.ok();
      const bool near = &spec == &levels_.front();
      if (there.ok() || near || !number || !is_due(spec, *number)) continue;
      fail(fmt::format("{} is removed, and is not in {}: {}", name, spec.name(), there.to_string()));
    }
    if (!anywhere) fail(name + " is removed, and no level has it");
    file.saved = true;
  }
}

void WatchStory::check_end() {
  // Where all sets stay, all of them are.
  const bool all_stay =
      std::any_of(levels_.begin(), levels_.end(), [](const LevelSpec& spec) { return !spec.keep && spec.every == 1; });
  for (const WrittenFiles::File& file : written_.files()) {
    if (file.given_up) continue;
    const std::string name = fmt::format("{}/{}", WrittenFiles::folder_of(file.step), file.name);
    if (!file.saved && !written_.is_there(file)) fail(name + " is nowhere");
    if (!all_stay) continue;
    const bool is_at_a_level =
        std::any_of(levels_.begin(), levels_.end(), [&](const LevelSpec& spec) { return check_at(spec, file).ok(); });
    if (file.saved && !is_at_a_level) fail(name + " was saved, and is nowhere");
    // What was changed after it was saved stays where it is. All else is saved by now.
    if (!file.saved && !number_of(file.step)) fail(name + " is left, and no level has a set of that name");
  }
}

// All of it

void WatchStory::inject() {
  auto a_moment = [&] {
    simulator_.spend(std::chrono::milliseconds(random_.below(random_.chance(0.5) ? 3'000 : 60'000)));
  };
  auto a_disk = [&]() -> Disk& {
    return random_.chance(0.5) ? *world_.nodes().front().disk : *world_.servers()[random_.below(2)];
  };
  if (faults_.lost_replies) world_.servers().front()->faults.lost_reply = 0.03;
  if (faults_.errors) {
    Disk& disk = a_disk();
    disk.faults.write_error = 0.03;
    disk.faults.sync_error = 0.03;
  }
  if (faults_.cut) {
    a_moment();
    Disk& disk = *world_.servers()[random_.below(2)];
    disk.away_until = simulator_.now() + std::chrono::seconds(random_.between(1, 300));
    tell(disk.name() + " is cut off");
  }
  if (faults_.full) {
    a_moment();
    Disk& disk = a_disk();
    disk.capacity = disk.used_bytes() + random_.below(20'000);
  }
  for (uint64_t i = faults_.kill ? random_.between(1, 2) : 0; i > 0; --i) {
    a_moment();
    simulator_.kill(*watcher_);
    written_.close_for_the_dead();
    check_removed();
    start_watcher(false);
  }
}

void WatchStory::play() {
  Machine& machine = world_.nodes().front().machine;
  start_watcher(false);
  programs_.push_back(&simulator_.start_process("program", machine, [this] { write_sets(); }));
  if (random_.chance(0.8)) programs_.push_back(&simulator_.start_process("other", machine, [this] { write_more(); }));
  inject();
  for (const Process* program : programs_) (void)simulator_.await_end(*program, Moment::max());
  if (random_.chance(0.5)) simulator_.spend(std::chrono::seconds(random_.below(60)));
  stop_.stopped = true;
  (void)simulator_.await_end(*watcher_, Moment::max());
  world_.end_faults();
  simulator_.spend(std::chrono::minutes(2));
  stop_.stopped = false;
  may_fail_ = false;
  (void)simulator_.await_end(start_watcher(true), Moment::max());
  check_removed();
  check_end();
}
}  // namespace

void play_watchers(Simulator& simulator, const std::string& scratch) {
  auto* const director = new Machine{"-", {}};
  simulator.enter(*director);
  auto* const story = new WatchStory(simulator, scratch);
  story->play();
}

}  // namespace varve::sim
