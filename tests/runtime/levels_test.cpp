// Sessions that save to several levels, on nodes that are simulated: ranks are threads, VARVE_NODE says where they are.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/file_system.h"
#include "engine/transfer.h"
#include "runtime/cluster.h"
#include "runtime/served_store.h"
#include "runtime/switched_file_system.h"
#include "service/key_file.h"
#include "store/catalog.h"
#include "store/prune.h"

namespace varve {
namespace {

using test::Cluster;
using test::drop;
using test::expect_whole;
using test::Model;
using test::model_at;
using test::run_and_kill;
using test::run_ranks;
using test::SessionPlace;
using test::steps_at;
using test::store_at;
using test::SwitchedFileSystem;
using Mode = SwitchedFileSystem::Mode;
using Steps = std::vector<uint64_t>;

constexpr size_t kCells = Cluster::kCells;

/// Damages what a set's group has written for itself.
void damage(const std::string& path, uint64_t step, size_t group = 0) {
  const auto store = store_at(path);
  const std::string arena = store->arena_path(Catalog(*store).read({"job", step}).value().groups.at(group).hint);
  std::fstream file(arena, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto middle = static_cast<std::streamoff>(file.tellg()) / 2;
  char bytes[64];
  file.seekg(middle);
  file.read(bytes, sizeof bytes);
  for (char& byte : bytes) byte = static_cast<char>(~byte);
  file.seekp(middle);
  file.write(bytes, sizeof bytes);
  ASSERT_TRUE(file.good());
}

/// Removes what a set's groups have written for themselves.
void remove_arenas(const std::string& path, uint64_t step) {
  const auto store = store_at(path);
  for (const GroupRecord& group : Catalog(*store).read({"job", step}).value().groups)
    ASSERT_TRUE(store->backend().remove(store->arena_path(group.hint)).ok());
}

/// A file system that all ranks of a test have switched at once: each is done with what was before.
class SwitchedTogether {
 public:
  SwitchedTogether(Cluster& cluster, const std::string& only_below) : all_(cluster.rank_count()) {
    files_.only_below(only_below);
    cluster.files = &files_;
  }
  /// By all ranks.
  void set(uint32_t rank, Mode mode) {
    all_.arrive_and_wait();
    if (rank == 0) files_.set(mode);
    all_.arrive_and_wait();
  }
  /// While no rank runs.
  void set_alone(Mode mode) { files_.set(mode); }
  /// Three checkpoints and the end of the run; the second one finds the disk full.
  void fill_for_step_2(uint32_t rank, RunSession& session, Model& model) {
    model.step(1);
    EXPECT_TRUE(session.checkpoint(1, Persistence::now).ok());
    set(rank, Mode::full);
    model.step(2);
    EXPECT_EQ(session.checkpoint(2, Persistence::now).code(), StatusCode::no_space);
    set(rank, Mode::normal);
    model.step(3);
    EXPECT_TRUE(session.checkpoint(3, Persistence::now).ok());
    session.finish(std::chrono::minutes(1)).ignore("it says what became of step 2");
  }

 private:
  SwitchedFileSystem files_;
  std::barrier<> all_;
};

testing::AssertionResult says(const std::string& text, const std::string& what) {
  if (text.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << '"' << what << "\" is not in: " << text;
}

/// The groups of ranks that tests go through.
class ASessionWithLevels : public testing::TestWithParam<const char*> {
 protected:
  ASessionWithLevels() { cluster.group = GetParam(); }
  Cluster cluster;
  const std::string local_and_far = "memory; local:" + cluster.local + "; dir:" + cluster.far;
};

INSTANTIATE_TEST_SUITE_P(Groups, ASessionWithLevels, testing::Values("node", "rank"));

// Where sets go

TEST_P(ASessionWithLevels, SavesToTheNodesStoresAndPushesEachSoManyth) {
  const std::string levels =
      "memory; local:" + cluster.local + " keep=2; dir:" + cluster.far + " every=3 keep=2; dir:" + cluster.farther;
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    Cluster::go(session, model, 1, 10);
    const std::vector<LevelProgress> progress = session.progress().levels;
    ASSERT_EQ(progress.size(), 4u);
    EXPECT_EQ(progress[0].level, "memory");
    EXPECT_EQ(progress[0].newest, 10u);
    EXPECT_EQ(progress[1].level, "local:" + cluster.local);
    EXPECT_EQ(progress[1].newest, 10u);
    EXPECT_EQ(progress[2].level, "dir:" + cluster.far);
    Cluster::finish(session);
    EXPECT_EQ(Cluster::words(session.warnings()), "") << rank;
  });
  for (const std::string& node : cluster.nodes) {
    EXPECT_EQ(steps_at(cluster.node_path(node)), (Steps{9, 10})) << node;
    EXPECT_EQ(Catalog(*store_at(cluster.node_path(node))).read({"job", 10}).value().rank_count, cluster.node_ranks);
    expect_whole(cluster.node_path(node));
  }
  EXPECT_EQ(steps_at(cluster.far), (Steps{9, 10})) << "the last one goes everywhere";
  EXPECT_EQ(steps_at(cluster.farther), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(Catalog(*store_at(cluster.farther)).read({"job", 10}).value().rank_count, cluster.rank_count());
  EXPECT_TRUE(list_parts(*store_at(cluster.farther)).value().empty());
  expect_whole(cluster.far);
  expect_whole(cluster.farther);
  EXPECT_EQ(cluster.place.memory_files(), 0u);
  EXPECT_EQ(cluster.restart_from(levels, 10, 12), "");
  EXPECT_EQ(cluster.restart_from("dir:" + cluster.farther, 12, 12), "") << "it stands for itself";
}

TEST_P(ASessionWithLevels, PushesFromAStoreThatAllNodesShare) {
  const std::string levels = "memory; dir:" + cluster.far + " keep=1; dir:" + cluster.farther + " every=2 keep=3";
  cluster.run_to(levels, 9);
  EXPECT_EQ(steps_at(cluster.far), Steps{9});
  EXPECT_EQ(steps_at(cluster.farther), (Steps{6, 8, 9}));
  expect_whole(cluster.farther);
  std::filesystem::remove_all(cluster.far);
  EXPECT_TRUE(says(cluster.restart_from(levels, 9, 10), "there was no store, so one was made"));
  EXPECT_EQ(steps_at(cluster.far), Steps{10});
}

TEST(ASessionOfOneNode, HasItsStoreAndPushesIt) {
  Cluster cluster;
  cluster.nodes = {"a"};
  const std::string levels = "local:" + cluster.local + " keep=1; dir:" + cluster.far + " every=2";
  cluster.run_to(levels, 5);
  EXPECT_EQ(steps_at(cluster.node_path("a")), Steps{5});
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 5}));
  std::filesystem::remove_all(cluster.local);
  EXPECT_EQ(cluster.restart_from(levels, 5, 6), "");
}

