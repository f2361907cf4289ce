// Drains of what dead runs have left on a node (drain_node()); tests/examples/test_preempt.py has whole programs.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <optional>
#include <thread>

#include "core/faulty_file_system.h"
#include "engine/transfer.h"
#include "runtime/cluster.h"
#include "runtime/node_drain.h"
#include "runtime/switched_file_system.h"
#include "snapshot/node_note.h"
#include "snapshot/snapshot_reader.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::Cluster;
using test::die_with_a_snapshot;
using test::Model;
using test::model_at;
using test::run_and_kill;
using test::SessionPlace;
using test::steps_at;
using test::store_at;
using test::SwitchedFileSystem;
using Steps = std::vector<uint64_t>;
using State = DrainedSet::State;

constexpr size_t kCells = Cluster::kCells;

/// What becomes of the one job that has left something there.
DrainedJob drain(const SessionPlace& place, const std::string& node = "", FileSystem& files = posix_file_system()) {
  ManualClock clock;
  NodeDrainOptions options;
  options.clock = &clock;
  options.files = &files;
  options.shared_memory = place.memory;
  options.job = "job";
  options.node = node;
  const Result<std::vector<DrainedJob>> jobs = drain_node(options);
  EXPECT_TRUE(jobs.ok()) << jobs.status().to_string();
  EXPECT_EQ(jobs->size(), 1u);
  return jobs->empty() ? DrainedJob() : jobs->front();
}

/// What became of the step at a level; none: nothing is said of it.
std::optional<State> state_of(const DrainedJob& job, uint64_t step, const std::string& level) {
  const auto found = std::find_if(job.sets.begin(), job.sets.end(),
                                  [&](const DrainedSet& set) { return set.name.step == step && set.to == level; });
  return found == job.sets.end() ? std::nullopt : std::optional(found->state);
}

std::vector<StatusCode> codes(const std::vector<Status>& failures) {
  std::vector<StatusCode> codes;
  for (const Status& failure : failures) codes.push_back(failure.code());
  return codes;
}

/// The run of a cluster, which is killed when all ranks have done `body`, in which they may wait for `all`.
void run_and_die(const Cluster& cluster, const std::string& levels,
                 const std::function<void(RunSession&, Model&, std::barrier<>& all)>& body) {
  run_and_kill([&] {
    std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
    cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      body(session, model, all);
      all.arrive_and_wait();
      if (rank == 0 && !testing::Test::HasFailure()) ::kill(::getpid(), SIGKILL);
      all.arrive_and_wait();
    });
  });
}

/// After so many steps, each of which is whole in the nearest store.
void run_to_and_die(const Cluster& cluster, const std::string& levels, uint64_t last) {
  run_and_die(cluster, levels,
              [&](RunSession& session, Model& model, std::barrier<>&) { Cluster::go(session, model, 1, last); });
}

/// A place where nothing is in memory, with the same store.
SessionOptions on_another_node(const SessionPlace& place) {
  SessionOptions options = place.options();
  options.shared_memory = place.folder / "elsewhere";
  std::filesystem::create_directory(*options.shared_memory);
  return options;
}

TEST(ADrain, BringsWhatIsInMemoryAloneToTheStore) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 2);
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  EXPECT_EQ(state_of(job, 2, "dir:" + place.store), State::whole);
  EXPECT_EQ(steps_at(place.store), (Steps{1, 2}));
}

TEST(ADrain, TakesAFolderThatSomebodyHasSavedForNoLaterState) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 2);
  for (const uint64_t number : {2, 9})
    ASSERT_TRUE(test::save_numbers(*store_at(place.store), {"job", 10 + number}, {1, 2}, number).ok());
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.is_done);
  EXPECT_EQ(state_of(job, 2, "dir:" + place.store), State::whole);
  EXPECT_EQ(steps_at(place.store), (Steps{1, 2, 12, 19}));
}

/// A run that was started on another node, and knows nothing of what is in memory here: its first set, of step 2, has
/// the number that step 3 would have here.
void go_on_elsewhere(const SessionPlace& place) {
  auto session = Session::open(on_another_node(place));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  ASSERT_EQ(session->restart().value(), 1u);
  model.step(2);
  ASSERT_TRUE(session->checkpoint(2, Persistence::now).ok());
  ASSERT_TRUE(session->finish().ok());
}

