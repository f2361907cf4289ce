// Sessions that go back and make a step anew, where each node has a store of its own: at any moment the old set is
// whole or the new one. Nodes are simulated: ranks are threads, VARVE_NODE says where they are.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/file_system.h"
#include "level/set_completion.h"
#include "runtime/cluster.h"
#include "store/commit.h"

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::protect;
using test::run_and_kill;
using test::run_ranks;
using test::steps_at;
using test::store_at;
using Steps = std::vector<uint64_t>;

/// A node's files, of which a set that takes the place of another one can be kept from its name.
class NodeFiles final : public ForwardingFileSystem {
 public:
  NodeFiles() : ForwardingFileSystem(posix_file_system()) {}
  std::atomic<bool> no_room = false;         ///< no file can be made
  std::atomic<bool> fails_a_commit = false;  ///< the next sync of the names of sets fails
  std::function<Status()> before_replacing;  ///< where it fails, the old set stays
  std::function<void()> after_replacing;
  std::function<void()> before_parts_are_durable, before_failing;

  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
    if (no_room) return Status(StatusCode::no_space, "the disk is full", path);
    return ForwardingFileSystem::create(path, options);
  }
  Status rename(const std::string& from, const std::string& to) override {
    const bool replaces = to.find("/sets/") != std::string::npos;
    if (replaces && before_replacing) VARVE_TRY(before_replacing());
    const Status renamed = ForwardingFileSystem::rename(from, to);
    if (replaces && renamed.ok() && after_replacing) after_replacing();
    return renamed;
  }
  Status sync_directory(const std::string& path) override {
    if (path.ends_with("/parts") && before_parts_are_durable) before_parts_are_durable();
    if (path.find("/sets/") != std::string::npos && fails_a_commit.exchange(false)) {
      if (before_failing) before_failing();
      return Status::io_error("the disk fails", path);
    }
    return ForwardingFileSystem::sync_directory(path);
  }
};