TEST(ASessionWithMemory, SavesOnlyEachSoManythToTheNearestStoreAndWhatMustLast) {
  Cluster cluster;
  const std::string levels = "memory; dir:" + cluster.far + " every=3";
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 7);
    EXPECT_EQ(session.progress().newest_snapshot, 7u);
    EXPECT_EQ(session.progress().newest_persistent, 6u);
    EXPECT_TRUE(session.progress().last_error.ok());
    model.step(8);
    EXPECT_TRUE(session.checkpoint(8, Persistence::now).ok());
    if (rank == 0) {
      EXPECT_EQ(steps_at(cluster.far), (Steps{3, 6, 8}));
    }
    Cluster::finish(session);
  });
  EXPECT_EQ(cluster.restart_from(levels, 8, 8), "");
}

// What is lost or damaged

TEST_P(ASessionWithLevels, TakesAFartherLevelIfANodeHasLostItsStore) {
  cluster.run_to(local_and_far + " every=3", 8);
  drop(cluster.far, 8);
  std::filesystem::remove_all(cluster.node_path("b"));
  cluster.nodes[1] = "d";  // another one in its place
  const std::string told = cluster.restart_from(local_and_far + " every=3", 6, 9);
  EXPECT_TRUE(says(told, "step 8 in local:")) << "what was passed over";
  EXPECT_TRUE(says(told, "step 7 in local:"));
  // What the other nodes had of 7 and 8 was replaced.
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  // Step 7 is the ninth set that was made, and step 9 the last.
  EXPECT_EQ(steps_at(cluster.far), (Steps{3, 6, 7, 9}));
  EXPECT_EQ(cluster.restart_from(local_and_far + " every=3", 9, 9), "");
}

TEST_P(ASessionWithLevels, TakesTheSameStepFromAnotherLevelIfOneIsDamagedAndMendsThat) {
  cluster.run_to(local_and_far, 4);
  damage(cluster.node_path("b"), 4);
  const std::string mended = cluster.restart_from(local_and_far, 4, 4);
  EXPECT_TRUE(says(mended, "step 4 in local:"));
  EXPECT_TRUE(says(mended, "and is mended"));
  EXPECT_EQ(cluster.restart_from(local_and_far, 4, 4), "");
  damage(cluster.far, 4);
  EXPECT_EQ(cluster.restart_from(local_and_far, 4, 4), "") << "what is near is whole";
}

TEST_P(ASessionWithLevels, KeepsAsManyWholeSetsThoughOneIsDamaged) {
  for (const std::string& levels : {"local:" + cluster.local + " keep=2", "dir:" + cluster.far + " keep=2"}) {
    const std::string store = levels[0] == 'l' ? cluster.node_path("b") : cluster.far;
    cluster.run_to(levels, 2);
    damage(store, 2);
    cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
      EXPECT_EQ(session.restart().value(), 1u);
      model.step(2);
      Cluster::go(session, model, 3, 3);
      Cluster::finish(session);
    });
    EXPECT_EQ(steps_at(store), (Steps{1, 2, 3})) << levels;
  }
}

TEST_P(ASessionWithLevels, LeavesASetAloneThatAllNodesHaveAndMemoryToo) {
  const std::string levels = "memory; local:" + cluster.local + " keep=1";
  run_and_kill([&] {
    std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
    cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      Cluster::go(session, model, 1, 2);
      all.arrive_and_wait();
      if (rank == 0 && !HasFailure()) ::kill(::getpid(), SIGKILL);
      all.arrive_and_wait();
    });
  });
  const auto run_of = [this](const std::string& node) {
    return Catalog(*store_at(cluster.node_path(node))).read({"job", 2}).value().run;
  };
  const UniqueId killed = run_of("a");
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(model, model_at(rank, kCells, 2));
    EXPECT_EQ(session.progress().newest_persistent, 2u);
    Cluster::finish(session);
  });
  for (const std::string& node : cluster.nodes) EXPECT_EQ(run_of(node), killed) << node;
  EXPECT_EQ(cluster.restart_from(levels, 2, 4), "");
}

TEST_P(ASessionWithLevels, FallsBackIfAStepIsWholeNowhere) {
  cluster.run_to(local_and_far, 4);
  remove_arenas(cluster.node_path("b"), 4);
  remove_arenas(cluster.far, 4);
  const std::string told = cluster.restart_from(local_and_far, 3, 6);
  EXPECT_TRUE(says(told, "step 4 in local:"));
  EXPECT_TRUE(says(told, "step 4 in dir:"));
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3, 4, 5, 6}));
  expect_whole(cluster.far);
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  EXPECT_EQ(cluster.restart_from(local_and_far, 6, 6), "");
}

TEST_P(ASessionWithLevels, NeverMixesWhatNodesHaveOfDifferentRuns) {
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 4);
  const std::string kept = cluster.place.folder / "kept";
  std::filesystem::copy(cluster.node_path("a"), kept, std::filesystem::copy_options::recursive);
  for (const uint64_t step : {3, 4}) drop(cluster.node_path("b"), step);
  EXPECT_TRUE(says(cluster.restart_from(levels, 2, 4), "step 4 in local:"));
  std::filesystem::remove_all(cluster.node_path("a"));
  std::filesystem::rename(kept, cluster.node_path("a"));
  const std::string told = cluster.restart_from(levels, 2, 5);
  EXPECT_TRUE(says(told, "step 4 in local:"));
  EXPECT_TRUE(says(told, "different runs"));
  EXPECT_EQ(cluster.restart_from(levels, 5, 5), "");
}

