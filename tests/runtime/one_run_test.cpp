// One run of a job at a time, wherever the runs are: the lease in the job's store.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "runtime/switched_file_system.h"

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::model_at;
using test::run_ranks;
using test::SessionPlace;
using test::SwitchedFileSystem;

constexpr size_t kCells = 5'000;

/// The sessions and models of two ranks of a run.
struct RunOfTwo {
  std::vector<std::unique_ptr<RunSession>> sessions = std::vector<std::unique_ptr<RunSession>>(2);
  std::vector<Model> models = {Model(0, kCells), Model(1, kCells)};

  void on_both(const std::function<void(RunSession&)>& body) {
    std::thread second([&] { body(*sessions[1]); });
    body(*sessions[0]);
    second.join();
  }
  void end() {
    on_both([](RunSession& session) { session.finish(std::chrono::minutes(1)).ignore("it may have failed before"); });
  }
};

struct TwoRuns : testing::Test {
  SessionPlace place;
  ManualClock clock;
  FileSystem* files = &posix_file_system();  ///< of what is opened next

  /// On another node, so that the runs do not meet in memory.
  SessionOptions elsewhere() const {
    SessionOptions options = place.options();
    options.shared_memory = place.folder / "elsewhere";
    options.print_warnings = false;
    std::filesystem::create_directory(*options.shared_memory);
    return options;
  }
  Result<std::unique_ptr<RunSession>> open(std::unique_ptr<Communicator> ranks, SessionOptions options) {
    SessionEnvironment environment;
    environment.sources.environment.clear();
    environment.clock = &clock;
    environment.files = files;
    options.group = "rank";
    return RunSession::open(std::move(ranks), options, environment);
  }
  bool begin(RunOfTwo& run, const SessionOptions& options) {
    run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto opened = open(std::move(ranks), options);
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      run.sessions[rank] = std::move(*opened);
      ASSERT_TRUE(protect(*run.sessions[rank], run.models[rank]).ok());
    });
    return run.sessions[0] && run.sessions[1];
  }
  /// Elsewhere, whoever has the job.
  SessionOptions ruthless() const {
    SessionOptions options = elsewhere();
    options.take_over = true;
    return options;
  }
  bool is_leased() const { return std::filesystem::exists(place.store + "/runs/job.lease"); }
};

TEST_F(TwoRuns, OfAJobAreOneTooMany) {
  auto first = Session::open(place.options());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_TRUE(is_leased());
  const Status refused = Session::open(elsewhere()).status();
  EXPECT_EQ(refused.code(), StatusCode::busy);
  EXPECT_NE(refused.to_string().find("process " + std::to_string(::getpid())), std::string::npos)
      << refused.to_string();
  EXPECT_NE(refused.to_string().find("VARVE_TAKE_OVER"), std::string::npos) << refused.to_string();
  SessionOptions other = elsewhere();
  other.job = "another";
  EXPECT_TRUE(Session::open(other).ok());
  ASSERT_TRUE(first->finish().ok());
  EXPECT_FALSE(is_leased());
  EXPECT_TRUE(Session::open(elsewhere()).ok());
}

TEST_F(TwoRuns, OfAJobAreOneTooManyAlsoWhereTheirNearestStoresDiffer) {
  const std::string nearer = place.folder / "nearer";
  auto first = Session::open(place.options());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  SessionOptions with_nearer = elsewhere();
  with_nearer.store.reset();
  with_nearer.levels = nearer + "; " + place.store;
  const Status refused = Session::open(with_nearer).status();
  EXPECT_EQ(refused.code(), StatusCode::busy);
  EXPECT_NE(refused.to_string().find("process " + std::to_string(::getpid())), std::string::npos)
      << refused.to_string();
  EXPECT_FALSE(std::filesystem::exists(nearer + "/runs/job.lease"));
  EXPECT_TRUE(is_leased());
  ASSERT_TRUE(first->finish().ok());
  auto second = Session::open(with_nearer);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_TRUE(std::filesystem::exists(nearer + "/runs/job.lease"));
  EXPECT_FALSE(is_leased()) << "only a look";
  EXPECT_TRUE(second->finish().ok());
}