TEST(ADrain, ShowsNothingBehindWhichARunHasGoneOnWhileItSaved) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 3);
  SwitchedFileSystem files;
  files.only_below(place.store);
  files.set(SwitchedFileSystem::Mode::held);
  DrainedJob job;
  std::thread draining([&] { job = drain(place, "", files); });
  files.await_held();
  go_on_elsewhere(place);
  files.set(SwitchedFileSystem::Mode::normal);
  draining.join();
  EXPECT_EQ(codes(job.failures), std::vector<StatusCode>{StatusCode::busy});
  EXPECT_EQ(steps_at(place.store), (Steps{1, 2}));
  EXPECT_TRUE(list_parts(*store_at(place.store)).value().empty());
}

TEST(ADrain, LeavesWhatALaterRunHasGoneOnWithout) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 3);
  go_on_elsewhere(place);
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_EQ(steps_at(place.store), (Steps{1, 2})) << "step 3 of the other course would be the newest";
  EXPECT_TRUE(job.is_done) << "it is of no use any more";
}

TEST(ADrain, ReplacesAPartThatTheRunHasLeftOfAnEarlierSetOfTheStep) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 2);
  std::vector<Status> damaged;
  const std::vector<FoundNote> notes = find_node_notes(place.memory, damaged).value();
  ASSERT_EQ(notes.size(), 1u);
  {
    // It had a number of its own before the run went back.
    const auto store = store_at(place.store);
    const PartName part{{"job", 2}, notes.front().note.run, 0, 1};
    test::SetMaker maker(*store);
    const LeafLink root = test::lay_numbers(*store, maker, {1, 2, 3}).value();
    ASSERT_TRUE(maker.seal().ok());
    SetRecord record;
    record.name = part.set;
    record.number = 7;
    record.run = part.run;
    record.rank_count = record.run_ranks = 1;
    record.groups.push_back({root.score, root.hint, maker.writer().bytes()});
    ASSERT_TRUE(maker.lease().publish_part(part, record).ok());
  }
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  EXPECT_TRUE(list_parts(*store_at(place.store)).value().empty());
  auto session = Session::open(on_another_node(place));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), 2u);
  EXPECT_EQ(model, model_at(0, kCells, 2));
}

/// What the next run elsewhere goes on from, once the model has been stepped so.
void expect_restart(const SessionPlace& place, uint64_t step, const Steps& stepped) {
  auto session = Session::open(on_another_node(place));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells), expected(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), step);
  for (const uint64_t one : stepped) expected.step(one);
  EXPECT_EQ(model, expected);
}

TEST(ADrain, ReplacesTheSetThatTheRunHadGoneBackBehind) {
  for (const uint64_t times : {1, 2}) {
    SCOPED_TRACE(times);
    const SessionPlace place;
    run_and_kill([&] {
      SwitchedFileSystem files;
      const auto session = test::open_on(files, make_single_communicator(), place.options());
      Model model(0, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      ASSERT_EQ(session->restart().value(), std::nullopt);
      model.step(1);
      ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
      for (uint64_t time = 0; time < times; ++time) {
        model.step(2 + time);
        ASSERT_TRUE(session->checkpoint(2, Persistence::now).ok());
        ASSERT_EQ(session->restart({.at_most = 1}).value(), 1u);
      }
      files.set(SwitchedFileSystem::Mode::full);
      model.step(1002);
      ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
      ASSERT_FALSE(session->wait().ok());
      ::kill(::getpid(), SIGKILL);
    });
    const DrainedJob job = drain(place);
    EXPECT_TRUE(job.failures.empty());
    EXPECT_EQ(state_of(job, 2, "dir:" + place.store), State::whole);
    EXPECT_TRUE(job.is_done);
    expect_restart(place, 2, {1, 1002});
  }
}

TEST(ADrain, KnowsWhatTwoRunsThatWereKilledHaveInMemoryForOneCheckpoint) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 2);
  run_and_kill([&] {
    SwitchedFileSystem files;
    files.only_below(place.store);
    const auto session = test::open_on(files, make_single_communicator(), place.options());
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    files.set(SwitchedFileSystem::Mode::full);
    ASSERT_EQ(session->restart().value(), 2u);
    ASSERT_FALSE(session->wait().ok());
    ::kill(::getpid(), SIGKILL);
  });
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  EXPECT_EQ(place.memory_files(), 0u);
  expect_restart(place, 2, {1, 2});
}

