#include "snapshot/snapshot_reader.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "snapshot/snapshot.h"
#include "snapshot/snapshot_view.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {

constexpr size_t kCount = 300'000;

/// A program whose variable holds its step in every element.
struct StartedProgram {
  std::vector<uint64_t> field = std::vector<uint64_t>(kCount);
  VariableTable table;
  StartedProgram() {
    EXPECT_TRUE(table.protect_array("field", element_type_of<uint64_t>(), field.data(), kCount, {}).ok());
  }
};

/// Fills step after step, draining all but the last, and kills itself at `fatal_step` of the last fill.
void fill_and_die(const SegmentOwner& owner, uint32_t slots, uint64_t last, const std::string& fatal_step) {
  StartedProgram program;
  uint64_t now = 0;
  SnapshotOptions options;
  options.rank_count = owner.rank + 1;
  options.slots = slots;
  options.after_step = [&](std::string_view step) {
    if (now == last && step == fatal_step) ::kill(::getpid(), SIGKILL);
  };
  const auto memory = std::move(SnapshotMemory::create(owner, options)).value();
  const auto view = std::move(SnapshotView::open(owner)).value();
  for (now = 1; now <= last; ++now) {
    std::fill(program.field.begin(), program.field.end(), now);
    if (!memory->fill({now}, program.table).ok()) ::_exit(3);
    if (now == last || !view->begin_drain(now).ok()) continue;
    view->end_drain({});
  }
  ::kill(::getpid(), SIGKILL);
}

/// The steps that are found, newest first; each must be whole.
std::vector<uint64_t> steps_found(const test::SegmentFolder& folder, const UniqueId& own) {
  const Result<LeftRuns> left = find_left_runs(folder.family(), own);
  EXPECT_TRUE(left.ok()) << left.status().to_string();
  std::vector<uint64_t> steps;
  for (const LeftSnapshot& snapshot : left->of_rank(0)) {
    const Result<std::unique_ptr<SnapshotReader>> reader = snapshot.open_verified();
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    StartedProgram program;
    const Result<ImageTarget*> target = program.table.begin_load((*reader)->image());
    EXPECT_TRUE(target.ok() && (*reader)->load(1, **target).ok() && program.table.finish_load().ok());
    EXPECT_TRUE(std::all_of(program.field.begin(), program.field.end(), [&](uint64_t value) {
      return value == snapshot.checkpoint.step;
    })) << "a torn snapshot";
    steps.push_back(snapshot.checkpoint.step);
  }
  EXPECT_TRUE(remove_left_runs(folder.family(), left->runs).ok());
  return steps;
}

TEST(SnapshotDiscovery, SeesTheOldOrTheNewOneWheneverTheProgramIsKilled) {
  for (const std::string step : {"room made", "filling", "copied", "described", "full", "the end"}) {
    for (const uint32_t slots : {1U, 2U}) {
      const test::SegmentFolder folder;
      const SegmentOwner owner = folder.owner();
      const int status = test::run_in_child([&] { fill_and_die(owner, slots, 3, step); });
      ASSERT_TRUE(WIFSIGNALED(status)) << status;
      const std::vector<uint64_t> steps = steps_found(folder, *UniqueId::random());
      const bool complete = step == "full" || step == "the end";
      std::vector<uint64_t> expected;
      if (complete) expected.push_back(3);
      if (slots == 2 || step == "room made") expected.push_back(2);
      if (slots == 2 && step == "room made") expected.push_back(1);
      EXPECT_EQ(steps, expected) << step << ", " << slots << " slots";
    }
  }
}

