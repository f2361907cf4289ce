// Sessions of ranks that cannot reach each other any more, as after MPI_Finalize(). test_ends.py has the same with MPI.
#include "comm/ending_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <thread>

#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "runtime/switched_file_system.h"
#include "snapshot/node_note.h"
#include "snapshot/snapshot_reader.h"
#include "store/catalog.h"

namespace varve {
namespace {

using test::Model;
using test::run_ranks;
using test::SessionPlace;

constexpr size_t kCells = 50'000;
constexpr uint32_t kRanks = 3;

class RanksThatEnd final : public Communicator, public EndingRanks {
 public:
  explicit RanksThatEnd(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  void end() {
    if (before_end_) before_end_();
    ended_ = true;
  }
  void end_unannounced() { ended_ = true; }

  bool ended() const override { return ended_; }
  void set_before_end(std::function<void()> call) override { before_end_ = std::move(call); }

  uint32_t rank() const override { return ranks_->rank(); }
  uint32_t rank_count() const override { return ranks_->rank_count(); }
  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override {
    VARVE_TRY(check());
    return ranks_->all_gather(mine);
  }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override {
    VARVE_TRY(check());
    return ranks_->broadcast(roots, root);
  }
  Status all_min(std::span<uint64_t> values) override {
    VARVE_TRY(check());
    return ranks_->all_min(values);
  }
  Status all_max(std::span<uint64_t> values) override {
    VARVE_TRY(check());
    return ranks_->all_max(values);
  }
  Status barrier() override {
    VARVE_TRY(check());
    return ranks_->barrier();
  }
  bool concurrent() const override { return ranks_->concurrent(); }
  Status send(uint32_t to, uint32_t tag, ByteSpan message) override {
    VARVE_TRY(check());
    return ranks_->send(to, tag, message);
  }
  Status receive(uint32_t from, uint32_t tag, MutableByteSpan into) override {
    VARVE_TRY(check());
    return ranks_->receive(from, tag, into);
  }

 private:
  Status check() const { return ended_ ? Status::io_error("the ranks have ended") : Status(); }

  const std::unique_ptr<Communicator> ranks_;
  std::function<void()> before_end_;
  std::atomic<bool> ended_{false};
};

class ASessionWhoseRanksEnd : public testing::Test {
 protected:
  /// Runs `body` on each rank with a session whose first checkpoint is on its way.
  void run(const std::function<void(RanksThatEnd&, Session&)>& body) {
    auto options = place.options();
    options.group = "rank";
    run_ranks(kRanks, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto ending = std::make_unique<RanksThatEnd>(std::move(ranks));
      RanksThatEnd& end = *ending;
      auto session = Session::open(std::move(ending), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      ASSERT_TRUE(session->restart().ok());
      ASSERT_TRUE(session->checkpoint(1).ok());
      body(end, *session);
    });
    EXPECT_EQ(place.memory_files(), 0u);
  }
  std::vector<uint64_t> saved() const {
    const auto store = Store::open(posix_file_system(), place.store).value();
    return Catalog(*store).steps("job").value();
  }

  SessionPlace place;
};

TEST_F(ASessionWhoseRanksEnd, EndsInTime) {
  run([](RanksThatEnd& ranks, Session& session) {
    ranks.end();
    EXPECT_EQ(session.progress().newest_persistent, 1u);
    EXPECT_TRUE(session.finish().ok());
    EXPECT_FALSE(session.due(2));
    EXPECT_EQ(session.checkpoint(2).code(), StatusCode::invalid_argument);
    EXPECT_FALSE(session.report().empty());
  });
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
}

TEST_F(ASessionWhoseRanksEnd, SavesWhatItCanWithoutThem) {
  std::barrier together(kRanks);
  run([&](RanksThatEnd& ranks, Session&) {
    together.arrive_and_wait();
    ranks.end_unannounced();
    // The session's end is next.
  });
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
}

TEST_F(ASessionWhoseRanksEnd, TellsThatTheyHave) {
  std::barrier together(kRanks);
  run([&](RanksThatEnd& ranks, Session& session) {
    together.arrive_and_wait();
    ranks.end_unannounced();
    EXPECT_EQ(session.finish().code(), StatusCode::io_error);
  });
}

TEST(ASessionThatIsLeftByAnException, LetsNobodyWaitForItInACheckpoint) {
  const SessionPlace place;
  auto options = place.options();
  options.group = "node";
  std::latch left(1);
  const auto be_rank = [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_TRUE(session->restart().ok());
    if (rank == 1) throw std::runtime_error("the program fails");
    left.wait();
    const Status told = session->checkpoint(1);
    EXPECT_EQ(told.code(), StatusCode::io_error) << told.to_string();
    EXPECT_NE(told.to_string().find("rank 1"), std::string::npos) << told.to_string();
    throw std::runtime_error("so does this rank");
  };
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    try {
      be_rank(rank, std::move(ranks));
    } catch (const std::runtime_error&) {
    }
    if (rank == 1) left.count_down();
  });
  EXPECT_EQ(place.memory_files(), 0u);
}

TEST(ASessionThatIsLeftByAnException, LeavesWhatIsInMemoryAlone) {
  const SessionPlace place;
  auto options = place.options();
  options.group = "node";
  options.store.reset();
  options.levels = "memory; dir:" + place.store + " every=4";
  std::barrier both(2);
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    try {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      ASSERT_TRUE(session->restart().ok());
      model.step(1);
      ASSERT_TRUE(session->checkpoint(1).ok());
      both.arrive_and_wait();
      throw std::runtime_error("the program fails");
    } catch (const std::runtime_error&) {
    }
  });
  std::vector<Status> damaged;
  const std::vector<FoundNote> notes = find_node_notes(place.memory, damaged).value();
  ASSERT_EQ(notes.size(), 1u);
  const LeftRuns left = find_left_runs(notes.front().speaker.family, {}).value();
  EXPECT_EQ(left.snapshots.size(), 2u);
  EXPECT_TRUE(left.ended.empty()) << "others of the run may be at work on other nodes, and hold its lease";
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 1u);
    EXPECT_EQ(model, test::model_at(rank, kCells, 1));
    EXPECT_TRUE(session->finish().ok());
  });
  EXPECT_EQ(place.memory_files(), 0u);
  EXPECT_EQ(test::steps_at(place.store), std::vector<uint64_t>{1});
}

TEST(ASessionThatIsLeftByAnException, WaitsForNoNodeThatIsToProtectItsSet) {
  test::Cluster cluster;
  cluster.node_ranks = 1;
  test::SwitchedFileSystem files;
  files.only_below(cluster.node_path("a"));
  cluster.files = &files;
  std::latch left(1);
  const auto be_rank = [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = cluster.open(rank, std::move(ranks), "local:" + cluster.local + "; xor:3");
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(rank, test::Cluster::kCells);
    ASSERT_TRUE(protect(**session, model).ok());
    ASSERT_TRUE((*session)->restart().ok());
    if (rank == 0) files.set(test::SwitchedFileSystem::Mode::held);
    ASSERT_TRUE((*session)->checkpoint(1, Persistence::later).ok());
    if (rank != 1) left.wait();
    if (rank == 0) files.set(test::SwitchedFileSystem::Mode::normal);
    throw std::runtime_error("the program fails");
  };
  run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    try {
      be_rank(rank, std::move(ranks));
    } catch (const std::runtime_error&) {
    }
    if (rank == 1) left.count_down();
  });
  for (const std::string& node : cluster.nodes)
    EXPECT_EQ(test::steps_at(cluster.node_path(node)), std::vector<uint64_t>{1}) << node;
}

}  // namespace
}  // namespace varve