TEST(ADrain, LeavesWhatAnotherRunHasMadeOfTheStepLater) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells, 2);
  {
    auto session = Session::open(on_another_node(place));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_EQ(session->restart().value(), 1u);
    for (const uint64_t step : {2, 3}) {
      model.step(step);
      ASSERT_TRUE(session->checkpoint(step, Persistence::now).ok());
    }
    ASSERT_TRUE(session->finish().ok());
  }
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  EXPECT_EQ(steps_at(place.store), (Steps{1, 2, 3}));
}

TEST(ADrain, DropsNothingForWhatTheRunHadGoneBackBehind) {
  const SessionPlace place;
  const std::string far = place.folder / "far";
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "memory; dir:" + place.store + " keep=1; dir:" + far + " keep=1";
  run_and_kill([&] {
    SwitchedFileSystem files;
    files.only_below(far);
    const auto session = test::open_on(files, make_single_communicator(), options);
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_EQ(session->restart().value(), std::nullopt);
    model.step(1);
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    while (steps_at(far) != Steps{1}) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    files.set(SwitchedFileSystem::Mode::full);
    model.step(2);
    ASSERT_TRUE(session->checkpoint(2, Persistence::now).ok());
    while (steps_at(place.store) != Steps{2}) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_EQ(session->restart({.at_most = 1}).value(), 1u);
    ::kill(::getpid(), SIGKILL);
  });
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_EQ(steps_at(far), Steps{1});
}

TEST(ADrain, SavesWhatTheRunWentBackToInMemoryAsMadeAfterWhatItLeftBehind) {
  const SessionPlace place;
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "memory; dir:" + place.store + " every=4";
  options.when_busy = WhenBusy::two_slots;
  run_and_kill([&] {
    SwitchedFileSystem files;
    const auto session = test::open_on(files, make_single_communicator(), options);
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_EQ(session->restart().value(), std::nullopt);
    for (uint64_t step = 1; step <= 4; ++step) {
      model.step(step);
      ASSERT_TRUE(session->checkpoint(step, Persistence::later).ok());
    }
    ASSERT_TRUE(session->wait().ok());
    files.set(SwitchedFileSystem::Mode::full);
    EXPECT_EQ(session->restart({.at_most = 3}).value(), 3u);
    ::kill(::getpid(), SIGKILL);
  });
  EXPECT_EQ(steps_at(place.store), Steps{4});
  const DrainedJob job = drain(place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  expect_restart(place, 3, {1, 2, 3});
}

TEST(ADrainOfALoneNode, BringsItsNewestSetToTheNextLevelWhateverItsTurnIs) {
  Cluster cluster;
  cluster.nodes = {"a"};
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  run_to_and_die(cluster, levels, 2);
  const DrainedJob job = drain(cluster.place);
  EXPECT_TRUE(job.failures.empty());
  EXPECT_TRUE(job.is_done);
  EXPECT_EQ(state_of(job, 2, "dir:" + cluster.far), State::whole);
  EXPECT_EQ(steps_at(cluster.far), Steps{2});
  // The node is lost, with all that it had.
  std::filesystem::remove_all(cluster.local);
  cluster.restart_from(levels, 2, 3);
}

TEST(DrainsOfSeveralNodes, BringTogetherWhatARunOnSomeOfTheNodesCouldNotGoOnFrom) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 1;
  const std::string levels = "memory; dir:" + cluster.far + " every=4";
  run_to_and_die(cluster, levels, 5);
  cluster.nodes = {"a", "c"};
  cluster.restart_from(levels, 4, 4);  // and ends without a set of its own
  const DrainedJob first = drain(cluster.place, "a"), second = drain(cluster.place, "b");
  EXPECT_TRUE(first.failures.empty());
  EXPECT_TRUE(second.failures.empty());
  EXPECT_EQ(steps_at(cluster.far), (Steps{4, 5}));
  cluster.nodes = {"c", "d"};
  cluster.restart_from(levels, 5, 6);
}

