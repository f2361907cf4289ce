#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "runtime/served_store.h"
#include "store/catalog.h"

// A program that removes checkpoints of its job.

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::model_at;
using test::run_and_kill;
using test::steps_at;
using Steps = std::vector<uint64_t>;

/// Three ranks, each a group of its own.
struct Ranks {
  test::SessionPlace place;
  SessionOptions options = place.options();
  Ranks() {
    options.codec = "store";
    options.group = "rank";
  }
  void run(const std::function<void(Session&, Model&, uint32_t rank)>& act) const {
    test::run_ranks(3, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, Cluster::kCells);
      ASSERT_TRUE(test::protect(*session, model).ok());
      act(*session, model, rank);
    });
  }
  static void go(Session& session, Model& model, uint64_t first, uint64_t last, Persistence persistence) {
    for (uint64_t step = first; step <= last; ++step) {
      model.step(step);
      ASSERT_TRUE(session.checkpoint(step, persistence).ok());
    }
  }
};

TEST(Dropping, RemovesOneCheckpointAndLeavesTheOthers) {
  const Ranks ranks;
  ranks.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.restart().ok());
    Ranks::go(session, model, 1, 4, Persistence::now);
    EXPECT_EQ(session.drop(rank).code(), StatusCode::invalid_argument) << "ranks differ";
    EXPECT_EQ(session.drop(7).code(), StatusCode::not_found);
    const Status dropped = session.drop(2);
    EXPECT_TRUE(dropped.ok()) << dropped.to_string();
    EXPECT_EQ(session.drop(2).code(), StatusCode::not_found);
    EXPECT_EQ(session.restart({.exactly = 2}).status().code(), StatusCode::not_found);
    EXPECT_EQ(session.restart().value(), 4u);
    EXPECT_EQ(model, model_at(rank, Cluster::kCells, 4));
    Ranks::go(session, model, 5, 6, Persistence::later);
    EXPECT_TRUE(session.drop(6).ok()) << "what is under way is waited for";
    EXPECT_EQ(session.progress().newest_persistent, 5u);
    EXPECT_TRUE(session.wait().ok());
    EXPECT_EQ(session.progress().newest_persistent, 5u) << "nor is it told again";
    EXPECT_EQ(session.restart().value(), 5u);
    EXPECT_EQ(model, model_at(rank, Cluster::kCells, 5));
    EXPECT_TRUE(session.finish().ok());
    EXPECT_TRUE(session.warnings().empty());
  });
  EXPECT_EQ(steps_at(ranks.place.store), (Steps{1, 3, 4, 5}));
  test::expect_whole(ranks.place.store);
  EXPECT_EQ(ranks.place.memory_files(), 0u);
}

TEST(Dropping, LeavesNothingToBeToldThatHadMadeRoomForIt) {
  Ranks ranks;
  ranks.options.keep_last = 1;
  ranks.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_TRUE(session.restart().ok());
    Ranks::go(session, model, 1, 4, Persistence::now);
    ASSERT_TRUE(session.drop(4).ok());
    const Steps left = steps_at(ranks.place.store);
    EXPECT_EQ(session.progress().newest_persistent, left.empty() ? std::nullopt : std::optional(left.back()));
    EXPECT_EQ(session.restart().value(), session.progress().newest_persistent);
    Ranks::go(session, model, 5, 5, Persistence::now);
    EXPECT_EQ(session.progress().newest_persistent, 5u);
    EXPECT_TRUE(session.finish().ok());
  });
  EXPECT_EQ(steps_at(ranks.place.store), Steps{5});
}

TEST(Dropping, GivesTheSpaceBack) {
  const Ranks ranks;
  const auto stored = [&] {
    uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(ranks.place.store + "/arenas"))
      if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
  };
  ranks.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.restart().ok());
    Ranks::go(session, model, 1, 2, Persistence::now);
    const uint64_t before = rank == 0 ? stored() : 0;
    ASSERT_TRUE(session.drop(1).ok());
    if (rank == 0) {
      EXPECT_LT(stored(), before * 6 / 10);
    }
    EXPECT_TRUE(session.finish().ok());
  });
  test::expect_whole(ranks.place.store);
}

TEST(Dropping, ReachesWhatIsInMemoryAlone) {
  Ranks ranks;
  ranks.options.store.reset();
  ranks.options.levels = "memory; dir:" + ranks.place.store + " every=4";
  ranks.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.restart().ok());
    Ranks::go(session, model, 1, 6, Persistence::later);
    ASSERT_TRUE(session.drop(6).ok());
    const uint64_t step = session.restart().value().value();
    EXPECT_LT(step, 6u);
    EXPECT_GE(step, 4u);
    EXPECT_EQ(model, model_at(rank, Cluster::kCells, step));
    EXPECT_TRUE(session.finish().ok());
  });
}

