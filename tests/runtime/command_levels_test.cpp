// Levels as commands have them, beside what runs have left there.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "level/memory_level.h"
#include "runtime/cluster.h"
#include "runtime/command_levels.h"
#include "runtime/switched_file_system.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::Model;
using test::protect;
using test::run_and_kill;
using test::SessionPlace;
using test::steps_at;
using test::store_at;
using test::SwitchedFileSystem;
using Steps = std::vector<uint64_t>;

/// Listing a folder fails once.
class OneFailingListing final : public ForwardingFileSystem {
 public:
  OneFailingListing(FileSystem& inner, int number) : ForwardingFileSystem(inner), left_(number) {}
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
    if (is_armed && left_-- == 0) return Status::io_error("cannot list the folder", path);
    return ForwardingFileSystem::list(path);
  }
  bool has_struck() const { return left_ < 0; }
  bool is_armed = false;

 private:
  int left_;
};

/// Nothing that lies in a folder can be read.
class UnreadableFolder final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (!folder.empty() && path.starts_with(folder)) return Status::io_error("cannot read", path);
    return ForwardingFileSystem::open_read(path);
  }
  std::string folder;
};

Result<std::unique_ptr<CommandLevels>> open_levels(const SessionPlace& place, const std::string& levels,
                                                   CommandLevels::Use use, FileSystem& files = posix_file_system()) {
  CommandLevels::World world;
  world.files = &files;
  world.sources = {};
  world.sources.environment = {{"VARVE_SHARED_MEMORY", place.memory}, {"VARVE_JOB", "job"}};
  return CommandLevels::open({.levels = levels, .store = {}, .reach = {}}, use, world);
}

TEST(CommandLevels, NumberSetsBehindWhatAnyLevelHas) {
  const SessionPlace place;
  const std::string near = place.folder / "near", far = place.folder / "far";
  const auto levels = open_levels(place, "dir:" + near + "; dir:" + far, CommandLevels::Use::save);
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  EXPECT_EQ((*levels)->next_number("job").value(), 1u);
  ASSERT_TRUE(test::save_numbers(*store_at(far), {"job", 600}, {1, 2}, 7).ok());
  EXPECT_EQ((*levels)->next_number("job").value(), 8u);
  ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", 10}, {1, 2}, 9).ok());
  EXPECT_EQ((*levels)->next_number("job").value(), 10u);
}

/// What stands there instead, while the file system of a level is not mounted, is an empty folder, or none.
TEST(LevelsThatAreMade, AreToldOfIfOthersHaveSetsAlready) {
  const SessionPlace place;
  const std::string near = place.folder / "near", far = place.folder / "far";
  const auto warnings = [&] {
    auto levels = open_levels(place, "dir:" + near + "; dir:" + far, CommandLevels::Use::save);
    EXPECT_TRUE(levels.ok()) << levels.status().to_string();
    return levels.ok() ? (*levels)->take_warnings() : std::vector<Status>();
  };
  EXPECT_TRUE(warnings().empty()) << "the first time there are none";
  ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", 10}, {1, 2}, 1).ok());
  EXPECT_TRUE(warnings().empty());
  std::filesystem::remove_all(far);
  const std::vector<Status> told = warnings();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().subject(), "dir:" + far);
  EXPECT_NE(told.front().message().find(near), std::string::npos) << told.front().to_string();
  EXPECT_TRUE(warnings().empty());
}

TEST(LevelsThatAreMade, AreToldOfByARun) {
  const SessionPlace place;
  const std::string far = place.folder / "far";
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "dir:" + place.store + "; dir:" + far;
  const auto run = [&](uint64_t step) {
    auto session = Session::open(options);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, 1000);
    EXPECT_TRUE(protect(*session, model).ok());
    EXPECT_TRUE(session->checkpoint(step, Persistence::now).ok());
    EXPECT_TRUE(session->finish().ok());
    std::string told;
    for (const Status& warning : session->warnings()) told += warning.to_string() + "\n";
    return told;
  };
  EXPECT_EQ(run(1), "");
  std::filesystem::remove_all(far);
  EXPECT_NE(run(2).find("no store"), std::string::npos);
}

/// Makes sets of steps 1 and 2 in the store.
void save_two(Session& session, Model& model) {
  ASSERT_TRUE(protect(session, model).ok());
  for (const uint64_t step : {1, 2}) {
    model.step(step);
    ASSERT_TRUE(session.checkpoint(step, Persistence::now).ok());
  }
}

/// Leaves sets of steps 1 and 2 in the store, and step 2 in memory.
void save_two_and_die(const SessionPlace& place) {
  run_and_kill([&] {
    auto session = Session::open(place.options());
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, 1000);
    save_two(*session, model);
    ::kill(::getpid(), SIGKILL);
  });
}