TEST(DrainsOfSeveralNodes, BringTheNewestSetThatAllOfThemHave) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 1;
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  run_to_and_die(cluster, levels, 3);
  // As if the run had been killed before b had copied step 3.
  test::drop(cluster.node_path("b"), 3);
  std::vector<Status> damaged;
  const std::vector<FoundNote> notes = find_node_notes(cluster.place.memory, damaged).value();
  size_t removed = 0;
  for (const FoundNote& note : notes) {
    for (const LeftSnapshot& left : find_left_runs(note.speaker.family, {}).value().snapshots) {
      if (left.owner.rank == 1 && left.checkpoint.step == 3 && left.remove().ok()) ++removed;
    }
  }
  EXPECT_GT(removed, 0u);
  drain(cluster.place, "a");
  drain(cluster.place, "b");
  EXPECT_EQ(steps_at(cluster.far), Steps{2});
  std::filesystem::remove_all(cluster.local);
  cluster.nodes = {"c", "d"};
  cluster.restart_from(levels, 2, 3);
}

TEST(ADrainOfALoneNode, BringsWhatTheRunHadGoneBackTo) {
  Cluster cluster;
  cluster.nodes = {"a"};
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  SwitchedFileSystem files;
  files.only_below(cluster.far);
  cluster.files = &files;
  run_and_die(cluster, levels, [&](RunSession& session, Model& model, std::barrier<>& all) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    Cluster::go(session, model, 1, 3);
    all.arrive_and_wait();
    files.set(SwitchedFileSystem::Mode::full);
    EXPECT_EQ(session.restart({.at_most = 2}).value(), 2u);
  });
  EXPECT_TRUE(drain(cluster.place).is_done);
  EXPECT_EQ(steps_at(cluster.far), Steps{2});
}

TEST(DrainsOfSeveralNodes, BringWhatTheRunHadGoneBackToAndNothingOfWhatItHadLeftBehind) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 1;
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  SwitchedFileSystem files;
  files.only_below(cluster.far);
  cluster.files = &files;
  run_and_die(cluster, levels, [&](RunSession& session, Model& model, [[maybe_unused]] std::barrier<>& all) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    Cluster::go(session, model, 1, 3);
    all.arrive_and_wait();
    files.set(SwitchedFileSystem::Mode::full);
    EXPECT_EQ(session.restart({.at_most = 2}).value(), 2u);
    EXPECT_EQ(session.restart({.at_most = 2}).value(), 2u);
  });
  drain(cluster.place, "a");
  drain(cluster.place, "b");
  EXPECT_EQ(steps_at(cluster.far), Steps{2});
  std::filesystem::remove_all(cluster.local);
  cluster.nodes = {"c", "d"};
  cluster.restart_from(levels, 2, 3);
}

TEST(DrainsOfSeveralNodes, BringTogetherWhatTheRunWentOnFromThoughOneNodeAloneHadSavedIt) {
  enum class Then { nothing, saves_it_again, goes_back_again, makes_another };
  for (const Then then : {Then::nothing, Then::saves_it_again, Then::goes_back_again, Then::makes_another}) {
    SCOPED_TRACE(static_cast<int>(then));
    Cluster cluster;
    cluster.nodes = {"a", "b"};
    cluster.node_ranks = 1;
    const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
    SwitchedFileSystem near_a, near_b;
    cluster.files_of_node = [&](const std::string& node) -> FileSystem& { return node == "a" ? near_a : near_b; };
    near_a.only_below(cluster.local);
    near_b.only_below(cluster.local);
    run_and_die(cluster, levels, [&](RunSession& session, Model& model, std::barrier<>& all) {
      EXPECT_EQ(session.restart().value(), std::nullopt);
      Cluster::go(session, model, 1, 2);
      all.arrive_and_wait();
      near_b.set(SwitchedFileSystem::Mode::full);
      model.step(3);
      EXPECT_TRUE(session.checkpoint(3, Persistence::later).ok());
      EXPECT_FALSE(session.wait().ok());
      all.arrive_and_wait();
      if (then != Then::saves_it_again) near_a.set(SwitchedFileSystem::Mode::full);
      EXPECT_EQ(session.restart().value(), 3u);
      EXPECT_FALSE(session.wait().ok());
      if (then == Then::goes_back_again) {
        EXPECT_EQ(session.restart().value(), 3u);
        EXPECT_FALSE(session.wait().ok());
      }
      if (then == Then::makes_another) {
        model.step(4);
        session.checkpoint(4, Persistence::later).ignore("it may tell of step 3");
        EXPECT_FALSE(session.wait().ok());
      }
    });
    EXPECT_EQ(steps_at(cluster.node_path("b")), (Steps{1, 2}));
    drain(cluster.place, "a");
    drain(cluster.place, "b");
    EXPECT_TRUE(drain(cluster.place, "a").failures.empty());
    std::filesystem::remove_all(cluster.local);
    cluster.nodes = {"c", "d"};
    cluster.restart_from(levels, then == Then::makes_another ? 4 : 3, 5);
  }
}

