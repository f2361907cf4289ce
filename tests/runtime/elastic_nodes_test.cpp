// Runs that go on with another number of ranks, on other nodes, from what each node has: its own store, its memory.
// Nodes are simulated: ranks are threads, VARVE_NODE says where they are.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "engine/transfer.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "store/catalog.h"

namespace varve {
namespace {

using test::Cluster;
using test::run_and_kill;
using test::run_ranks;
using test::SessionPlace;

constexpr uint64_t kRows = 53, kColumns = 41, kMovers = 700;

/// So many ranks on so many nodes, in turns.
struct Shape {
  uint32_t ranks = 1, nodes = 1;
  std::string node_of(uint32_t rank) const { return std::string(1, static_cast<char>('a' + rank % nodes)); }
};

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (uint32_t ranks = 1; ranks <= 6; ++ranks) {
    for (uint32_t nodes = 1; nodes <= std::min(ranks, 3u); ++nodes) shapes.push_back({ranks, nodes});
  }
  return shapes;
}

/// What one rank has of a state that as a whole depends on the step alone: rows and columns of a field, a time that all
/// have alike, particles in the order of ranks, movers that are their owner's, with their marks, and what is nobody's
/// after a restart.
struct State {
  Shape shape;
  uint32_t rank;
  ArrayShape box;
  std::vector<uint64_t> field;
  double time = 0;
  std::vector<uint64_t> table;  ///< on all alike
  std::vector<uint32_t> particles, movers, marks;
  std::vector<uint64_t> scratch;

  State(const Shape& of, uint32_t own_rank) : shape(of), rank(own_rank) {
    // Some are divided in rows, some in columns.
    const uint64_t whole = shape.ranks % 2 == 0 ? kRows : kColumns;
    const uint64_t begin = whole * rank / shape.ranks, end = whole * (rank + 1) / shape.ranks;
    box.global_cells = {kRows, kColumns};
    box.cells =
        shape.ranks % 2 == 0 ? std::vector<uint64_t>{end - begin, kColumns} : std::vector<uint64_t>{kRows, end - begin};
    box.global_offset = shape.ranks % 2 == 0 ? std::vector<uint64_t>{begin, 0} : std::vector<uint64_t>{0, begin};
    field.resize(box.cells[0] * box.cells[1]);
  }

  template <class T>
  static Status protect_vector(VariableTable& table, std::string_view name, std::vector<T>& values) {
    return table.protect_vector(
        name, element_type_of<T>(), [&values] { return std::as_bytes(std::span(values)); },
        [&values](uint64_t count) {
          values.assign(count, 0);
          return std::as_writable_bytes(std::span(values));
        });
  }
  Status protect(VariableTable& variables) {
    VARVE_TRY(variables.protect_array("field", element_type_of<uint64_t>(), field.data(), field.size(), box));
    VARVE_TRY(variables.protect_scalar("time", element_type_of<double>(), &time));
    VARVE_TRY(protect_vector(variables, "table", table));
    VARVE_TRY(protect_vector(variables, "particles", particles));
    VARVE_TRY(protect_vector(variables, "movers", movers));
    VARVE_TRY(protect_vector(variables, "marks", marks));
    VARVE_TRY(protect_vector(variables, "scratch", scratch));
    VARVE_TRY(variables.redistribute("table", Redistribution::same));
    VARVE_TRY(variables.redistribute("particles", Redistribution::evenly));
    VARVE_TRY(variables.redistribute("scratch", Redistribution::ignore));
    ElementOwners owners;
    owners.owner = [ranks = shape.ranks](const std::byte* element) {
      uint32_t mover = 0;
      std::memcpy(&mover, element, sizeof mover);
      return mover % ranks;
    };
    return variables.redistribute("movers", std::move(owners), {"marks"});
  }