TEST(Dropping, ReachesWhatADeadRunLeftInMemory) {
  Ranks ranks;
  ranks.options.store.reset();
  ranks.options.levels = "memory; dir:" + ranks.place.store + " every=4";
  run_and_kill([&] {
    std::atomic<int> made = 0;
    ranks.run([&](Session& session, Model& model, uint32_t) {
      ASSERT_TRUE(session.restart().ok());
      Ranks::go(session, model, 1, 4, Persistence::now);
      Ranks::go(session, model, 5, 5, Persistence::later);
      for (++made; made < 3;) std::this_thread::yield();
      ::kill(::getpid(), SIGKILL);
    });
  });
  ranks.run([&](Session& session, Model& model, uint32_t rank) {
    EXPECT_EQ(session.restart_points().value().front().step, 5u);
    ASSERT_TRUE(session.drop(5).ok());
    EXPECT_EQ(session.restart_points().value().front().step, 4u);
    EXPECT_EQ(session.restart().value(), 4u);
    EXPECT_EQ(model, model_at(rank, Cluster::kCells, 4));
    EXPECT_TRUE(session.finish().ok());
  });
  EXPECT_EQ(ranks.place.memory_files(), 0u);
}

TEST(Dropping, ReachesAllNodesAndLevelsAndWhatProtectsThem) {
  const Cluster cluster;
  const std::string levels = "memory; local:" + cluster.local + "; xor:3; dir:" + cluster.far + " every=2";
  cluster.run(levels, [&](uint32_t, RunSession& session, Model& model) {
    ASSERT_TRUE(session.restart().ok());
    Cluster::go(session, model, 1, 6);
    for (const uint64_t step : {uint64_t{2}, uint64_t{3}, uint64_t{6}}) {
      const Status dropped = session.drop(step);
      EXPECT_TRUE(dropped.ok()) << dropped.to_string();
    }
    EXPECT_EQ(session.drop(6).code(), StatusCode::not_found);
    Cluster::finish(session);
    EXPECT_EQ(Cluster::words(session.warnings()), "");
  });
  for (const std::string& node : cluster.nodes) {
    EXPECT_EQ(steps_at(cluster.node_path(node)), (Steps{1, 4, 5})) << node;
    test::expect_whole(cluster.node_path(node));
  }
  EXPECT_EQ(steps_at(cluster.far), (Steps{4, 5})) << "the last one that is left goes everywhere";
  test::expect_whole(cluster.far);
  // What was dropped is not rebuilt, and what stays is protected still.
  std::filesystem::remove_all(cluster.node_path("b"));
  EXPECT_NE(cluster.restart_from(levels, 5, 7).find("rebuilt"), std::string::npos);
  EXPECT_EQ(steps_at(cluster.node_path("b")), (Steps{1, 4, 5, 6, 7}));
}

TEST(Dropping, LeavesAllAsItWasWhileALevelIsAway) {
  const Ranks ranks;
  const std::string socket = ranks.place.folder / "socket", served = ranks.place.folder / "served";
  std::filesystem::create_directory(served);
  test::ServedStore server("unix:" + socket, served);
  SessionOptions options = ranks.options;
  options.store.reset();
  options.levels = "dir:" + ranks.place.store + "; unix:" + socket;
  Ranks with_server;
  with_server.options = options;
  with_server.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_TRUE(session.restart().ok());
    Ranks::go(session, model, 1, 3, Persistence::now);
    EXPECT_TRUE(session.finish().ok());
  });
  server.stop();
  with_server.run([&](Session& session, Model&, uint32_t) {
    EXPECT_EQ(session.restart().value(), 3u);
    const Status refused = session.drop(2);
    EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
    EXPECT_NE(refused.to_string().find(socket), std::string::npos) << refused.to_string();
    session.finish(std::chrono::seconds(10)).ignore("the server is away");
  });
  EXPECT_EQ(steps_at(ranks.place.store), (Steps{1, 2, 3}));
  server.start();
  with_server.run([&](Session& session, Model&, uint32_t) {
    ASSERT_TRUE(session.restart().ok());
    EXPECT_TRUE(session.drop(2).ok());
    EXPECT_TRUE(session.finish().ok());
  });
  EXPECT_EQ(steps_at(ranks.place.store), (Steps{1, 3}));
  EXPECT_EQ(steps_at(served), (Steps{1, 3}));
}

TEST(Dropping, ThatIsKilledTakesNothingElseAlong) {
  for (const int delay_ms : {0, 2, 5, 10, 20, 40, 80}) {
    const Cluster cluster;
    const std::string levels = "local:" + cluster.local + "; xor:3; dir:" + cluster.far;
    run_and_kill([&] {
      std::atomic<uint32_t> ready = 0;
      cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
        ASSERT_TRUE(session.restart().ok());
        Cluster::go(session, model, 1, 4);
        for (++ready; ready < cluster.rank_count();) std::this_thread::yield();
        std::thread killer;
        if (rank == 0) {
          killer = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
            ::kill(::getpid(), SIGKILL);
          });
        }
        session.drop(3).ignore("it is killed");
        session.drop(1).ignore("it is killed");
        if (killer.joinable()) killer.join();
      });
    });
    cluster.restart_from(levels, 4, 5);
    for (const std::string& node : cluster.nodes) {
      const Steps steps = steps_at(cluster.node_path(node));
      for (const uint64_t step : {2u, 4u, 5u}) {
        EXPECT_NE(std::find(steps.begin(), steps.end(), step), steps.end()) << node << ' ' << step << ' ' << delay_ms;
      }
      test::expect_whole(cluster.node_path(node));
    }
    test::expect_whole(cluster.far);
  }
}

}  // namespace
}  // namespace varve