TEST(DrainsOfSeveralNodes, BringWhatTheRunWentForwardToAgain) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 1;
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  SwitchedFileSystem files;
  files.only_below(cluster.far);
  cluster.files = &files;
  run_and_die(cluster, levels, [&](RunSession& session, Model& model, [[maybe_unused]] std::barrier<>& all) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    files.set(SwitchedFileSystem::Mode::full);
    Cluster::go(session, model, 1, 4);
    EXPECT_EQ(session.restart({.at_most = 1}).value(), 1u);
    Cluster::go(session, model, 2, 3);
    EXPECT_EQ(session.restart({.exactly = 4}).value(), 4u);
  });
  drain(cluster.place, "a");
  drain(cluster.place, "b");
  const Steps there = steps_at(cluster.far);
  EXPECT_TRUE(std::binary_search(there.begin(), there.end(), 4u));
  EXPECT_FALSE(std::binary_search(there.begin(), there.end(), 3u)) << "it was left behind";
}

/// Two nodes that have died, each with three sets in a store of its own.
struct TwoDeadNodes {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  TwoDeadNodes() {
    cluster.nodes = {"a", "b"};
    cluster.node_ranks = 1;
    run_to_and_die(cluster, levels, 3);
  }
};

TEST(DrainsOfSeveralNodes, BringTheNewestOrSaySoWhicheverReadOfOneOfThemFailsOnce) {
  const TwoDeadNodes dead;
  const Cluster& cluster = dead.cluster;
  const test::TempFolder kept;
  const auto copy = [&](bool back) {
    const std::string here = cluster.place.folder.path(), there = kept / "all";
    for (const auto& entry : std::filesystem::directory_iterator(back ? here : kept.path()))
      std::filesystem::remove_all(entry.path());
    std::filesystem::copy(back ? there : here, back ? here : there, std::filesystem::copy_options::recursive);
  };
  copy(/*back=*/false);
  FaultyFileSystem counting(posix_file_system());
  drain(cluster.place, "a", counting);
  uint64_t failed_count = 0;
  const uint64_t all = counting.operation_count().reading;
  for (uint64_t operation = 0; operation < all; ++operation) {
    SCOPED_TRACE(operation);
    copy(/*back=*/true);
    FaultyFileSystem faulty(posix_file_system(), {{.kind = FaultKind::failed_read, .at_operation = operation}});
    const DrainedJob first = drain(cluster.place, "a", faulty), second = drain(cluster.place, "b");
    EXPECT_TRUE(second.failures.empty());
    if (!first.failures.empty()) {
      ++failed_count;
      EXPECT_FALSE(first.is_done);
      EXPECT_TRUE(drain(cluster.place, "a").failures.empty());
    }
    const Steps far = steps_at(cluster.far);
    EXPECT_EQ(far.empty() ? 0 : far.back(), 3u) << faulty.trace();
  }
  EXPECT_LT(failed_count, all) << "some are tried again";
}

/// What one cannot read for a while, or for good.
class UnreadableRecord final : public ForwardingFileSystem {
 public:
  UnreadableRecord(std::string path, uint32_t failures)
      : ForwardingFileSystem(posix_file_system()), path_(std::move(path)), failures_left_(failures) {}
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (path != path_ || failures_left_ == 0) return ForwardingFileSystem::open_read(path);
    --failures_left_;
    return Status::io_error("the disk fails", path);
  }

 private:
  const std::string path_;
  uint32_t failures_left_;
};