  uint64_t cell(uint64_t i, uint64_t step) const {
    const uint64_t row = box.global_offset[0] + i / box.cells[1], column = box.global_offset[1] + i % box.cells[1];
    // Some chunks are patterns.
    return row % 16 < 3 ? step : (row * kColumns + column) * 0x9E3779B97F4A7C15 + step;
  }
  void set(uint64_t step) {
    for (uint64_t i = 0; i < field.size(); ++i) field[i] = cell(i, step);
    time = 0.5 * static_cast<double>(step);
    table.resize(300);
    std::iota(table.begin(), table.end(), step);
    particles.assign(10 * (rank + 1), 0);
    std::iota(particles.begin(), particles.end(), 5 * rank * (rank + 1));
    for (uint32_t mover = 0; mover < kMovers; ++mover) {
      if (mover % shape.ranks != rank) continue;
      movers.push_back(mover);
      marks.push_back(mover + static_cast<uint32_t>(step));
    }
    scratch.assign(5, rank);
  }
  void expect(uint64_t step, uint32_t before) const {
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < field.size(); ++i) wrong += field[i] != cell(i, step);
    EXPECT_EQ(wrong, 0u) << "of rank " << rank;
    EXPECT_EQ(time, 0.5 * static_cast<double>(step));
    State now(shape, rank);
    now.set(step);
    EXPECT_EQ(table, now.table);
    std::set<std::pair<uint32_t, uint32_t>> mine, expected;
    for (size_t i = 0; i < std::min(movers.size(), marks.size()); ++i) mine.emplace(movers[i], marks[i]);
    for (size_t i = 0; i < now.movers.size(); ++i) expected.emplace(now.movers[i], now.marks[i]);
    EXPECT_EQ(mine, expected);
    EXPECT_EQ(movers.size(), expected.size());
    if (before == shape.ranks) return;
    EXPECT_TRUE(scratch.empty());
    const uint64_t total = 5 * before * (before + 1), each = total / shape.ranks, more = total % shape.ranks;
    std::vector<uint32_t> share(each + (rank < more ? 1 : 0));
    std::iota(share.begin(), share.end(), static_cast<uint32_t>(each * rank + std::min<uint64_t>(rank, more)));
    EXPECT_EQ(particles, share) << "of rank " << rank;
  }
};

/// Ranks that can send no messages to each other, only talk all together.
class WithoutMessages final : public Communicator {
 public:
  explicit WithoutMessages(std::unique_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}
  uint32_t rank() const override { return ranks_->rank(); }
  uint32_t rank_count() const override { return ranks_->rank_count(); }
  Result<std::vector<ByteVector>> all_gather(ByteSpan mine) override { return ranks_->all_gather(mine); }
  Result<ByteVector> broadcast(ByteSpan roots, uint32_t root) override { return ranks_->broadcast(roots, root); }
  Status all_min(std::span<uint64_t> values) override { return ranks_->all_min(values); }
  Status all_max(std::span<uint64_t> values) override { return ranks_->all_max(values); }
  Status barrier() override { return ranks_->barrier(); }
  bool concurrent() const override { return false; }
  Status send(uint32_t, uint32_t, ByteSpan) override { return Status::unsupported("there are no messages"); }
  Status receive(uint32_t, uint32_t, MutableByteSpan) override { return Status::unsupported("there are no messages"); }
  void revoke() override { ranks_->revoke(); }

 private:
  const std::unique_ptr<Communicator> ranks_;
};