TEST(ASessionWithNodeStores, DoesNotTakePartOfACheckpointForAWholeOne) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 2);
  // The first node has all of its ranks, but they are not all of the checkpoint's.
  cluster.nodes = {"a"};
  const Status fewer = cluster.restart_status(levels);
  EXPECT_EQ(fewer.code(), StatusCode::corrupt) << fewer.to_string();
  EXPECT_TRUE(says(fewer.to_string(), "made by 6 ranks, and the nodes of this run have the parts of 2"));
  cluster.nodes = {"a", "b", "c", "d"};
  const Status more = cluster.restart_status(levels);
  EXPECT_EQ(more.code(), StatusCode::invalid_argument) << more.to_string();
  EXPECT_TRUE(says(more.to_string(), "nothing says what of it is whose"));
  cluster.nodes = {"a", "b", "c"};
  EXPECT_EQ(cluster.restart_from(levels, 2, 3), "");
}

TEST(ASessionWithNodeStores, GoesOnWhereRanksAreOnOtherNodesThanBefore) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local + "; dir:" + cluster.far;
  cluster.run_to(levels, 2);
  drop(cluster.far, 2);
  cluster.nodes = {"b", "a", "c"};
  EXPECT_EQ(cluster.restart_from(levels, 2, 3), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3}));
  cluster.nodes = {"c", "a", "d", "b"};
  cluster.node_ranks = 1;
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::invalid_argument);
  cluster.node_ranks = 2;
  cluster.nodes = {"c", "b", "a"};
  EXPECT_EQ(cluster.restart_from(levels, 3, 4), "");
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  expect_whole(cluster.far);
}

TEST(ASessionWithNodeStores, SaysThatNothingIsWholeRatherThanToStartAnew) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 2);
  std::filesystem::remove_all(cluster.node_path("c"));
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt);
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt) << "the first attempt made a store on c";
  EXPECT_EQ(steps_at(cluster.node_path("a")), (Steps{1, 2}));
}

TEST(ASessionWithNodeStores, SaysThatNothingIsWholeWhereANodeHasBeenUsedByAnotherJob) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 1);
  cluster.nodes = {"a", "b", "d"};
  ASSERT_TRUE(Store::create(posix_file_system(), cluster.node_path("d")).ok());
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt);
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt);
  EXPECT_EQ(steps_at(cluster.node_path("a")), Steps{1});
}

TEST(ASessionWithNodeStores, BeginsAnewIfItsFirstCheckpointNeverWasOnAllNodes) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 1);
  // As if the run had been killed before that node had saved its part: it had noted that it began there.
  drop(cluster.node_path("c"), 1);
  cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
    const Result<std::optional<uint64_t>> restarted = session.restart();
    ASSERT_TRUE(restarted.ok()) << restarted.status().to_string();
    EXPECT_FALSE(*restarted);
    EXPECT_TRUE(says(Cluster::words(session.warnings()), "the run begins anew"));
    Cluster::go(session, model, 1, 2);
    Cluster::finish(session);
  });
  EXPECT_EQ(cluster.restart_from(levels, 2, 3), "");
  for (const std::string& node : cluster.nodes) {
    EXPECT_EQ(steps_at(cluster.node_path(node)), (Steps{1, 2, 3}));
    expect_whole(cluster.node_path(node));
  }
}

TEST(TheShareOfOneNode, IsTakenForNoWholeSet) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 3);
  const auto near = store_at(cluster.node_path("a"));
  PruneOptions options;
  options.keep.last = 1;
  ASSERT_TRUE(prune_store(*near, options, null_progress()).ok());
  EXPECT_EQ(steps_at(cluster.node_path("a")), (Steps{1, 2, 3})) << "another node may have an older one only";
  ASSERT_TRUE(Store::create(posix_file_system(), cluster.far).ok());
  const Status copied = copy_set(*near, *store_at(cluster.far), {"job", 3}, {}, null_progress()).status();
  EXPECT_EQ(copied.code(), StatusCode::invalid_argument) << copied.to_string();
  EXPECT_EQ(steps_at(cluster.far), Steps{});
  // By an earlier version, or by hand.
  std::filesystem::remove_all(cluster.far);
  std::filesystem::copy(cluster.node_path("a"), cluster.far, std::filesystem::copy_options::recursive);
  for (const std::string& node : cluster.nodes) drop(cluster.node_path(node), 3);
  cluster.run(levels + "; dir:" + cluster.far, [](uint32_t, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), 2u);
    const std::string told = Cluster::words(session.warnings());
    EXPECT_TRUE(says(told, "the share of one node alone, 2 of 6 ranks")) << told;
    session.finish(std::chrono::minutes(1)).ignore("what is there under those names is in the way of the whole sets");
  });
}

TEST(ASessionWithNodeStores, BeginsAnewAsOftenAsItsFirstCheckpointFails) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  cluster.run_to(levels, 1);
  for (const char* const lacking : {"c", "a"}) {
    drop(cluster.node_path(lacking), 1);
    cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
      const Result<std::optional<uint64_t>> restarted = session.restart();
      ASSERT_TRUE(restarted.ok()) << restarted.status().to_string();
      EXPECT_FALSE(*restarted);
      Cluster::go(session, model, 1, 1);
      Cluster::finish(session);
    });
  }
  EXPECT_EQ(cluster.restart_from(levels, 1, 2), "");
}

TEST(ASessionWithNodeStores, DoesNotBeginAnewWhereAnotherNodeHasSeenAnEarlierBeginOnly) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local;
  // The job's first start ends before its first checkpoint; the next one is on other nodes.
  cluster.nodes = {"c", "d"};
  cluster.run(levels, [&](uint32_t, RunSession& session, Model&) {
    ASSERT_EQ(session.restart().value(), std::nullopt);
    Cluster::finish(session);
  });
  cluster.nodes = {"a", "b"};
  cluster.run_to(levels, 3);
  // b is away, and well.
  cluster.nodes = {"a", "c"};
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt);
  cluster.nodes = {"a", "b"};
  EXPECT_EQ(cluster.restart_from(levels, 3, 4), "");
}