/// Ranks that can be cut off from the others: what these have told each other is not heard here, nor anything after it.
class CutOffRanks final : public Communicator {
 public:
  explicit CutOffRanks(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  void cut_off_when_sets_are_told() { waits_ = true; }

  uint32_t rank() const override { return inner_->rank(); }
  uint32_t rank_count() const override { return inner_->rank_count(); }
  Result<std::vector<std::vector<std::byte>>> all_gather(std::span<const std::byte> mine) override {
    if (is_cut_off_) return none();
    return inner_->all_gather(mine);
  }
  Result<std::vector<std::byte>> broadcast(std::span<const std::byte> roots, uint32_t root) override {
    if (is_cut_off_) return none();
    return inner_->broadcast(roots, root);
  }
  Status all_min(std::span<uint64_t> values) override { return is_cut_off_ ? none() : inner_->all_min(values); }
  Status all_max(std::span<uint64_t> values) override {
    if (is_cut_off_) return none();
    const Status told = inner_->all_max(values);
    is_cut_off_ = waits_ && values.size() >= JobSets::kTold;
    return is_cut_off_ ? none() : told;
  }
  Status barrier() override { return is_cut_off_ ? none() : inner_->barrier(); }
  bool concurrent() const override { return inner_->concurrent(); }
  Status send(uint32_t to, uint32_t tag, std::span<const std::byte> message) override {
    return inner_->send(to, tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, std::span<std::byte> into) override {
    return inner_->receive(from, tag, into);
  }
  void revoke() override { inner_->revoke(); }

 private:
  static Status none() { return Status::io_error("the network is down"); }
  const std::unique_ptr<Communicator> inner_;
  bool waits_ = false, is_cut_off_ = false;
};

struct AStepMadeAnew : testing::Test {
  AStepMadeAnew() {
    for (const std::string& node : cluster.nodes) files.try_emplace(node);
    cluster.files_of_node = [this](const std::string& node) -> FileSystem& { return files.at(node); };
    cluster.run_to(levels, 5);
    number_of_first = Catalog(*store_at(cluster.node_path("a"))).read({"job", 5}).value().number;
  }
  /// All are done with that when it returns.
  void go_back_and_fill_the_disk_of_b(uint32_t rank, RunSession& session) {
    ASSERT_EQ(session.restart({.at_most = 4}).value(), 4u);
    EXPECT_TRUE(session.wait().ok());
    if (rank == 0) files["b"].no_room = true;
    EXPECT_TRUE(session.wait().ok());
  }
  /// Goes back behind step 5, and makes it once more, as the sixth set.
  void make_anew(RunSession& session, Model& model) const {
    ASSERT_EQ(session.restart({.at_most = 4}).value(), 4u);
    model.step(5);
    EXPECT_FALSE(session.checkpoint(5, Persistence::now).ok());
  }
  /// What is only late, or was told before, may be told once more.
  static void end(RunSession& session) { session.finish(std::chrono::minutes(1)).ignore("it tells of step 5"); }
  /// Which set of the job a node has of step 5: the fifth, or a later one.
  uint64_t number_on(const std::string& node) const {
    const uint64_t number = Catalog(*store_at(cluster.node_path(node))).read({"job", 5}).value().number;
    EXPECT_GE(number, number_of_first);
    return number == number_of_first ? 5 : 6;
  }
  std::vector<uint64_t> numbers() const {
    std::vector<uint64_t> numbers;
    for (const std::string& node : cluster.nodes) numbers.push_back(number_on(node));
    return numbers;
  }

  Cluster cluster;
  std::map<std::string, NodeFiles> files;
  const std::string levels = "local:" + cluster.local + " keep=3";
  uint64_t number_of_first = 0;
};

TEST_F(AStepMadeAnew, LeavesTheOldSetOnAllNodesIfOneHasNoRoomForTheNew) {
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    go_back_and_fill_the_disk_of_b(rank, session);
    model.step(5);
    EXPECT_FALSE(session.checkpoint(5, Persistence::now).ok());
    end(session);
  });
  files["b"].no_room = false;
  EXPECT_EQ(numbers(), (Steps{5, 5, 5}));
  for (const std::string& node : cluster.nodes) EXPECT_TRUE(list_parts(*store_at(cluster.node_path(node)))->empty());
  EXPECT_EQ(cluster.restart_from(levels, 5, 6), "");
}

TEST_F(AStepMadeAnew, IsFinishedByTheNextRunIfANodeCouldNotReplaceItsOwn) {
  files["b"].before_replacing = [] { return Status::io_error("the disk does not answer"); };
  cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
    make_anew(session, model);
    end(session);
  });
  files["b"].before_replacing = nullptr;
  EXPECT_EQ(numbers(), (Steps{6, 5, 6}));
  EXPECT_EQ(cluster.restart_from(levels, 5, 5), "");
  EXPECT_EQ(numbers(), (Steps{6, 6, 6}));
  EXPECT_EQ(cluster.restart_from(levels, 5, 6), "");
}

TEST_F(AStepMadeAnew, IsFinishedByTheNextRunIfANodeWasKilledBeforeItReplacedItsOwn) {
  run_and_kill([&] {
    std::latch others(2);
    files["a"].after_replacing = files["c"].after_replacing = [&] { others.count_down(); };
    files["b"].before_replacing = [&]() -> Status {
      others.wait();
      ::kill(::getpid(), SIGKILL);
      return {};
    };
    cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) { make_anew(session, model); });
  });
  EXPECT_EQ(numbers(), (Steps{6, 5, 6}));
  cluster.restart_from(levels, 5, 5);
  EXPECT_EQ(numbers(), (Steps{6, 6, 6}));
  for (const std::string& node : cluster.nodes) test::expect_whole(cluster.node_path(node));
}