TEST(LevelsOfACommand, AreLeftAloneWhileARunIsAtWork) {
  const SessionPlace place;
  const std::string far = place.folder / "far";
  const std::string levels = "dir:" + place.store + " keep=1; dir:" + far;
  auto commands = open_levels(place, levels, CommandLevels::Use::save);
  ASSERT_TRUE(commands.ok()) << commands.status().to_string();
  {
    auto session = Session::open(place.options());
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, 1000);
    save_two(*session, model);
    const Onward onward = (*commands)->bring_along("job", null_progress());
    ASSERT_EQ(onward.failures.size(), 1u);
    EXPECT_EQ(onward.failures.front().code(), StatusCode::busy);
    EXPECT_TRUE(onward.owed.contains(1)) << "nobody may take it for what is at all levels";
    EXPECT_EQ(steps_at(place.store), (Steps{1, 2})) << "the run may have gone back to step 1";
    EXPECT_EQ(steps_at(far), Steps{});
    ASSERT_TRUE(session->finish().ok());
  }
  EXPECT_TRUE((*commands)->bring_along("job", null_progress()).failures.empty());
  EXPECT_EQ(steps_at(place.store), Steps{2});
}

TEST(LevelsOfACommand, ShowNothingThatARunHasDroppedWhileItWasCopied) {
  const SessionPlace place;
  save_two_and_die(place);
  const std::string far = place.folder / "far";
  const std::string text = "dir:" + place.store + "; dir:" + far + " every=2";
  SwitchedFileSystem files;
  files.only_below(far);
  auto levels = open_levels(place, text, CommandLevels::Use::save, files);
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  files.set(SwitchedFileSystem::Mode::held);
  Onward onward;
  std::thread copying([&] { onward = (*levels)->bring_along("job", null_progress()); });
  files.await_held();
  {
    SessionOptions options = place.options();
    options.store.reset();
    options.levels = text;
    auto session = Session::open(options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, 1000);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_EQ(session->restart({.at_most = 1}).value(), 1u);
    ASSERT_TRUE(session->drop(2).ok());
    files.set(SwitchedFileSystem::Mode::normal);
    copying.join();
    ASSERT_TRUE(session->finish().ok());
  }
  EXPECT_TRUE(std::any_of(onward.failures.begin(), onward.failures.end(),
                          [](const Status& failure) { return failure.code() == StatusCode::busy; }));
  EXPECT_EQ(steps_at(place.store), Steps{1});
  const Steps there = steps_at(far);
  EXPECT_FALSE(std::binary_search(there.begin(), there.end(), 2u));
}

TEST(LevelsOfACommand, KeepAllSetsWhileNobodyCanSayWhatIsOwed) {
  bool struck = true;
  for (int number = 0; struck; ++number) {
    const SessionPlace place;
    save_two_and_die(place);
    const std::string far = place.folder / "far";
    SwitchedFileSystem full;
    full.only_below(far);
    full.set(SwitchedFileSystem::Mode::full);
    OneFailingListing files(full, number);
    auto levels = open_levels(place, "dir:" + place.store + " keep=1; dir:" + far, CommandLevels::Use::save, files);
    ASSERT_TRUE(levels.ok()) << levels.status().to_string();
    files.is_armed = true;
    const Onward onward = (*levels)->bring_along("job", null_progress());
    struck = files.has_struck();
    EXPECT_FALSE(onward.failures.empty());
    for (const uint64_t step : {1, 2}) EXPECT_TRUE(onward.owed.contains(step)) << "listing " << number;
    EXPECT_EQ(steps_at(place.store), (Steps{1, 2})) << "listing " << number;
  }
}

TEST(LevelsOfACommand, KeepWhatOthersHaveSavedWhileItCopied) {
  const SessionPlace place;
  const std::string near = place.folder / "near", far = place.folder / "far";
  const std::string text = "dir:" + near + " keep=1; dir:" + far;
  SwitchedFileSystem files;
  files.only_below(far);
  auto levels = open_levels(place, text, CommandLevels::Use::save, files);
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", 1}, {1, 2}, 1).ok());
  files.set(SwitchedFileSystem::Mode::held);
  Onward onward;
  std::thread copying([&] { onward = (*levels)->bring_along("job", null_progress()); });
  files.await_held();
  // Whoever has saved these is about to bring them on, or has been killed.
  ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", 2}, {3, 4}, 2).ok());
  ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", 3}, {5, 6}, 3).ok());
  files.set(SwitchedFileSystem::Mode::normal);
  copying.join();
  EXPECT_TRUE(onward.failures.empty());
  EXPECT_EQ(steps_at(far), Steps{1});
  EXPECT_EQ(steps_at(near), (Steps{2, 3})) << "step 2 is nowhere else";
  EXPECT_TRUE((*levels)->bring_along("job", null_progress()).failures.empty());
  EXPECT_EQ(steps_at(far), (Steps{1, 2, 3}));
  EXPECT_EQ(steps_at(near), Steps{3});
}