TEST(DrainsOfSeveralNodes, SayWhichSetTheyCannotReadAndBringWhatTheyCan) {
  for (const bool passes : {true, false}) {
    SCOPED_TRACE(passes);
    const TwoDeadNodes dead;
    const Cluster& cluster = dead.cluster;
    UnreadableRecord files(cluster.node_path("a") + "/sets/job/3.set", passes ? 2 : UINT32_MAX);
    const DrainedJob first = drain(cluster.place, "a", files), second = drain(cluster.place, "b");
    EXPECT_TRUE(second.failures.empty());
    ASSERT_EQ(first.failures.empty(), passes);
    if (!passes) {
      EXPECT_EQ(first.failures.front().code(), StatusCode::io_error);
      EXPECT_NE(first.failures.front().to_string().find("3.set"), std::string::npos);
      EXPECT_FALSE(first.is_done) << "what is in memory stays";
      EXPECT_EQ(steps_at(cluster.far), Steps{2});
      EXPECT_TRUE(drain(cluster.place, "a").failures.empty());
    }
    EXPECT_EQ(steps_at(cluster.far), passes ? Steps{3} : (Steps{2, 3}));
  }
}

TEST(ADrainOfALoneNode, LeavesAnotherSetOfTheStepAtTheNextLevelAndSaysSo) {
  Cluster cluster;
  cluster.nodes = {"a"};
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far + " every=1000";
  run_to_and_die(cluster, levels, 2);
  const auto far = store_at(cluster.far), local = store_at(cluster.node_path("a"));
  ASSERT_TRUE(test::save_numbers(*far, {"job", 2}, {1, 2, 3}, 1).ok());
  const DrainedJob refused = drain(cluster.place);
  EXPECT_EQ(codes(refused.failures), std::vector<StatusCode>{StatusCode::already_exists});
  EXPECT_FALSE(refused.is_done) << "what is in memory stays";
  EXPECT_TRUE(test::check_numbers(*far, {"job", 2}, {1, 2, 3}).ok());
  // The very set is no obstacle.
  ASSERT_TRUE(Catalog(*far).remove({"job", 2}).ok());
  ASSERT_TRUE(copy_set(*local, *far, {"job", 2}).ok());
  const DrainedJob there = drain(cluster.place);
  EXPECT_TRUE(there.failures.empty());
  EXPECT_EQ(state_of(there, 2, "dir:" + cluster.far), std::nullopt) << "nothing had to be brought there";
  EXPECT_TRUE(there.is_done);
}

TEST(DrainsOfSeveralNodes, LeaveAnotherSetOfTheStepAtTheNextLevelAndSaySo) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 1;
  const std::string far = "dir:" + cluster.far;
  const std::string levels = "memory; local:" + cluster.local + "; " + far + " every=1000";
  run_to_and_die(cluster, levels, 2);
  {
    const auto store = store_at(cluster.far);
    ASSERT_TRUE(test::save_numbers(*store, {"job", 2}, {1, 2, 3}, 1).ok());
  }
  for (const std::string& node : cluster.nodes) {
    const DrainedJob refused = drain(cluster.place, node);
    EXPECT_EQ(codes(refused.failures), std::vector<StatusCode>{StatusCode::already_exists}) << node;
    EXPECT_EQ(state_of(refused, 2, far), std::nullopt) << node;
    EXPECT_FALSE(refused.is_done) << node;
  }
  EXPECT_TRUE(test::check_numbers(*store_at(cluster.far), {"job", 2}, {1, 2, 3}).ok());
  EXPECT_TRUE(list_parts(*store_at(cluster.far)).value().empty());
  test::drop(cluster.far, 2);
  // What the other one has made whole is there for who comes later.
  const DrainedJob first = drain(cluster.place, "a"), second = drain(cluster.place, "b");
  EXPECT_EQ(state_of(first, 2, far), State::part);
  EXPECT_FALSE(first.is_done);
  EXPECT_EQ(state_of(second, 2, far), State::whole);
  EXPECT_TRUE(second.is_done);
  const DrainedJob again = drain(cluster.place, "a");
  EXPECT_TRUE(again.failures.empty());
  EXPECT_EQ(state_of(again, 2, far), State::was_there);
  EXPECT_TRUE(again.is_done);
  EXPECT_EQ(steps_at(cluster.far), Steps{2});
  cluster.restart_from(levels, 2, 3);
}

}  // namespace
}  // namespace varve