TEST(SnapshotDiscovery, SeesNothingTornWhenTheProgramIsKilledAnywhere) {
  std::mt19937_64 random(5);
  uint64_t found = 0;
  for (int round = 0; round < 25; ++round) {
    const test::SegmentFolder folder;
    const SegmentOwner owner = folder.owner();
    int channel[2];
    ASSERT_EQ(::pipe(channel), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      StartedProgram program;
      SnapshotOptions options{.slots = 2, .copy_threads = 2};
      const auto memory = std::move(SnapshotMemory::create(owner, options)).value();
      const auto view = std::move(SnapshotView::open(owner)).value();
      for (uint64_t step = 1;; ++step) {
        std::fill(program.field.begin(), program.field.end(), step);
        if (!memory->fill({step}, program.table).ok() || !view->begin_drain(step).ok()) ::_exit(3);
        view->end_drain({});
        if (step == 2) (void)!::write(channel[1], "x", 1);
      }
    }
    char ready = 0;
    ASSERT_EQ(::read(channel[0], &ready, 1), 1);
    ::usleep(static_cast<useconds_t>(random() % 8000));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ::close(channel[0]);
    ::close(channel[1]);
    const std::vector<uint64_t> steps = steps_found(folder, *UniqueId::random());
    EXPECT_GE(steps.size(), 1U) << "with two slots one is always complete";
    found += steps.size();
  }
  EXPECT_GE(found, 25U);
}

TEST(SnapshotDiscovery, RefusesAJobThatIsRunning) {
  const test::SegmentFolder folder;
  const auto memory = std::move(SnapshotMemory::create(folder.owner(), {})).value();
  const Result<LeftRuns> other = find_left_runs(folder.family(), *UniqueId::random());
  EXPECT_EQ(other.status().code(), StatusCode::busy);
  const Result<LeftRuns> own = find_left_runs(folder.family(), folder.owner().run);
  ASSERT_TRUE(own.ok());
  EXPECT_TRUE(own->runs.empty());
  EXPECT_TRUE(remove_left_runs(folder.family(), {folder.owner().run}).ok());
  EXPECT_FALSE(folder.files().empty()) << "a living run's files stay";
  SegmentFamily another_job = folder.family();
  another_job.job_key = make_job_key("other", "job");
  EXPECT_TRUE(find_left_runs(another_job, *UniqueId::random()).ok());
}

TEST(SnapshotDiscovery, TellsHowMuchAJobHasInMemory) {
  const test::SegmentFolder folder;
  EXPECT_EQ(memory_use(folder.family())->bytes, 0U);
  const int status = test::run_in_child([&] { fill_and_die(folder.owner(0), 1, 5, "the end"); });
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  const MemoryUse left = memory_use(folder.family()).value();
  EXPECT_GT(left.bytes, 0U);
  EXPECT_FALSE(left.running);
  EXPECT_EQ(left.newest_step, 5U);
  EXPECT_TRUE(remove_left_runs(folder.family(), {folder.owner(0).run}).ok());
  const auto memory = std::move(SnapshotMemory::create(folder.owner_in_new_run(0), {})).value();
  EXPECT_TRUE(memory_use(folder.family())->running);
}

TEST(SnapshotDiscovery, TellsRanksRunsAndStepsApart) {
  const test::SegmentFolder folder;
  const SegmentOwner first = folder.owner(0), second = folder.owner(1), later = folder.owner_in_new_run(0);
  for (const SegmentOwner& owner : {first, second, later}) {
    const int status = test::run_in_child([&] { fill_and_die(owner, 1, owner == later ? 2 : 5, "the end"); });
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
  }
  const Result<LeftRuns> left = find_left_runs(folder.family(), *UniqueId::random());
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left->runs.size(), 2U);
  EXPECT_EQ(left->of_rank(1).size(), 1U);
  ASSERT_EQ(left->of_rank(0).size(), 2U);
  EXPECT_EQ(left->of_rank(0)[0].owner.run, first.run);
  EXPECT_EQ(left->of_rank(0)[0].checkpoint.step, 5U);
  EXPECT_EQ(left->of_rank(0)[1].owner.run, later.run);
  EXPECT_TRUE(remove_left_runs(folder.family(), {first.run}).ok());
  EXPECT_EQ(find_left_runs(folder.family(), *UniqueId::random())->runs, std::vector<UniqueId>{later.run});
  EXPECT_TRUE(remove_left_runs(folder.family(), {later.run}).ok());
}