TEST(LevelsOfARun, GetWhatSomebodyElseHasSavedBesideIt) {
  const SessionPlace place;
  const std::string far = place.folder / "far";
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "dir:" + place.store + " keep=1; dir:" + far;
  auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, 1000);
  ASSERT_TRUE(protect(*session, model).ok());
  for (const uint64_t step : {1, 2}) ASSERT_TRUE(session->checkpoint(step, Persistence::now).ok());
  const uint64_t number = Catalog(*store_at(place.store)).next_number("job").value();
  ASSERT_TRUE(test::save_numbers(*store_at(place.store), {"job", 3}, {1, 2}, number).ok());
  for (const uint64_t step : {4, 5, 6}) ASSERT_TRUE(session->checkpoint(step, Persistence::now).ok());
  ASSERT_TRUE(session->finish().ok());
  const Steps there = steps_at(far);
  EXPECT_TRUE(std::binary_search(there.begin(), there.end(), 3u));
}

TEST(LevelsOfACommand, AreBehindWhereTheyHaveAnotherSetOfAStep) {
  const SessionPlace place;
  const std::string near = place.folder / "near", far = place.folder / "far";
  auto levels = open_levels(place, "dir:" + near + "; dir:" + far, CommandLevels::Use::save);
  ASSERT_TRUE(levels.ok()) << levels.status().to_string();
  for (const uint64_t step : {1, 2}) {
    ASSERT_TRUE(test::save_numbers(*store_at(near), {"job", step}, {step, 2}, step).ok());
    ASSERT_TRUE(test::save_numbers(*store_at(far), {"job", step}, {1, 2}, step).ok());
  }
  const auto there = (*levels)->levels().at(1).contents((*levels)->nearest());
  ASSERT_TRUE(there.ok()) << there.status().to_string();
  ASSERT_EQ(there->jobs.size(), 1u);
  EXPECT_EQ(there->jobs[0].behind, 1u);
}

TEST(LevelsOfACommand, HaveMemoryOfTheirOwnIfTheyAreNamedAlikeInOtherFolders) {
  const SessionPlace place;
  const LevelSpec spec = parse_levels("memory; local:ckpt").value().at(1);
  const std::filesystem::path before = std::filesystem::current_path();
  std::set<std::string> keys;
  for (const char* const folder : {"a", "b"}) {
    std::filesystem::create_directory(place.folder / folder);
    std::filesystem::current_path(place.folder / folder);
    keys.insert(job_memory(place.memory, "job", spec, "ckpt", "").job_key);
  }
  std::filesystem::current_path(before);
  EXPECT_EQ(keys.size(), 2u);
}

TEST(LevelsOfACommand, DoNotSayThatNobodyHasASetIfOneOfThemCannotBeAsked) {
  const SessionPlace place;
  save_two_and_die(place);
  const std::string far = place.folder / "far";
  UnreadableFolder files(posix_file_system());
  const auto levels =
      open_levels(place, "dir:" + place.store + "; dir:" + far, CommandLevels::Use::save, files).value();
  const Store* const near = levels->nearest();
  EXPECT_EQ(find_set(levels->levels(), {"job", 2}).value(), near);
  EXPECT_EQ(find_set(levels->levels(), {"job", 3}).value(), nullptr);
  files.folder = far;
  EXPECT_EQ(find_set(levels->levels(), {"job", 2}).value(), near) << "a nearer one has it";
  EXPECT_EQ(find_set(levels->levels(), {"job", 3}).status().code(), StatusCode::io_error);
}

TEST(LevelsOfACommand, FindTheMemoryOfADeadRunByWhateverPathTheStoreIsNamed) {
  const SessionPlace place;
  save_two_and_die(place);
  const std::string link = place.folder / "link";
  std::filesystem::create_directory_symlink(place.store, link);
  for (const std::string& path : {place.store, link}) {
    auto levels = open_levels(place, "memory; dir:" + path, CommandLevels::Use::look);
    ASSERT_TRUE(levels.ok()) << levels.status().to_string();
    const auto memory = (*levels)->levels().at(0).contents((*levels)->nearest());
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    ASSERT_EQ(memory->jobs.size(), 1u) << path;
    EXPECT_EQ(memory->jobs[0].newest, 2u) << path;
    EXPECT_EQ(memory->jobs[0].is_running, false) << path;
  }
}

}  // namespace
}  // namespace varve