TEST(TheFirstStepMadeAnew, IsFinishedByTheNextRun) {
  Cluster cluster;
  const std::string levels = "local:" + cluster.local;
  cluster.run_to(levels, 1);
  // As if the run had been killed when node a alone had saved its part.
  for (const char* node : {"b", "c"}) {
    test::drop(cluster.node_path(node), 1);
    std::filesystem::create_directories(cluster.node_path(node) + "/sets/job");
  }
  std::map<std::string, NodeFiles> files;
  for (const std::string& node : cluster.nodes) files.try_emplace(node);
  cluster.files_of_node = [&](const std::string& node) -> FileSystem& { return files.at(node); };
  files["a"].before_replacing = [] { return Status::io_error("the disk does not answer"); };
  cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
    ASSERT_EQ(session.restart().value(), std::nullopt);
    model.step(1);
    EXPECT_FALSE(session.checkpoint(1, Persistence::now).ok());
    session.finish(std::chrono::minutes(1)).ignore("it tells of step 1");
  });
  files["a"].before_replacing = nullptr;
  cluster.restart_from(levels, 1, 2);
  for (const std::string& node : cluster.nodes) test::expect_whole(cluster.node_path(node));
}

TEST_F(AStepMadeAnew, IsNotMadeByTheNextRunIfNotAllNodesHaveTheirParts) {
  run_and_kill([&] {
    std::latch never(1);
    cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
      go_back_and_fill_the_disk_of_b(rank, session);
      model.step(5);
      ASSERT_TRUE(session.checkpoint(5, Persistence::later).ok());
      if (rank > 0) return never.wait();
      const auto store = store_at(cluster.node_path("a"));
      while (list_parts(*store)->empty() && number_on("a") == 5) std::this_thread::yield();
      ::kill(::getpid(), SIGKILL);
    });
  });
  EXPECT_EQ(numbers(), (Steps{5, 5, 5}));
  EXPECT_EQ(list_parts(*store_at(cluster.node_path("a")))->size(), 1u);
  cluster.restart_from(levels, 5, 6);
  EXPECT_EQ(numbers(), (Steps{5, 5, 5}));
}

TEST_F(AStepMadeAnew, IsMadeOnNoNodeIfRanksOfOneHaveNoSnapshotOfIt) {
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_EQ(session.restart({.at_most = 4}).value(), 4u);
    model.step(5);
    const bool is_on_b = rank / cluster.node_ranks == 1;
    if (is_on_b) {
      ASSERT_TRUE(session.variables().unprotect("field").ok());
      ASSERT_TRUE(session.variables().unprotect("sum").ok());
    }
    EXPECT_EQ(session.checkpoint(5, Persistence::later).ok(), !is_on_b);
    EXPECT_FALSE(session.wait().ok()) << "there is no set of the last checkpoint";
    if (is_on_b) {
      ASSERT_TRUE(protect(session, model).ok());
    }
    model.step(6);
    const Status next = session.checkpoint(6, Persistence::now);
    EXPECT_TRUE(next.ok()) << "nothing waits for it: " << next.to_string();
    Cluster::finish(session);
  });
  EXPECT_EQ(numbers(), (Steps{5, 5, 5}));
  for (const std::string& node : cluster.nodes) EXPECT_TRUE(list_parts(*store_at(cluster.node_path(node)))->empty());
}

TEST_F(AStepMadeAnew, IsFinishedByTheNextRunIfANodeWasCutOffBeforeItHeardThatAllHaveTheirs) {
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto own = std::make_unique<CutOffRanks>(std::move(ranks));
    CutOffRanks& link = *own;
    auto session = cluster.open(rank, std::move(own), levels);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, Cluster::kCells);
    ASSERT_TRUE(protect(**session, model).ok());
    ASSERT_EQ((*session)->restart({.at_most = 4}).value(), 4u);
    model.step(5);
    ASSERT_TRUE((*session)->checkpoint(5, Persistence::later).ok());
    if (rank / cluster.node_ranks == 1) link.cut_off_when_sets_are_told();
    EXPECT_FALSE((*session)->wait().ok());
    end(**session);
  });
  EXPECT_EQ(numbers(), (Steps{6, 5, 6}));
  cluster.restart_from(levels, 5, 5);
  EXPECT_EQ(numbers(), (Steps{6, 6, 6}));
}