TEST_P(ASessionWithLevels, KeepsWhatItHasGoneBackToUntilANewerSetIsWhole) {
  cluster.run_to("local:" + cluster.local + " keep=2", 5);
  SwitchedTogether files(cluster, cluster.node_path("b"));
  cluster.run("local:" + cluster.local + " keep=1", [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_EQ(session.restart({.at_most = 4}).value(), 4u);
    files.set(rank, Mode::full);
    model.step(7);
    EXPECT_EQ(session.checkpoint(7, Persistence::now).code(), StatusCode::no_space);
    files.set(rank, Mode::normal);
    session.finish(std::chrono::minutes(1)).ignore("it says what became of step 7");
  });
  for (const std::string& node : cluster.nodes) {
    const Steps steps = steps_at(cluster.node_path(node));
    EXPECT_TRUE(std::binary_search(steps.begin(), steps.end(), 4u)) << node;
  }
}

/// Goes on from `step` to `last`, each in the nearest store, and is killed.
void go_on_and_be_killed(const Cluster& cluster, const std::string& levels, uint64_t step, uint64_t last) {
  run_and_kill([&] {
    std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
    cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      ASSERT_EQ(session.restart().value(), step);
      Cluster::go(session, model, step + 1, last);
      all.arrive_and_wait();
      if (rank == 0 && !testing::Test::HasFailure()) ::kill(::getpid(), SIGKILL);
      all.arrive_and_wait();
    });
  });
}

TEST(AJobThatMovesToOtherNodes, GoesOnFromWhatWasMadeLastWhereverItComesBackTo) {
  Cluster cluster;
  cluster.nodes = {"a", "b"};
  const std::string levels = "local:" + cluster.local + " keep=9; " + cluster.far + " every=100";
  cluster.run_to(levels, 5);
  go_on_and_be_killed(cluster, levels, 5, 9);
  cluster.nodes = {"c", "d"};
  cluster.restart_from(levels, 5, 7);
  EXPECT_EQ(steps_at(cluster.far), (Steps{5, 7}));
  // There the steps 8 and 9 are left of the run that was killed.
  cluster.nodes = {"a", "b"};
  cluster.restart_from(levels, 7, 8);
  EXPECT_EQ(steps_at(cluster.far), (Steps{5, 7, 8}));
  cluster.nodes = {"c", "d"};
  cluster.restart_from(levels, 8, 9);
  cluster.nodes = {"a", "b"};
  cluster.restart_from(levels, 9, 10);
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  expect_whole(cluster.far);
}

TEST(ARunWithLevels, IsNotTakenBackByALevelThatWasLeftOutMeanwhile) {
  Cluster cluster;
  const std::string near = cluster.place.folder / "near", other = cluster.place.folder / "other";
  cluster.run_to(near + "; " + cluster.far, 5);
  // The nearest is lost, and the other does not answer: the user begins anew.
  cluster.run_to(other, 2);
  const std::string both = other + "; " + cluster.far;
  cluster.restart_from(both, 2, 4);
  cluster.restart_from(both, 4, 6);
  EXPECT_EQ(steps_at(other), (Steps{1, 2, 3, 4, 5, 6}));
  cluster.restart_from(cluster.far, 6, 7);
}

TEST(ARunWithLevels, RefusesTwoThatAreTheSameFolder) {
  Cluster cluster;
  std::filesystem::create_directory(cluster.far);
  const std::string link = cluster.place.folder / "link", indirect = cluster.place.folder / "./far";
  std::filesystem::create_directory_symlink(cluster.far, link);
  for (const std::string& same : {link, indirect, "dir:" + indirect}) {
    run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const Status refused =
          cluster.open(rank, std::move(ranks), cluster.far + " keep=5; " + same + " keep=1").status();
      EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
      EXPECT_TRUE(says(refused.to_string(), "are the same folder")) << refused.to_string();
    });
  }
  EXPECT_TRUE(steps_at(cluster.far).empty());
}

TEST(ARunWithLevels, SaysThatRedundancyWhichItDoesNotNameMayRebuildWhatIsLost) {
  Cluster cluster;
  const std::string local = "local:" + cluster.local;
  cluster.run_to(local + "; partner", 3);
  std::filesystem::remove_all(cluster.node_path("b"));
  const Status failed = cluster.restart_status(local);
  EXPECT_EQ(failed.code(), StatusCode::corrupt);
  EXPECT_TRUE(says(failed.to_string(), "nodes have redundancy of the job")) << failed.to_string();
  EXPECT_TRUE(says(failed.to_string(), "name it behind local")) << failed.to_string();
  cluster.restart_from(local + "; partner", 3, 4);
}

TEST(ASessionWithNodeStores, LeavesInMemoryWhatNotAllNodesCouldSave) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local + " every=4";
  run_and_kill([&] {
    std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
    cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      Cluster::go(session, model, 1, 4);
      for (uint64_t step = 5; step <= 6; ++step) {
        model.step(step);
        ASSERT_TRUE(session.checkpoint(step, Persistence::later).ok());
      }
      all.arrive_and_wait();
      if (rank == 0 && !HasFailure()) ::kill(::getpid(), SIGKILL);
      all.arrive_and_wait();
    });
  });
  SwitchedTogether files(cluster, cluster.node_path("b"));
  files.set_alone(Mode::full);
  cluster.run(levels, [&](uint32_t, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), 6u);
    EXPECT_FALSE(session.wait().ok());
    session.finish(std::chrono::minutes(1)).ignore("the disk is full");
  });
  files.set_alone(Mode::normal);
  cluster.restart_from(levels, 6, 8);
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  for (const auto& file : std::filesystem::directory_iterator(cluster.place.memory))
    EXPECT_EQ(file.path().string().find("-slot"), std::string::npos) << file.path();
}

TEST(ASessionWithNodeStores, DoesNotBeginAnewIfLaterCheckpointsAreLost) {
  Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local + " keep=1";
  cluster.run_to(levels, 3);
  drop(cluster.node_path("c"), 3);
  EXPECT_EQ(cluster.restart_status(levels).code(), StatusCode::corrupt);
}

// A level that does not do its work