class RunsOnNodes : public testing::Test {
 protected:
  void run(const Shape& shape, const std::function<void(RunSession&, State&)>& act) const {
    run_ranks(shape.ranks, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      SessionOptions options = place.options();
      options.job = job;
      options.store.reset();
      options.levels = levels;
      options.group = "node";
      options.codec = "store";
      SessionEnvironment environment;
      environment.sources.environment = {{"VARVE_NODE", shape.node_of(rank)}};
      if (!messages) ranks = std::make_unique<WithoutMessages>(std::move(ranks));
      const auto session = RunSession::open(std::move(ranks), options, environment);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      State state(shape, rank);
      const Status is_protected = state.protect((*session)->variables());
      ASSERT_TRUE(is_protected.ok()) << is_protected.to_string();
      act(**session, state);
    });
  }
  /// Steps first to last, from nothing or from what is there.
  void save(const Shape& shape, uint64_t first, uint64_t last) const {
    run(shape, [&](RunSession& session, State& state) {
      if (first == 1) {
        EXPECT_EQ(session.restart().value(), std::nullopt);
      } else {
        EXPECT_EQ(session.restart().value(), first - 1);
      }
      for (uint64_t step = first; step <= last; ++step) {
        state.movers.clear();
        state.marks.clear();
        state.set(step);
        const Status made = session.checkpoint(step, Persistence::now);
        EXPECT_TRUE(made.ok()) << made.to_string();
      }
      Cluster::finish(session);
    });
  }
  /// Step 1 in the stores, and step 2 in memory alone.
  void save_and_kill(const Shape& shape) const {
    run_and_kill([&] {
      std::atomic<uint32_t> made = 0;
      run(shape, [&](RunSession& session, State& state) {
        state.set(1);
        ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
        state.movers.clear();
        state.marks.clear();
        state.set(2);
        ASSERT_TRUE(session.checkpoint(2, Persistence::later).ok());
        if (++made == shape.ranks) ::kill(::getpid(), SIGKILL);
        ::pause();
      });
    });
  }
  /// What rank 0 was told, but for what is nobody's.
  std::string expect(const Shape& shape, uint64_t step, uint32_t before) const {
    std::string told;
    run(shape, [&](RunSession& session, State& state) {
      const auto from = session.restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      ASSERT_EQ(*from, step);
      state.expect(step, before);
      Cluster::finish(session);
      std::vector<Status> warnings = session.warnings();
      std::erase_if(warnings, [](const Status& each) { return each.subject() == "variable 'scratch'"; });
      if (state.rank == 0) told = Cluster::words(warnings);
    });
    return told;
  }
  Status restart_status(const Shape& shape) const {
    std::vector<Status> said(shape.ranks);
    run(shape, [&](RunSession& session, State& state) { said[state.rank] = session.restart().status(); });
    for (const Status& each : said) EXPECT_EQ(each.code(), said.front().code()) << each.to_string();
    return said.front();
  }
  std::string node_path(char node) const { return local + "/node-" + node; }
  void lose(char node) const { std::filesystem::remove_all(node_path(node)); }

  SessionPlace place;
  std::string local = place.folder / "local", far = place.folder / "far", levels = "local:" + local;
  std::string job = "job";
  bool messages = true;
};

/// A place of its own for each pair.
class AnElasticRestartOverNodes : public RunsOnNodes {};

TEST_F(AnElasticRestartOverNodes, GoesFromTheStoresOfAnyNodesToAnyOthers) {
  for (const Shape& before : all_shapes()) {
    local = place.folder / ("local-" + std::to_string(before.ranks) + "-" + std::to_string(before.nodes));
    levels = "local:" + local;
    save(before, 1, 2);
    for (const Shape& after : all_shapes()) {
      // Nobody has what lies on nodes that are not there.
      if (after.nodes < before.nodes) continue;
      SCOPED_TRACE(testing::Message() << before.ranks << " on " << before.nodes << " to " << after.ranks << " on "
                                      << after.nodes);
      EXPECT_EQ(expect(after, 2, before.ranks), "");
      if (HasFailure()) return;
    }
  }
}

TEST_F(AnElasticRestartOverNodes, DoesNotTakeAnOlderSetOfTheSameStepForTheOneOfWhichSomeNodesHaveTheirParts) {
  // Three ranks on one node make steps 1 to 3; four on two nodes go back to 1, and make 2 and 3 anew.
  const std::string other = place.folder / "other", own = local;
  local = other, levels = "local:" + local;
  save({3, 1}, 1, 3);
  local = own, levels = "local:" + local;
  save({3, 1}, 1, 3);
  const Shape wide{4, 2};
  run(wide, [&](RunSession& session, State& state) {
    ASSERT_EQ(session.restart({.at_most = 1}).value(), 1u);
    for (const uint64_t step : {uint64_t{2}, uint64_t{3}}) {
      state.movers.clear();
      state.marks.clear();
      state.set(100 + step);
      ASSERT_TRUE(session.checkpoint(step, Persistence::now).ok());
    }
    Cluster::finish(session);
  });
  // As if node a had not come to replace its set 3: it has that of the first course.
  const auto first = Store::open(posix_file_system(), other + "/node-a").value();
  const auto second = Store::open(posix_file_system(), node_path('a')).value();
  ASSERT_TRUE(Catalog(*second).remove({"job", 3}).ok());
  ASSERT_TRUE(copy_set(*first, *second, {"job", 3}).ok());
  run(wide, [&](RunSession& session, State& state) {
    ASSERT_EQ(session.restart().value(), 2u);
    state.expect(102, 4);
  });
}