TEST_F(AStepMadeAnew, IsNotMadeByWhoAsksMeanwhileWhatThereIs) {
  std::latch listed(1);
  files["b"].before_parts_are_durable = [&] { listed.wait(); };
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_EQ(session.restart({.at_most = 4}).value(), 4u);
    model.step(5);
    ASSERT_TRUE(session.checkpoint(5, Persistence::later).ok());
    for (const std::string& node : cluster.nodes) {
      const auto store = store_at(cluster.node_path(node));
      while (list_parts(*store)->empty() && number_on(node) == 5) std::this_thread::yield();
    }
    ASSERT_TRUE(session.restart_points().ok());
    if (rank == 0) {
      EXPECT_EQ(numbers(), (Steps{5, 5, 5})) << "a power cut could take away what b has";
      listed.count_down();
    }
    EXPECT_TRUE(session.wait().ok());
    Cluster::finish(session);
  });
  EXPECT_EQ(numbers(), (Steps{6, 6, 6}));
}

TEST_F(AStepMadeAnew, DoesNotComeBackWhenItIsDropped) {
  files["b"].before_replacing = [] { return Status::io_error("the disk does not answer"); };
  cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
    make_anew(session, model);
    session.drop(5).ignore("it tells of step 5, too");
    end(session);
  });
  files["b"].before_replacing = nullptr;
  cluster.restart_from(levels, 4, 4);
  for (const std::string& node : cluster.nodes) EXPECT_EQ(steps_at(cluster.node_path(node)), (Steps{3, 4})) << node;
}

/// Makes step 4, of which node b's commit is told to have failed though the set is there, goes on from what it finds,
/// and fails to make step 5. Returns what it went on from: the other node may have dropped its set 4 before.
uint64_t go_on_from_what_was_told_to_have_failed() {
  Cluster cluster;
  std::map<std::string, NodeFiles> files;
  for (const std::string& node : cluster.nodes) files.try_emplace(node);
  cluster.files_of_node = [&](const std::string& node) -> FileSystem& { return files.at(node); };
  const std::string levels = "local:" + cluster.local + " keep=1";
  cluster.run_to(levels, 3);
  files["b"].before_failing = [&] {
    for (int tries = 0; tries < 1000 && steps_at(cluster.node_path("a")).back() != 4; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  std::atomic<uint64_t> taken = 0;
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_EQ(session.restart().value(), 3u);
    if (rank == 0) files["b"].fails_a_commit = true;
    EXPECT_TRUE(session.wait().ok());
    model.step(4);
    EXPECT_FALSE(session.checkpoint(4, Persistence::now).ok());
    taken = session.restart().value().value();
    session.wait().ignore("it may tell of step 4");
    if (rank == 0) files["b"].no_room = true;
    session.wait().ignore("all are done with that");
    model.step(5);
    EXPECT_FALSE(session.checkpoint(5, Persistence::now).ok());
    session.finish(std::chrono::minutes(1)).ignore("it tells of step 5");
  });
  files["b"].no_room = false;
  cluster.run(levels, [&](uint32_t, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), taken.load());
    session.finish(std::chrono::minutes(1)).ignore("");
  });
  return taken;
}

TEST(ASetOfSeveralNodes, StaysThoughItsCommitWasToldToHaveFailedOnceTheRunHasGoneOnFromIt) {
  bool was_there = false;
  for (int round = 0; round < 30 && !was_there && !testing::Test::HasFailure(); ++round)
    was_there = go_on_from_what_was_told_to_have_failed() == 4;
  EXPECT_TRUE(was_there);
}

}  // namespace
}  // namespace varve