TEST_P(ASessionWithLevels, GoesOnWhileAFartherLevelIsFullAndCatchesUp) {
  SwitchedTogether files(cluster, cluster.far);
  const std::string levels = "memory; local:" + cluster.local + " keep=1; dir:" + cluster.far;
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    const bool first_of_node = rank % cluster.node_ranks == 0;
    files.set(rank, Mode::full);
    Cluster::go(session, model, 1, 3);
    if (first_of_node) {
      // A moment after the set is complete.
      while (session.progress().levels[2].last_error.ok() || session.progress().levels[2].waiting < 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const LevelProgress far = session.progress().levels[2];
      EXPECT_EQ(far.last_error.code(), StatusCode::no_space);
      EXPECT_EQ(far.waiting, 3u);
      EXPECT_FALSE(far.newest);
      EXPECT_TRUE(session.progress().last_error.ok()) << "the nearest level is well";
      EXPECT_TRUE(says(Cluster::words(session.warnings()), "push to dir:"));
    }
    EXPECT_TRUE(session.checkpoint(4, Persistence::now).ok());
    if (rank == 0) {
      EXPECT_EQ(steps_at(cluster.node_path("a")), (Steps{1, 2, 3, 4})) << "what waits is not dropped";
    }
    files.set(rank, Mode::normal);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3, 4}));
  expect_whole(cluster.far);
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)), Steps{4});
}

TEST_P(ASessionWithLevels, KeepsAllThatAStuckLevelIsOwed) {
  SwitchedTogether files(cluster, cluster.far);
  const std::string levels = "memory; local:" + cluster.local + " keep=1; dir:" + cluster.far;
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    files.set(rank, Mode::held);
    Cluster::go(session, model, 1, 8);
    if (rank % cluster.node_ranks == 0) {
      EXPECT_EQ(session.progress().levels[2].waiting, 8u);
    }
    files.set(rank, Mode::normal);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3, 4, 5, 6, 7, 8}));
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)), Steps{8});
}

TEST_P(ASessionWithLevels, GivesUpWhatAStuckLevelIsOwedOnlyWhereThatIsSaid) {
  SwitchedTogether files(cluster, cluster.far);
  const std::string levels = "memory; local:" + cluster.local + " keep=1; dir:" + cluster.far + " backlog=4";
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    const bool first_of_node = rank % cluster.node_ranks == 0;
    files.set(rank, Mode::held);
    Cluster::go(session, model, 1, 8);
    if (first_of_node) {
      const LevelProgress far = session.progress().levels[2];
      EXPECT_EQ(far.waiting, 4u);
      EXPECT_EQ(far.last_error.code(), StatusCode::resource_limit) << far.last_error.to_string();
      EXPECT_TRUE(says(Cluster::words(session.warnings()), "falls behind"));
    }
    files.set(rank, Mode::normal);
    Cluster::finish(session);
  });
  const Steps there = steps_at(cluster.far);
  EXPECT_EQ(there.back(), 8u);
  EXPECT_LE(there.size(), 5u);
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)), Steps{8});
}

// What a farther level could not be given in one run comes there in the next, or by whoever else comes.
TEST_P(ASessionWithLevels, BringsTheBacklogOfEarlierRunsToALevelThatIsBack) {
  SwitchedTogether files(cluster, cluster.far);
  const std::string levels = "memory; local:" + cluster.local + " keep=1; dir:" + cluster.far;
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 1);
    files.set(rank, Mode::full);
    Cluster::go(session, model, 2, 4);
    EXPECT_FALSE(session.finish(std::chrono::minutes(1)).ok());
  });
  for (const std::string& node : cluster.nodes) {
    const Steps steps = steps_at(cluster.node_path(node)), owed{2, 3, 4};
    EXPECT_TRUE(std::includes(steps.begin(), steps.end(), owed.begin(), owed.end())) << node;
  }
  files.set_alone(Mode::normal);
  EXPECT_EQ(cluster.restart_from(levels, 4, 5), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3, 4, 5}));
  expect_whole(cluster.far);
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)), Steps{5});
}

// One node whose disk is full from step 3 on, while the others drop what is old: a checkpoint has to stay.
TEST_P(ASessionWithLevels, DropsNothingThatIsNewestOnAllNodesTogether) {
  SwitchedTogether files(cluster, cluster.node_path("b"));
  const std::string levels = "memory; local:" + cluster.local + " keep=1";
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 2);
    files.set(rank, Mode::full);
    for (uint64_t step = 3; step <= 7; ++step) {
      model.step(step);
      session.checkpoint(step, Persistence::later).ignore("it tells of those before");
      // Long enough for the others to drop what they think is old.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(session.progress().newest_persistent, 2u) << "what all nodes have";
    EXPECT_FALSE(session.wait().ok());
    files.set(rank, Mode::normal);
    session.finish(std::chrono::minutes(1)).ignore("it tells of step 7");
  });
  for (const std::string& node : cluster.nodes) {
    const Steps steps = steps_at(cluster.node_path(node));
    EXPECT_TRUE(std::binary_search(steps.begin(), steps.end(), 2u)) << node;
    EXPECT_LE(steps.size(), 2u) << "parts of checkpoints that can never be whole are not kept: " << node;
  }
  cluster.restart_from(levels, 2, 3);
}

// A store that all nodes share, and one node that can never write its part: the others must go on.
TEST_P(ASessionWithLevels, WaitsForNoNodeThatCannotDeliverItsPart) {
  class OneNodeCannotWrite final : public ForwardingFileSystem {
   public:
    using ForwardingFileSystem::ForwardingFileSystem;
    Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
      if (path.find("/arenas/") != std::string::npos)
        return Status(StatusCode::no_space, "no space left on this node", path);
      return ForwardingFileSystem::create(path, options);
    }
  } broken(posix_file_system());
  cluster.files_of_node = [&](const std::string& node) -> FileSystem& {
    return node == "b" ? static_cast<FileSystem&>(broken) : posix_file_system();
  };
  cluster.run("memory; dir:" + cluster.far, [&](uint32_t rank, RunSession& session, Model& model) {
    const bool broken_node = rank / cluster.node_ranks == 1;
    std::vector<Status> told;
    for (uint64_t step = 1; step <= 6; ++step) {
      model.step(step);
      told.push_back(session.checkpoint(step, Persistence::later));
    }
    const Status waited = session.wait();
    EXPECT_EQ(waited.code(), StatusCode::no_space) << waited.to_string();
    if (broken_node) {
      EXPECT_TRUE(std::any_of(told.begin(), told.end(), [](const Status& each) {
        return each.code() == StatusCode::no_space;
      })) << "checkpoint() tells of what became of those before";
    }
    session.finish(std::chrono::minutes(1)).ignore("it tells of step 6");
  });
  EXPECT_EQ(steps_at(cluster.far), Steps());
  EXPECT_TRUE(list_parts(*store_at(cluster.far)).value().empty());
  EXPECT_TRUE(list_parts(*store_at(cluster.far), PartName::Kind::failed).value().empty());
}