TEST_F(AnElasticRestartOverNodes, NeedsNoMessagesBetweenRanks) {
  messages = false;
  save({4, 2}, 1, 1);
  EXPECT_EQ(expect({6, 3}, 1, 4), "");
  EXPECT_EQ(expect({2, 2}, 1, 4), "");
}

TEST_F(AnElasticRestartOverNodes, TakesWhatAKilledRunLeftInTheMemoryOfItsNodes) {
  for (const Shape& before : all_shapes()) {
    for (const Shape& after : all_shapes()) {
      if (after.nodes < before.nodes) continue;
      SCOPED_TRACE(testing::Message() << before.ranks << " on " << before.nodes << " to " << after.ranks << " on "
                                      << after.nodes);
      local = place.folder / ("local-" + std::to_string(before.ranks) + std::to_string(before.nodes) +
                              std::to_string(after.ranks) + std::to_string(after.nodes));
      levels = "memory; local:" + local;
      save_and_kill(before);
      EXPECT_EQ(expect(after, 2, before.ranks), "");
      if (HasFailure()) return;
      std::filesystem::remove_all(local);
    }
  }
}

TEST_F(AnElasticRestartOverNodes, GoesOnAndComesBack) {
  save({5, 3}, 1, 2);
  save({4, 3}, 3, 4);
  save({6, 3}, 5, 6);
  EXPECT_EQ(expect({5, 3}, 6, 6), "");
  save({3, 3}, 7, 7);
  EXPECT_EQ(expect({6, 3}, 7, 3), "");
}

TEST_F(AnElasticRestartOverNodes, LeavesNodesAloneThatHaveAStepOfAnotherRun) {
  save({3, 3}, 1, 3);
  std::filesystem::copy(node_path('c'), place.folder / "kept", std::filesystem::copy_options::recursive);
  for (const char node : {'a', 'b', 'c'}) lose(node);
  save({2, 2}, 1, 3);
  std::filesystem::rename(place.folder / "kept", node_path('c'));
  EXPECT_EQ(expect({6, 3}, 3, 2), "") << "all of it is on two of the nodes";
  test::drop(node_path('b'), 3);
  const std::string told = expect({6, 3}, 2, 2);
  EXPECT_NE(told.find("different runs"), std::string::npos) << told;
}

TEST_F(AnElasticRestartOverNodes, SaysWhatIsLostAndTakesAnOlderStepOrAFartherLevel) {
  levels = "local:" + local + "; dir:" + far;
  save({6, 3}, 1, 3);
  test::drop(far, 3);
  test::drop(node_path('b'), 3);
  const std::string told = expect({4, 3}, 2, 6);
  EXPECT_NE(told.find("step 3 in local:"), std::string::npos) << told;
  EXPECT_NE(told.find("made by 6 ranks, and the nodes of this run have the parts of 4: that of rank 1 is missing"),
            std::string::npos)
      << told;
  lose('b');
  const std::string farther = expect({4, 2}, 2, 6);
  EXPECT_NE(farther.find("step 2 in local:"), std::string::npos) << farther;
  lose('a');
  std::filesystem::remove_all(far);
  levels = "local:" + local;
  EXPECT_EQ(restart_status({4, 3}).code(), StatusCode::corrupt);
}

class AnElasticRestartWithRedundancy : public RunsOnNodes {
 protected:
  size_t folders() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(local), {})); }
  /// A run of six ranks on three nodes makes steps 1 and 2, and one of four on two nodes is killed that goes on.
  void leave_a_stand_in() const {
    save({6, 3}, 1, 2);
    run_and_kill([&] {
      std::atomic<uint32_t> begun = 0;
      run({4, 2}, [&](RunSession& session, State& state) {
        ASSERT_EQ(session.restart().value(), 2u);
        state.expect(2, 6);
        if (++begun == 4) ::kill(::getpid(), SIGKILL);
        ::pause();
      });
    });
    ASSERT_EQ(folders(), 4u);
  }
};