TEST(SnapshotDiscovery, FindsWhatRunsHaveLeftInSeveralFolders) {
  const test::SegmentFolder folder;
  std::string other = folder.family().folder + "/varve-test-XXXXXX";
  ASSERT_NE(::mkdtemp(other.data()), nullptr);
  std::vector<SegmentFamily> places(2, folder.family());
  places[0].spill_folders = {other};
  places[1].folder = other;
  const SegmentOwner here = folder.owner(), there{places[1], *UniqueId::random(), 0};
  for (const SegmentOwner& owner : {here, there}) {
    const int status = test::run_in_child([&] { fill_and_die(owner, 1, owner == here ? 2 : 5, "the end"); });
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
  }
  // As if the other's slot had been spilled.
  const std::string slot = here.slot_path(0), spilled = other + slot.substr(slot.rfind('/'));
  std::filesystem::rename(slot, spilled);

  const LeftRuns left = find_left_runs(places, *UniqueId::random()).value();
  EXPECT_EQ(left.runs, (std::vector{here.run, there.run}));
  ASSERT_EQ(left.snapshots.size(), 2U);
  EXPECT_EQ(left.snapshots[0].owner.run, there.run);
  EXPECT_EQ(left.snapshots[0].checkpoint.step, 5U);
  EXPECT_TRUE(left.snapshots[0].open_verified().ok());
  EXPECT_EQ(left.snapshots[1].checkpoint.step, 2U);
  EXPECT_EQ(find_left_runs(std::vector{places[1], places[0]}, there.run).value().runs, std::vector{here.run});

  EXPECT_TRUE(remove_left_runs(places, {here.run}).ok());
  EXPECT_FALSE(std::filesystem::exists(spilled));
  EXPECT_EQ(find_left_runs(places, *UniqueId::random()).value().runs, std::vector{there.run});
  {
    const auto memory = std::move(SnapshotMemory::create({places[1], *UniqueId::random(), 0}, {})).value();
    EXPECT_EQ(find_left_runs(places, *UniqueId::random()).status().code(), StatusCode::busy);
  }
  EXPECT_TRUE(remove_left_runs(places, {there.run}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(other));
  std::filesystem::remove(other);
  EXPECT_TRUE(find_left_runs(places, *UniqueId::random()).value().runs.empty()) << "what is not there has nothing";
}

TEST(SnapshotDiscovery, FindsLentGridsOnlyAfterTheyWereSummed) {
  for (const bool summed : {false, true}) {
    const test::SegmentFolder folder;
    const SegmentOwner owner = folder.owner();
    test::run_in_child([&] {
      StartedProgram program;
      const auto memory = std::move(SnapshotMemory::create(owner, {})).value();
      std::byte* const grid = *memory->make_grid("field", kCount * sizeof(uint64_t));
      std::fill_n(reinterpret_cast<uint64_t*>(grid), kCount, 8);
      if (!memory->lend("field", grid, program.table, std::chrono::seconds(0)).ok()) ::_exit(3);
      if (!memory->fill({8}, program.table).ok()) ::_exit(3);
      const auto view = std::move(SnapshotView::open(owner)).value();
      if (summed && !view->begin_drain(8).ok()) ::_exit(3);
      ::kill(::getpid(), SIGKILL);
    });
    EXPECT_EQ(steps_found(folder, *UniqueId::random()), summed ? std::vector<uint64_t>{8} : std::vector<uint64_t>{});
  }
}

TEST(SnapshotDiscovery, FindsDamage) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  test::run_in_child([&] { fill_and_die(owner, 1, 1, "the end"); });
  const LeftRuns left = *find_left_runs(folder.family(), *UniqueId::random());
  ASSERT_EQ(left.snapshots.size(), 1U);
  {
    const SharedSegment slot = *SharedSegment::open(owner.slot_path(0), SharedSegment::Access::read_write);
    std::mt19937_64 random(2);
    for (int round = 0; round < 200; ++round) {
      // In the description, or in the data.
      const uint64_t at = round % 2 == 0 ? random() % 128 : slot.size() - 1 - random() % (kCount * sizeof(uint64_t));
      slot.data()[at] ^= std::byte{1};
      EXPECT_FALSE(left.snapshots[0].open_verified().ok()) << at;
      slot.data()[at] ^= std::byte{1};
    }
    EXPECT_TRUE(left.snapshots[0].open_verified().ok());
  }
  ASSERT_EQ(::truncate(owner.slot_path(0).c_str(), 100'000), 0);
  EXPECT_EQ(left.snapshots[0].open_verified().status().code(), StatusCode::corrupt);
  EXPECT_TRUE(remove_left_runs(folder.family(), left.runs).ok());
}

TEST(SnapshotDiscovery, RemovesWhatMakesNoSense) {
  const test::SegmentFolder folder;
  const SegmentOwner no_control = folder.owner(0), garbage = folder.owner_in_new_run(0);
  ASSERT_TRUE(SharedSegment::create(no_control.slot_path(0), 4096).ok());
  ASSERT_TRUE(SharedSegment::create(garbage.control_path(), 4096).ok());
  ASSERT_TRUE(SharedSegment::create(garbage.path("what is this"), 4096).ok());
  const Result<LeftRuns> left = find_left_runs(folder.family(), *UniqueId::random());
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_EQ(left->runs.size(), 2U);
  EXPECT_TRUE(left->snapshots.empty());
  EXPECT_TRUE(remove_left_runs(folder.family(), left->runs).ok());
}

TEST(SnapshotDiscovery, TakesADamagedControlSegmentThatIsHeldForAlive) {
  const test::SegmentFolder folder;
  const SharedSegment held = *SharedSegment::create(folder.owner().control_path(), 4096);
  EXPECT_EQ(find_left_runs(folder.family(), *UniqueId::random()).status().code(), StatusCode::busy);
  ASSERT_TRUE(held.unlink().ok());
}

TEST(SnapshotDiscovery, TakesWhatALivingProcessHasLeftForThatOfARunThatIsOver) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  StartedProgram program;
  std::fill(program.field.begin(), program.field.end(), 5);
  SnapshotOptions options;
  options.slots = 2;
  auto memory = std::move(SnapshotMemory::create(owner, options)).value();
  ASSERT_TRUE(memory->fill({5}, program.table).ok());
  const UniqueId next = *UniqueId::random();
  EXPECT_EQ(find_left_runs(folder.family(), next).status().code(), StatusCode::busy);
  memory->leave(ControlBlock::Ended::run);
  const Result<LeftRuns> left = find_left_runs(folder.family(), next);
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_EQ(left->ended, left->runs);
  memory.reset();
  EXPECT_FALSE(folder.files().empty()) << "it was to leave them";
  EXPECT_EQ(steps_found(folder, next), std::vector<uint64_t>{5});
}

/// What cannot be looked at now may be a checkpoint.
TEST(SnapshotDiscovery, DoesNotTakeForNoneWhatCannotBeMapped) {
  const test::SegmentFolder folder;
  const SegmentOwner owner = folder.owner();
  ASSERT_TRUE(WIFSIGNALED(test::run_in_child([&] { fill_and_die(owner, 2, 2, "full"); })));
  struct stat before {};
  ASSERT_EQ(::stat(owner.control_path().c_str(), &before), 0);

  // More than there are addresses.
  ASSERT_EQ(::truncate(owner.control_path().c_str(), off_t{1} << 60), 0);
  EXPECT_EQ(find_left_runs(folder.family(), *UniqueId::random()).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(find_snapshots({owner}).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(memory_use(folder.family()).status().code(), StatusCode::resource_limit);
  EXPECT_EQ(remove_left_runs(folder.family(), {owner.run}).code(), StatusCode::resource_limit);

  ASSERT_EQ(::truncate(owner.control_path().c_str(), before.st_size), 0);
  // A link of such a name, which anybody can make, is in nobody's way.
  const SegmentOwner of_nobody = folder.owner_in_new_run();
  ASSERT_EQ(::symlink("/etc/passwd", of_nobody.control_path().c_str()), 0);
  EXPECT_EQ(find_left_runs(folder.family(), *UniqueId::random()).value().runs, std::vector<UniqueId>{owner.run});
  ASSERT_EQ(::unlink(of_nobody.control_path().c_str()), 0);
  EXPECT_EQ(steps_found(folder, *UniqueId::random()), (std::vector<uint64_t>{2, 1}));
}

}  // namespace
}  // namespace varve