TEST_P(ASessionWithLevels, SaysAtItsEndThatAFartherLevelHasNotTheLastSet) {
  SwitchedTogether files(cluster, cluster.far);
  cluster.run(local_and_far, [&](uint32_t rank, RunSession& session, Model& model) {
    files.set(rank, Mode::full);
    Cluster::go(session, model, 1, 2);
    EXPECT_EQ(session.finish(std::chrono::minutes(1)).code(), StatusCode::no_space);
  });
  EXPECT_EQ(steps_at(cluster.far), Steps());
  cluster.files = &posix_file_system();
  // What is near alone is brought to the farther level when the run goes on from it.
  EXPECT_EQ(cluster.restart_from(local_and_far, 2, 2), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2}));
}

TEST_P(ASessionWithLevels, IsOpenedWhileAFartherLevelIsFullAndMakesItLater) {
  SwitchedTogether files(cluster, cluster.far);
  files.set_alone(Mode::full);
  cluster.run(local_and_far, [&](uint32_t rank, RunSession& session, Model& model) {
    if (rank == 0) {
      EXPECT_TRUE(says(Cluster::words(session.warnings()), "goes on without dir:" + cluster.far));
    }
    Cluster::go(session, model, 1, 2);
    files.set(rank, Mode::normal);
    Cluster::go(session, model, 3, 3);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 2, 3}));
  expect_whole(cluster.far);
}

TEST_P(ASessionWithLevels, GoesOnWhenOneNodesStoreIsFull) {
  SwitchedTogether files(cluster, cluster.node_path("b"));
  cluster.run(local_and_far,
              [&](uint32_t rank, RunSession& session, Model& model) { files.fill_for_step_2(rank, session, model); });
  EXPECT_EQ(steps_at(cluster.far), (Steps{1, 3}));
  EXPECT_TRUE(list_parts(*store_at(cluster.far)).value().empty());
  EXPECT_EQ(cluster.restart_from(local_and_far, 3, 4), "");
}

// Redundancy

class ASessionWithRedundancy : public testing::TestWithParam<const char*> {
 protected:
  Cluster cluster;
  const std::string levels =
      "memory; local:" + cluster.local + " keep=3; " + GetParam() + "; dir:" + cluster.far + " every=4";
};

INSTANTIATE_TEST_SUITE_P(Schemes, ASessionWithRedundancy, testing::Values("partner", "xor:3", "rs:2+1"));

TEST_P(ASessionWithRedundancy, RebuildsTheStoreOfALostNode) {
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    Cluster::go(session, model, 1, 5);
    Cluster::finish(session);
    if (rank % cluster.node_ranks == 0) {
      EXPECT_EQ(session.progress().levels[2].newest, 5u);
    }
    EXPECT_EQ(Cluster::words(session.warnings()), "");
  });
  drop(cluster.far, 5);
  std::filesystem::remove_all(cluster.node_path("b"));
  cluster.nodes[1] = "d";  // another one in its place
  EXPECT_TRUE(says(cluster.restart_from(levels, 5, 7), "node d was rebuilt"));
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  EXPECT_EQ(cluster.restart_from(levels, 7, 7), "");
}

TEST_P(ASessionWithRedundancy, MakesGoodWhatIsDamagedOnANode) {
  cluster.run_to(levels, 3);
  drop(cluster.far, 3);
  damage(cluster.node_path("c"), 3);
  EXPECT_TRUE(says(cluster.restart_from(levels, 3, 3), "was rebuilt"));
}

TEST_P(ASessionWithRedundancy, TakesAFartherLevelIfMoreIsLostThanItPromises) {
  cluster.run_to(levels, 6);
  drop(cluster.far, 6);
  for (const char* node : {"a", "b"}) std::filesystem::remove_all(cluster.node_path(node));
  const std::string told = cluster.restart_from(levels, 4, 8);
  EXPECT_TRUE(says(told, "cannot be rebuilt"));
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
  EXPECT_TRUE(says(cluster.restart_from(levels, 8, 8) + "ok", "ok"));
}

TEST_P(ASessionWithRedundancy, KeepsWhatCouldNotBeRebuiltForTheNextStart) {
  cluster.run_to(levels, 6);
  drop(cluster.far, 6);
  std::filesystem::remove_all(cluster.node_path("b"));
  SwitchedTogether files(cluster, cluster.node_path("b") + "/arenas/");
  files.set_alone(Mode::full);
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), 4u);
    if (rank == 0) {
      EXPECT_TRUE(says(Cluster::words(session.warnings()), "cannot be rebuilt"));
    }
    session.finish(std::chrono::minutes(1)).ignore("a disk is full");
  });
  files.set_alone(Mode::normal);
  EXPECT_TRUE(says(cluster.restart_from(levels, 6, 8), "was rebuilt"));
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
}

TEST_P(ASessionWithRedundancy, KeepsWhatProtectsACheckpointThatAStartWithFewerNodesPassesOver) {
  cluster.run_to(levels, 6);
  drop(cluster.far, 6);
  std::filesystem::remove_all(cluster.node_path("c"));
  // One node alone cannot rebuild anything.
  const auto here = std::exchange(cluster.nodes, {"b"});
  const uint32_t ranks = std::exchange(cluster.node_ranks, cluster.node_ranks * 3);
  const auto found = cluster.restart_status(levels);
  EXPECT_TRUE(found.ok()) << found.to_string();
  cluster.nodes = here;
  cluster.node_ranks = ranks;
  EXPECT_TRUE(says(cluster.restart_from(levels, 6, 8), "was rebuilt"));
  for (const std::string& node : cluster.nodes) expect_whole(cluster.node_path(node));
}