TEST_F(AnElasticRestartWithRedundancy, RebuildsWhatANodeHasLostForAnotherNumberOfRanks) {
  for (const char* scheme : {"partner", "xor:3", "rs:2+1"}) {
    SCOPED_TRACE(scheme);
    local = place.folder / scheme;
    levels = "local:" + local + "; " + scheme;
    save({6, 3}, 1, 3);
    lose('b');
    const std::string told = expect({4, 3}, 3, 6);
    EXPECT_NE(told.find("node b was rebuilt"), std::string::npos) << told;
    save({3, 3}, 4, 5);
    EXPECT_EQ(expect({6, 3}, 5, 3), "");
  }
}

TEST_F(AnElasticRestartWithRedundancy, TakesFewerNodesThanThereWere) {
  levels = "local:" + local + "; partner";
  for (const auto& [before, after] : {std::pair(Shape{6, 3}, Shape{4, 2}), {{4, 4}, {2, 2}}, {{5, 4}, {6, 3}}}) {
    SCOPED_TRACE(testing::Message() << before.nodes << " to " << after.nodes);
    save(before, 1, 3);
    // Also where their stores are lost, and not only away.
    if (before.ranks == 4) {
      lose('c');
      lose('d');
    }
    const std::string told = expect(after, 3, before.ranks);
    EXPECT_NE(told.find("was rebuilt in the place of node"), std::string::npos) << told;
    EXPECT_EQ(folders(), before.ranks == 4 ? 2u : before.nodes) << "what stood in for others is gone";
    save(after, 4, 5);
    EXPECT_EQ(expect({5, after.nodes}, 5, after.ranks).find("step 5"), std::string::npos);
    std::filesystem::remove_all(local);
  }
}

TEST_F(AnElasticRestartWithRedundancy, TakesWhatStandsInForANodeFromARunThatWasKilled) {
  levels = "local:" + local + "; partner";
  leave_a_stand_in();
  EXPECT_EQ(expect({2, 2}, 2, 6), "") << "nothing has to be rebuilt again";
  EXPECT_EQ(folders(), 3u);
  EXPECT_EQ(expect({3, 3}, 2, 6), "");
}

TEST_F(AnElasticRestartWithRedundancy, LeavesAloneWhatStandsInForANodeForAnotherJob) {
  levels = "local:" + local + "; partner";
  leave_a_stand_in();
  job = "job-1";
  save({3, 3}, 1, 1);
  EXPECT_EQ(folders(), 4u);
  job = "job";
  EXPECT_EQ(expect({2, 2}, 2, 6), "") << "nothing has to be rebuilt again";
  EXPECT_EQ(folders(), 3u);
}

TEST_F(AnElasticRestartWithRedundancy, SaysThatTooMuchIsLost) {
  levels = "local:" + local + "; partner";
  save({6, 3}, 1, 2);
  // A partner of the one that is not there.
  lose('b');
  const Status said = restart_status({4, 2});
  EXPECT_EQ(said.code(), StatusCode::corrupt) << said.to_string();
  EXPECT_EQ(folders(), 3u);
}

/// Damages what a set's group has written for itself.
void damage(const std::string& path, uint64_t step) {
  const auto store = test::store_at(path);
  const std::string arena = store->arena_path(Catalog(*store).read({"job", step}).value().groups.at(0).hint);
  std::fstream file(arena, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(arena) / 2));
  file << "damaged!damaged!damaged!damaged!";
}

TEST_F(AnElasticRestartOverNodes, TakesAnOlderStepIfWhatAnotherNodeHasIsDamaged) {
  for (const bool with_messages : {true, false}) {
    messages = with_messages;
    local = place.folder / (with_messages ? "local-1" : "local-2");
    levels = "local:" + local;
    save({6, 3}, 1, 3);
    damage(node_path('b'), 3);
    const std::string told = expect({4, 3}, 2, 6);
    EXPECT_NE(told.find("step 3 in local:"), std::string::npos) << told;
    EXPECT_NE(told.find("damaged on"), std::string::npos) << told;
    EXPECT_EQ(expect({5, 3}, 2, 6).find("cannot"), std::string::npos);
  }
}

}  // namespace
}  // namespace varve
