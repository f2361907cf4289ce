// Restarts from sets of which something cannot be read, by one rank, for a moment or for good.
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "runtime/cluster.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::model_at;
using test::run_ranks;
using test::SessionPlace;
using test::store_at;

constexpr size_t kCells = 20'000;

/// Files of these names cannot be read, as if they lay on a bad part of the disk.
class UnreadableFiles final : public ForwardingFileSystem {
 public:
  explicit UnreadableFiles(std::set<std::string> names, std::string below = {})
      : ForwardingFileSystem(posix_file_system()), names_(std::move(names)), below_(std::move(below)) {}

  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    VARVE_ASSIGN(std::unique_ptr<File> file, ForwardingFileSystem::open_read(path));
    if (!names_.contains(base_name(path)) || path.find(below_) == std::string::npos) return file;
    return std::unique_ptr<File>(std::make_unique<Unreadable>(std::move(file)));
  }

 private:
  class Unreadable final : public ForwardingFile {
   public:
    using ForwardingFile::ForwardingFile;
    Result<size_t> read_at(uint64_t, MutableByteSpan) override { return Status::io_error("read: bad disk"); }
  };

  const std::set<std::string> names_;
  const std::string below_;
};

/// By group.
std::vector<ArenaId> arenas_of(const std::string& store_path, uint64_t step) {
  std::vector<ArenaId> arenas;
  const auto store = store_at(store_path);
  for (const GroupRecord& group : Catalog(*store).read({"job", step}).value().groups) arenas.push_back(group.hint);
  return arenas;
}

std::set<std::string> arena_names(const std::string& store_path, uint64_t step) {
  std::set<std::string> names;
  for (const ArenaId& arena : arenas_of(store_path, step)) names.insert(arena_file_name(arena));
  return names;
}

size_t condemned_count(const std::string& store_path) { return list_condemned(*store_at(store_path)).value().size(); }

/// Two ranks with a group each, and a store that both share. The second rank has a file system of its own.
class TwoRanks : public testing::Test {
 protected:
  SessionPlace place;
  ManualClock clock;

  void run(FileSystem& second, const std::function<void(uint32_t rank, RunSession&, Model&)>& body,
           Status* opened = nullptr, FileSystem* first = &posix_file_system()) {
    SessionOptions options = place.options();
    options.group = "rank";
    options.codec = "store";
    run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      SessionEnvironment environment;
      environment.files = rank == 1 ? &second : first;
      environment.sources.environment.clear();
      environment.clock = &clock;
      auto session = RunSession::open(std::move(ranks), options, environment);
      if (opened != nullptr && rank == 1) *opened = session.status();
      if (opened != nullptr && !session.ok()) return;
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(**session, model).ok());
      body(rank, **session, model);
    });
  }
  static void go(RunSession& session, Model& model, uint64_t first, uint64_t last) {
    for (uint64_t step = first; step <= last; ++step) {
      model.step(step);
      const Status made = session.checkpoint(step, Persistence::now);
      EXPECT_TRUE(made.ok()) << made.to_string();
    }
    const Status finished = session.finish(std::chrono::minutes(1));
    EXPECT_TRUE(finished.ok()) << finished.to_string();
  }
  void save_three() {
    run(posix_file_system(), [](uint32_t, RunSession& session, Model& model) { go(session, model, 1, 3); });
  }
};

TEST_F(TwoRanks, RestartFromTheNewestSetWhicheverReadOfOneOfThemFailsOnce) {
  save_three();
  uint64_t opening = 0, all = 0;
  {
    FaultyFileSystem counting(posix_file_system());
    run(counting, [&](uint32_t rank, RunSession& session, Model&) {
      if (rank == 1) opening = counting.operation_count().reading;
      EXPECT_EQ(session.restart().value(), 3u);
      if (rank == 1) all = counting.operation_count().reading;
      EXPECT_TRUE(session.finish(std::chrono::minutes(1)).ok());
    });
  }
  ASSERT_GT(all, opening + 5);
  uint32_t opened_count = 0;
  for (uint64_t operation = 0; operation < all; ++operation) {
    SCOPED_TRACE(operation);
    FaultyFileSystem faulty(posix_file_system(), {{.kind = FaultKind::failed_read, .at_operation = operation}});
    Status opened;
    run(
        faulty,
        [&](uint32_t rank, RunSession& session, Model& model) {
          if (rank == 1) ++opened_count;
          const auto from = session.restart();
          ASSERT_TRUE(from.ok()) << from.status().to_string();
          EXPECT_EQ(*from, 3u) << faulty.trace();
          EXPECT_EQ(model, model_at(rank, kCells, 3));
          EXPECT_TRUE(session.finish(std::chrono::minutes(1)).ok());
        },
        &opened);
    EXPECT_EQ(condemned_count(place.store), 0u);
    EXPECT_TRUE(opened.ok() || opened.code() == StatusCode::io_error) << opened.to_string();
  }
  EXPECT_GE(opened_count, all - opening);
}