TEST_P(ASessionWithRedundancy, DoesNotWaitForASetThatANodeCouldNotSave) {
  SwitchedTogether files(cluster, cluster.node_path("b"));
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    files.fill_for_step_2(rank, session, model);
    if (rank % cluster.node_ranks == 0) {
      EXPECT_EQ(session.progress().levels[2].newest, 3u);
      EXPECT_EQ(session.progress().levels[2].last_error.code(), StatusCode::io_error);
    }
  });
  std::filesystem::remove_all(cluster.node_path("c"));
  EXPECT_TRUE(says(cluster.restart_from(levels, 3, 3), "node c was rebuilt"));
}

TEST_P(ASessionWithRedundancy, DoesNotWaitForARankThatHasNoSnapshot) {
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    bool fails = false;
    auto save = [&](std::vector<std::byte>&) { return fails ? Status::internal("not now") : Status(); };
    ASSERT_TRUE(session.variables().protect_object("object", save, [](ByteSpan) { return Status(); }).ok());
    for (uint64_t step = 1; step <= 4; ++step) {
      model.step(step);
      fails = step % 2 == 0 && rank == 3;
      const Status made = session.checkpoint(step, Persistence::later);
      // It may tell that step 2 has failed meanwhile; this one goes on all the same.
      const std::string told =
          "step " + std::to_string(step) + " is on its way: the checkpoint of step 2 failed: rank 3 ";
      const bool goes_on = made.ok() || (step > 2 && made.to_string().starts_with(told));
      EXPECT_EQ(goes_on, !fails) << "step " << step << " of rank " << rank << ": " << made.to_string();
    }
    fails = false;
    ASSERT_TRUE(session.checkpoint(5, Persistence::now).ok());
    session.finish(std::chrono::minutes(1)).ignore("not all nodes have all sets");
  });
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)).back(), 5u);
}

TEST(ASessionWithTooFewNodes, RefusesRedundancy) {
  Cluster cluster;
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = cluster.open(rank, std::move(ranks), "local:" + cluster.local + "; xor:4");
    EXPECT_EQ(session.status().code(), StatusCode::invalid_argument);
    EXPECT_TRUE(says(session.status().to_string(), "needs 4 nodes"));
  });
}

// Nodes

TEST(ASessionOnANode, SaysWhichAndRefusesWhatIsNoName) {
  Cluster cluster;
  cluster.run("memory; local:" + cluster.local, [&](uint32_t rank, RunSession& session, Model&) {
    EXPECT_TRUE(says(session.effective_options(), "node " + cluster.nodes[rank / 2] + " (VARVE_NODE)"));
    EXPECT_TRUE(says(session.effective_options(), "levels = [\"memory\", \"local:"));
  });
  for (const char* bad : {"a/b", "..", "a b"}) {
    cluster.nodes = {bad};
    run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = cluster.open(rank, std::move(ranks), "local:" + cluster.local);
      EXPECT_EQ(session.status().code(), StatusCode::invalid_argument) << bad;
    });
  }
}

TEST(ASessionOnNodes, RefusesAFolderThatTheyShareInPlaceOfTheirOwn) {
  Cluster cluster;
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    SessionOptions options = cluster.place.options();
    options.store.reset();
    options.levels = "memory; local:" + cluster.local;
    SessionEnvironment environment;
    environment.sources.environment.clear();
    // As on two machines whose disks are one.
    environment.find_place = [rank](const std::string&) -> Result<RankPlace> {
      return RankPlace{"machine " + std::to_string(rank / 2), 0, "machine" + std::to_string(rank / 2)};
    };
    const auto session = RunSession::open(std::move(ranks), options, environment);
    EXPECT_EQ(session.status().code(), StatusCode::invalid_argument);
    EXPECT_TRUE(says(session.status().to_string(), "see the same folder"));
  });
  for (const auto& entry : std::filesystem::directory_iterator(cluster.local)) {
    EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
  }
}

// Servers

TEST_P(ASessionWithLevels, PushesToAServer) {
  const std::string socket = cluster.place.folder / "socket";
  const test::ServedStore server("unix:" + socket, cluster.far);
  const std::string levels = "memory; local:" + cluster.local + " keep=1; unix:" + socket + " every=2";
  cluster.run_to(levels, 4);
  std::filesystem::remove_all(cluster.local);
  EXPECT_EQ(cluster.restart_from(levels, 4, 5), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 5}));
  expect_whole(cluster.far);
}

#ifdef VARVE_HAVE_TLS
/// A server over TCP behind the local stores.
class ASessionWithAServerOverTcp : public ASessionWithLevels {
 protected:
  ASessionWithAServerOverTcp() { cluster.key_file = key_file; }
  static std::string make_key(const std::string& path) {
    EXPECT_TRUE(make_key_file(path).ok());
    return path;
  }

  const std::string key_file = make_key(cluster.place.folder / "key");
  test::ServedStore server{"tcp://127.0.0.1:0", cluster.far, key_file};
  const std::string levels =
      "memory; local:" + cluster.local + " keep=1; " + server.address() + " every=2 bandwidth=1GB/s";
};

INSTANTIATE_TEST_SUITE_P(Groups, ASessionWithAServerOverTcp, testing::Values("node", "rank"));

TEST_P(ASessionWithAServerOverTcp, PushesToItAndRestartsFromIt) {
  cluster.run_to(levels, 5);
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 5}));
  std::filesystem::remove_all(cluster.local);
  EXPECT_EQ(cluster.restart_from(levels, 5, 6), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 5, 6}));
  expect_whole(cluster.far);
}

// With more ranks than a server takes connections a run could not start, even where the server is a far level.
TEST_P(ASessionWithAServerOverTcp, IsNotAskedByRanksThatRestartFromWhatIsNear) {
  cluster.run_to(levels, 3);
  std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    all.arrive_and_wait();
    if (rank == 0) server.stop();
    all.arrive_and_wait();
    const auto from = session.restart();
    EXPECT_TRUE(from.ok()) << from.status().to_string();
    EXPECT_EQ(model, model_at(rank, kCells, 3));
    all.arrive_and_wait();
    if (rank == 0) server.start();
    all.arrive_and_wait();
    Cluster::finish(session);
  });
}