TEST_F(TwoRuns, AreOneAfterTheSecondHasTakenTheJobOver) {
  RunOfTwo first, second;
  ASSERT_TRUE(begin(first, place.options()));
  first.on_both([](RunSession& session) { EXPECT_TRUE(session.checkpoint(1, Persistence::now).ok()); });
  ASSERT_TRUE(begin(second, ruthless()));
  second.on_both([](RunSession& session) { EXPECT_EQ(session.restart().value(), 1u); });
  clock.advance(1000);  // the first one was paused
  first.on_both([](RunSession& session) {
    const Status made = session.checkpoint(2, Persistence::now);
    EXPECT_EQ(made.code(), StatusCode::busy);
    EXPECT_NE(made.message().find("taken this job over"), std::string::npos) << made.to_string();
  });
  EXPECT_EQ(test::steps_at(place.store), std::vector<uint64_t>{1});
  second.on_both([](RunSession& session) { EXPECT_TRUE(session.checkpoint(2, Persistence::now).ok()); });
  first.end();
  EXPECT_TRUE(is_leased()) << "the end of the first one does the second no harm";
  second.on_both([](RunSession& session) { EXPECT_TRUE(session.checkpoint(3, Persistence::now).ok()); });
  second.end();
  EXPECT_TRUE(is_leased()) << "the first one may have been paused until now";
  RunOfTwo third;
  ASSERT_TRUE(begin(third, place.options())) << "to others it is free";
  third.end();
  EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3}));
}

TEST_F(TwoRuns, HaveOneThatBringsSetsToAFartherLevel) {
  const std::string far = place.folder / "far";
  SwitchedFileSystem slow;
  slow.only_below(far);
  files = &slow;
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "dir:" + place.store + "; dir:" + far + " keep=1";
  RunOfTwo first, second;
  ASSERT_TRUE(begin(first, options));
  first.on_both([](RunSession& session) { EXPECT_TRUE(session.checkpoint(1, Persistence::now).ok()); });
  while (!first.sessions[0]->progress().levels.at(1).newest) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  slow.set(SwitchedFileSystem::Mode::held);
  first.on_both([](RunSession& session) { EXPECT_TRUE(session.checkpoint(2, Persistence::now).ok()); });
  slow.await_held();
  // The second one has nothing to do with that level.
  files = &posix_file_system();
  ASSERT_TRUE(begin(second, ruthless()));
  second.on_both([](RunSession& session) { EXPECT_EQ(session.restart().value(), 2u); });
  clock.advance(1000);  // the first one was paused
  slow.set(SwitchedFileSystem::Mode::normal);
  first.end();
  EXPECT_EQ(test::steps_at(far), std::vector<uint64_t>{1}) << "nothing came there, and nothing went";
  second.end();
  // What it was owed is brought there by who has the job.
  auto next = open(make_single_communicator(), options);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_TRUE((*next)->finish(std::chrono::minutes(1)).ok());
  EXPECT_EQ(test::steps_at(far), std::vector<uint64_t>{2});
}

TEST_F(TwoRuns, FollowEachOtherAtOnceIfTheFirstWasKilled) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto session = Session::open(place.options());
    Model model(0, kCells);
    const bool fine = protect(*session, model).ok() && session->checkpoint(1, Persistence::now).ok();
    if (fine) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(is_leased());
  auto next = open(make_single_communicator(), elsewhere());
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_EQ(clock.seconds(), 0) << "nobody waited";
  Model model(0, kCells);
  ASSERT_TRUE(protect(**next, model).ok());
  EXPECT_EQ((*next)->restart().value(), 1u);
}

TEST_F(TwoRuns, WaitForNoLongerThanARunOfAnotherMachineMayBeSilent) {
  ASSERT_TRUE(Session::open(place.options())->finish().ok());
  const std::string text = "varve run 1\nrun " + UniqueId::random().value().hex() + "\nhost far\nboot " +
                           UniqueId::random().value().hex() +
                           "\npid_namespace 7\nstart_ticks 3\nprocess 4711\nstarted 1700000000\n";
  ASSERT_TRUE(write_file_durably(posix_file_system(), place.store + "/runs/job.lease", as_bytes(text)).ok());
  auto next = open(make_single_communicator(), elsewhere());
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  EXPECT_LE(clock.seconds(), kRunSilenceSeconds + 1);
  const std::string told = Cluster::words((*next)->warnings());
  EXPECT_NE(told.find("process 4711 on far"), std::string::npos) << told;
}

TEST(RunsOnNodesWithStoresOfTheirOwn, HaveALeaseInEach) {
  Cluster cluster;
  cluster.run("memory; local:" + cluster.local, [&](uint32_t, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 1);
    for (const std::string& node : cluster.nodes)
      EXPECT_TRUE(std::filesystem::exists(cluster.node_path(node) + "/runs/job.lease")) << node;
    Cluster::finish(session);
  });
  for (const std::string& node : cluster.nodes) {
    // The log of the run stays.
    for (const auto& left : std::filesystem::directory_iterator(cluster.node_path(node) + "/runs"))
      EXPECT_EQ(left.path().filename(), "job.timeline") << node;
  }
  // A level that all share is the place of one for all.
  Cluster shared;
  shared.run("memory; local:" + shared.local + "; dir:" + shared.far, [&](uint32_t, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 1);
    EXPECT_TRUE(std::filesystem::exists(shared.far + "/runs/job.lease"));
    Cluster::finish(session);
  });
}

}  // namespace
}  // namespace varve