TEST_F(TwoRanks, GoOnFromAnOlderSetThanOneThatCannotBeReadAndSaveItsStepAgain) {
  save_three();
  const ArenaId bad_arena = arenas_of(place.store, 3).back();
  UnreadableFiles bad({arena_file_name(bad_arena)});
  run(bad, [&](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(model, model_at(rank, kCells, 2));
    const std::string told = Cluster::words(session.warnings());
    EXPECT_NE(told.find("step 3"), std::string::npos) << told;
    EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
    go(session, model, 3, 4);
  });
  EXPECT_EQ(condemned_count(place.store), 0u) << "what cannot be read may be whole";
  EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3, 4}));
  // Nothing that is new rests on what rank 1 could not read.
  ASSERT_TRUE(posix_file_system().remove(store_at(place.store)->arena_path(bad_arena)).ok());
  test::expect_whole(place.store);
  run(posix_file_system(), [](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 4u);
    EXPECT_EQ(model, model_at(rank, kCells, 4));
  });
}

TEST_F(TwoRanks, FindASetAgainThatCouldNotBeReadIfNothingHasTakenItsPlace) {
  save_three();
  UnreadableFiles bad(arena_names(place.store, 3));
  run(bad, [&](uint32_t, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_TRUE(session.finish(std::chrono::minutes(1)).ok());
  });
  run(posix_file_system(), [](uint32_t rank, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 3u);
    EXPECT_EQ(model, model_at(rank, kCells, 3));
  });
}

TEST_F(TwoRanks, CountTheirSetsBehindThoseThatCannotBeReadAlsoWithoutARestart) {
  save_three();
  UnreadableFiles bad({"3.set"});
  const auto go_on = [](uint32_t rank, RunSession& session, Model& model) {
    go(session, model, 4, 5);
    if (rank == 0) {
      EXPECT_FALSE(session.warnings().empty());
    }
  };
  run(bad, go_on, nullptr, &bad);
  const auto store = store_at(place.store);
  for (const uint64_t step : {4, 5}) EXPECT_GE(Catalog(*store).read({"job", step})->number, step);
  run(posix_file_system(), [](uint32_t, RunSession& session, Model&) { EXPECT_EQ(session.restart().value(), 5u); });
}

TEST_F(TwoRanks, SayThatNothingCouldBeReadRatherThanThatAllIsDamaged) {
  save_three();
  std::set<std::string> names;
  for (const uint64_t step : {1, 2, 3}) names.merge(arena_names(place.store, step));
  UnreadableFiles bad(names);
  run(bad, [&](uint32_t, RunSession& session, Model&) {
    const Status failed = session.restart().status();
    EXPECT_EQ(failed.code(), StatusCode::io_error) << failed.to_string();
  });
  EXPECT_EQ(condemned_count(place.store), 0u);
  EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(ARunThatGoesOn, SaysThatTheNewestCannotBeReadBeforeItTakesWhatWasRejected) {
  Cluster cluster;
  const std::string levels = "dir:" + cluster.far;
  cluster.run(levels, [](uint32_t, RunSession& session, Model& model) {
    Cluster::go(session, model, 1, 2);
    Cluster::go(session, model, 10, 10);
    Cluster::finish(session);
  });
  cluster.run(levels, [](uint32_t, RunSession& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 10u);
    EXPECT_EQ(session.reject().value(), 2u);
    Cluster::go(session, model, 3, 3);
    Cluster::finish(session);
  });
  UnreadableFiles bad({"3.set"});
  cluster.files = &bad;
  cluster.run(levels, [](uint32_t rank, RunSession& session, Model&) {
    EXPECT_EQ(session.restart().value(), 10u);
    const std::string told = Cluster::words(session.warnings());
    if (rank == 0) {
      EXPECT_NE(told.find("step 3 in the store was passed over"), std::string::npos) << told;
    }
    Cluster::finish(session);
  });
  cluster.files = &posix_file_system();
  cluster.restart_from(levels, 3, 4);
}

TEST(NodesWithStoresOfTheirOwn, GoOnFromAnOlderSetThanOneThatANodeCannotRead) {
  for (const char* parity : {"", "; xor:3"}) {
    SCOPED_TRACE(parity);
    Cluster cluster;
    const std::string levels = "memory; local:" + cluster.local + parity;
    cluster.run_to(levels, 3);
    UnreadableFiles bad(arena_names(cluster.node_path("b"), 3), "node-b");
    cluster.files = &bad;
    if (*parity == 0) {
      cluster.restart_from(levels, 2, 4);
    } else {
      // The redundancy has it rebuilt, or at least the same is saved again.
      cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
        const auto from = session.restart();
        ASSERT_TRUE(from.ok()) << from.status().to_string();
        EXPECT_EQ(model, model_at(rank, Cluster::kCells, from->value()));
        Cluster::go(session, model, from->value() + 1, 4);
        Cluster::finish(session);
      });
    }
    for (const std::string& node : cluster.nodes) {
      EXPECT_EQ(condemned_count(cluster.node_path(node)), 0u) << node;
      EXPECT_EQ(test::steps_at(cluster.node_path(node)), (std::vector<uint64_t>{1, 2, 3, 4})) << node;
      test::expect_whole(cluster.node_path(node));
    }
    cluster.files = &posix_file_system();
    cluster.restart_from(levels, 4, 4);
  }
}

}  // namespace
}  // namespace varve