TEST_P(ASessionWithAServerOverTcp, GoesOnWhileItIsAwayAndCatchesUp) {
  std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), std::nullopt);
    auto by_one = [&](auto act) {
      all.arrive_and_wait();
      if (rank == 0) act();
      all.arrive_and_wait();
    };
    Cluster::go(session, model, 1, 4);  // the fourth may be on its way
    by_one([&] { server.stop(); });
    Cluster::go(session, model, 5, 7);
    EXPECT_EQ(session.progress().newest_persistent, 7u);
    EXPECT_TRUE(session.progress().last_error.ok()) << "the nearest level is well";
    by_one([&] { server.start(); });
    Cluster::go(session, model, 8, 8);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 6, 8}));
  std::filesystem::remove_all(cluster.local);
  EXPECT_EQ(cluster.restart_from(levels, 8, 8), "");
  expect_whole(cluster.far);
}

TEST_P(ASessionWithAServerOverTcp, RestartsFromOneThatWasStartedAnew) {
  cluster.run_to(levels, 2);
  std::filesystem::remove_all(cluster.node_path("b"));
  server.stop();
  server.start();
  EXPECT_EQ(Steps{2}, steps_at(cluster.far));
  cluster.restart_from(levels, 2, 4);
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4}));
  expect_whole(cluster.far);
}

TEST_P(ASessionWithAServerOverTcp, IsOpenedWhileItIsAwayAndCatchesUp) {
  cluster.run_to(levels, 2);
  server.stop();
  std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 2u) << "the nearest level has it";
    if (rank == 0) {
      EXPECT_TRUE(says(Cluster::words(session.warnings()), "goes on without " + server.address()));
    }
    EXPECT_EQ(model, model_at(rank, kCells, 2));
    Cluster::go(session, model, 3, 5);
    all.arrive_and_wait();
    if (rank == 0) server.start();
    all.arrive_and_wait();
    Cluster::go(session, model, 6, 6);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4, 6}));
  expect_whole(cluster.far);
}

TEST_P(ASessionWithAServerOverTcp, TakesWhatIsMadeWhileItsNewerSetsCouldNotBeSeen) {
  const std::string all_sets = "local:" + cluster.local + " keep=2; " + server.address() + " keep=2";
  cluster.run_to(all_sets, 2);
  const std::string old = cluster.place.folder / "old";
  std::filesystem::copy(cluster.local, old, std::filesystem::copy_options::recursive);
  EXPECT_EQ(cluster.restart_from(all_sets, 2, 6), "");
  EXPECT_EQ(steps_at(cluster.far), (Steps{5, 6}));
  std::filesystem::remove_all(cluster.local);
  std::filesystem::rename(old, cluster.local);
  server.stop();
  std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
  cluster.run(all_sets, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 2u) << "the server, which has newer ones, is away";
    Cluster::go(session, model, 3, 4);
    all.arrive_and_wait();
    if (rank == 0) server.start();
    all.arrive_and_wait();
    Cluster::go(session, model, 5, 5);
    // Its numbers are known once something was brought there.
    while (rank == 0 && steps_at(cluster.far).front() >= 5) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    all.arrive_and_wait();
    Cluster::go(session, model, 6, 7);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{6, 7}));
  const std::unique_ptr<Store> far = store_at(cluster.far);
  for (const uint64_t step : {6, 7}) {
    EXPECT_GT(Catalog(*far).read({"job", step}).value().number, 6u) << "made after all that was there: " << step;
  }
  expect_whole(cluster.far);
  std::filesystem::remove_all(cluster.local);
  EXPECT_EQ(cluster.restart_from(all_sets, 7, 8), "");
}

TEST_P(ASessionWithAServerOverTcp, IsLookedForAgainByARestart) {
  cluster.run_to(levels, 2);
  std::filesystem::remove_all(cluster.local);
  server.stop();
  std::barrier all(static_cast<ptrdiff_t>(cluster.rank_count()));
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().status().code(), StatusCode::io_error);
    EXPECT_EQ(session.restart_points().status().code(), StatusCode::io_error) << "there may be some";
    all.arrive_and_wait();
    if (rank == 0) server.start();
    all.arrive_and_wait();
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(model, model_at(rank, kCells, 2));
    Cluster::go(session, model, 3, 4);
    Cluster::finish(session);
  });
  EXPECT_EQ(steps_at(cluster.far), (Steps{2, 4}));
}

TEST_P(ASessionWithAServerOverTcp, DoesNotAdviseToDropWhatItMayHaveWhole) {
  cluster.run_to(levels, 2);
  for (const std::string& node : cluster.nodes) damage(cluster.node_path(node), 2);
  server.stop();
  const Status refused = cluster.restart_status(levels);
  EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
  server.start();
  EXPECT_NE(cluster.restart_from(levels, 2, 3), "");
}

TEST_P(ASessionWithAServerOverTcp, DoesNotStartAnewWhileItIsAwayAndNothingIsNearer) {
  cluster.run_to(levels, 2);
  std::filesystem::remove_all(cluster.local);
  server.stop();
  const Status refused = cluster.restart_status(levels);
  EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
  EXPECT_TRUE(says(refused.to_string(), "no whole checkpoint is in the levels that can be reached"));
  server.start();
  EXPECT_EQ(cluster.restart_from(levels, 2, 3), "");
}

TEST_P(ASessionWithAServerOverTcp, IsRefusedWithoutTheKey) {
  cluster.key_file = make_key(cluster.place.folder / "other");
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const Status refused = cluster.open(rank, std::move(ranks), levels).status();
    EXPECT_EQ(refused.code(), StatusCode::permission_denied) << refused.to_string();
  });
  cluster.key_file = cluster.place.folder / "ghost";
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const Status missing = cluster.open(rank, std::move(ranks), levels).status();
    EXPECT_EQ(missing.code(), StatusCode::not_found) << missing.to_string();
  });
}
#endif

}  // namespace
}  // namespace varve
