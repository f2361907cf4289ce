// What a run that goes on from ranks of another number, or with other places, would lose: it is said, or it stays.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "core/cell_box.h"
#include "core/sync.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"

namespace varve {
namespace {

using test::run_and_kill;
using test::run_ranks;
using test::SessionPlace;

/// Of a line of cells, which each rank has from its own border to the next rank's.
using Borders = std::vector<uint64_t>;

constexpr uint64_t kCells = 40;

struct Particle {
  double at;
  uint64_t id;
};

/// What ranks have said, or have, whichever thread they are.
template <class T>
class OfRanks {
 public:
  void add(T value) {
    const MutexLock lock(mutex_);
    values_.push_back(std::move(value));
  }
  std::vector<T> take() { return std::move(values_); }

 private:
  Mutex mutex_;
  std::vector<T> values_;
};

class ElasticLosses : public testing::Test {
 protected:
  ArrayShape shape_of(const Borders& borders, uint32_t rank, uint64_t whole = kCells) const {
    ArrayShape shape;
    shape.cells = {borders[rank + 1] - borders[rank]};
    shape.global_cells = {whole};
    shape.global_offset = {borders[rank]};
    return shape;
  }
  void run(uint32_t rank_count, const std::function<void(Session&, uint32_t)>& act) const {
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      act(*session, rank);
    });
  }
  /// Runs that leave a checkpoint in memory alone.
  void run_until_killed(uint32_t rank_count, const std::function<void(Session&, uint32_t)>& protect) {
    options.levels = "memory; dir:" + place.store + " every=1000";
    options.store.reset();
    run_and_kill([&] {
      std::atomic<uint32_t> made = 0;
      run(rank_count, [&](Session& session, uint32_t rank) {
        protect(session, rank);
        ASSERT_TRUE(session.restart().ok());
        ASSERT_TRUE(session.checkpoint(2).ok());
        while (session.progress().newest_snapshot.value_or(0) < 2) std::this_thread::yield();
        if (++made == rank_count) ::kill(::getpid(), SIGKILL);
        ::pause();
      });
    });
  }
  /// What the line's cells, and the particles in them, are on ranks with other borders.
  void save_line(const Borders& borders) {
    run(static_cast<uint32_t>(borders.size() - 1), [&](Session& session, uint32_t rank) {
      std::vector<double> line;
      std::vector<Particle> particles;
      for (uint64_t cell = borders[rank]; cell < borders[rank + 1]; ++cell) {
        line.push_back(static_cast<double>(cell));
        particles.push_back({static_cast<double>(cell) + 0.5, cell});
      }
      protect_line(session, rank, borders, line, particles);
      ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
      EXPECT_TRUE(session.finish().ok());
    });
  }
  void protect_line(Session& session, uint32_t rank, const Borders& borders, std::vector<double>& line,
                    std::vector<Particle>& particles) const {
    ASSERT_TRUE(session.protect("line", std::span(line), shape_of(borders, rank)).ok());
    ASSERT_TRUE(session.protect("particles", particles).ok());
    const auto cell_of = [](const Particle& particle, std::span<uint64_t> cell) {
      cell[0] = static_cast<uint64_t>(particle.at);
    };
    ASSERT_TRUE(session.redistribute_by_cell<Particle>("particles", "line", cell_of).ok());
  }
  static bool says(const std::vector<Status>& warnings, const std::string& words) {
    return std::any_of(warnings.begin(), warnings.end(),
                       [&](const Status& warning) { return warning.to_string().find(words) != std::string::npos; });
  }
  static std::string text(const std::vector<Status>& warnings) { return test::Cluster::words(warnings); }

  SessionPlace place;
  SessionOptions options = place.options();
};

TEST_F(ElasticLosses, WhatIsIgnoredIsNotSaidToBeMissing) {
  const auto protect = [this](Session& session, int& id, uint32_t rank, const Borders& borders,
                              std::vector<double>& line) {
    line.assign(borders[rank + 1] - borders[rank], -1.0);
    ASSERT_TRUE(session.protect("id", id).ok());
    ASSERT_TRUE(session.protect("line", std::span(line), shape_of(borders, rank)).ok());
    for (const char* name : {"id", "line"}) ASSERT_TRUE(session.redistribute(name, Redistribution::ignore).ok());
  };
  run(2, [&](Session& session, uint32_t rank) {
    int id = static_cast<int>(rank);
    std::vector<double> line;
    protect(session, id, rank, {0, 20, 40}, line);
    ASSERT_TRUE(session.checkpoint(2, Persistence::now).ok());
    EXPECT_TRUE(session.finish().ok());
  });
  run(1, [&](Session& session, uint32_t rank) {
    int id = -1;
    std::vector<double> line;
    protect(session, id, rank, {0, 30}, line);
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(id, -1);
    EXPECT_EQ(line, std::vector<double>(30, -1.0));
    EXPECT_EQ(text(session.warnings()), "");
  });
}

TEST_F(ElasticLosses, CellsThatNobodyProtectsAreToldAndStayInMemory) {
  const Borders whole{0, 20, 40}, less{0, 19, 38};
  const auto protect = [this](Session& session, uint32_t rank, const Borders& borders, std::vector<double>& line) {
    line.assign(borders[rank + 1] - borders[rank], rank + 1.0);
    ASSERT_TRUE(session.protect("line", std::span(line), shape_of(borders, rank)).ok());
  };
  run_until_killed(2, [&](Session& session, uint32_t rank) {
    static thread_local std::vector<double> line;
    protect(session, rank, whole, line);
  });
  OfRanks<Status> told;
  run(2, [&](Session& session, uint32_t rank) {
    std::vector<double> line;
    protect(session, rank, less, line);
    EXPECT_EQ(session.restart().value(), 2u);
    for (const Status& warning : session.warnings()) told.add(warning);
    EXPECT_TRUE(session.finish().ok());
  });
  const std::vector<Status> warnings = told.take();
  EXPECT_TRUE(says(warnings, "its cells from (38) on are in the checkpoint, but no rank protects them"))
      << text(warnings);
  run(2, [&](Session& session, uint32_t rank) {
    std::vector<double> line;
    protect(session, rank, whole, line);
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(line, std::vector<double>(20, rank + 1.0));
    EXPECT_TRUE(session.finish().ok());
  });
}

TEST_F(ElasticLosses, ParticlesFollowTheirCellsOnAsManyRanksAsBefore) {
  save_line({0, 20, 40});
  for (const Borders& borders : {Borders{0, 10, 40}, Borders{0, 20, 40}, Borders{0, 10, 20, 40}}) {
    run(static_cast<uint32_t>(borders.size() - 1), [&](Session& session, uint32_t rank) {
      std::vector<double> line(borders[rank + 1] - borders[rank], -1);
      std::vector<Particle> particles;
      protect_line(session, rank, borders, line, particles);
      EXPECT_EQ(session.restart().value(), 1u);
      std::set<uint64_t> ids;
      for (const Particle& particle : particles) ids.insert(particle.id);
      EXPECT_EQ(particles.size(), line.size());
      for (uint64_t cell = borders[rank]; cell < borders[rank + 1]; ++cell) {
        EXPECT_EQ(line[cell - borders[rank]], static_cast<double>(cell));
        EXPECT_TRUE(ids.contains(cell)) << cell;
      }
      EXPECT_TRUE(session.finish().ok());
    });
  }
}

TEST_F(ElasticLosses, ElementsThatSeveralRanksTakeForTheirsAreRefused) {
  save_line({0, 20, 40});
  for (const bool balanced : {false, true}) {
    run(3, [balanced](Session& session, uint32_t rank) {
      std::vector<Particle> particles;
      ASSERT_TRUE(session.protect("particles", particles).ok());
      const auto owner = [=](const Particle& particle) {
        return balanced ? static_cast<uint32_t>((particle.id + rank) % 3) : rank;
      };
      ASSERT_TRUE(session.redistribute_by_owner<Particle>("particles", owner).ok());
      std::vector<double> line(rank == 0 ? kCells : 0);
      ArrayShape shape;
      shape.global_cells = {kCells};
      shape.global_offset = {rank == 0 ? 0 : kCells};
      ASSERT_TRUE(session.protect("line", std::span(line), shape).ok());
      const Status said = session.restart().status();
      EXPECT_EQ(said.code(), StatusCode::invalid_argument);
      EXPECT_NE(said.to_string().find("not all ranks divide its elements alike"), std::string::npos)
          << said.to_string();
      EXPECT_TRUE(particles.empty());
    });
  }
}

TEST_F(ElasticLosses, AShareThatNoRankTakesIsRefused) {
  const auto protect = [](Session& session, std::vector<double>& values, Redistribution how) {
    ASSERT_TRUE(session.protect("values", values).ok());
    ASSERT_TRUE(session.redistribute("values", how).ok());
  };
  run(2, [&](Session& session, uint32_t rank) {
    std::vector<double> values(6, rank);
    protect(session, values, Redistribution::evenly);
    ASSERT_TRUE(session.checkpoint(1).ok());
    EXPECT_TRUE(session.finish().ok());
  });
  for (const bool alike : {false, true}) {
    run(3, [&](Session& session, uint32_t rank) {
      std::vector<double> values;
      protect(session, values, rank == 1 && !alike ? Redistribution::ignore : Redistribution::evenly);
      const Status said = session.restart().status();
      EXPECT_EQ(said.ok(), alike) << said.to_string();
      EXPECT_EQ(values.size(), alike ? 4u : 0u);
      EXPECT_EQ(said.to_string().find("its 12 elements would become 8") != std::string::npos, !alike)
          << said.to_string();
    });
  }
}

TEST_F(ElasticLosses, WhatAFunctionThrowsIsSaid) {
  save_line({0, 20, 40});
  run(1, [](Session& session, uint32_t) {
    std::vector<double> line(kCells);
    ArrayShape shape;
    shape.global_cells = {kCells};
    ASSERT_TRUE(session.protect("line", std::span(line), shape).ok());
    std::vector<Particle> particles;
    ASSERT_TRUE(session.protect("particles", particles).ok());
    const auto throws = [](const Particle&) -> uint32_t { throw std::runtime_error("no such particle"); };
    ASSERT_TRUE(session.redistribute_by_owner<Particle>("particles", throws).ok());
    const Status said = session.restart().status();
    EXPECT_EQ(said.code(), StatusCode::invalid_argument);
    EXPECT_NE(said.to_string().find("has thrown: no such particle"), std::string::npos) << said.to_string();
  });
}

TEST_F(ElasticLosses, AFunctionOfOtherElementsIsRefused) {
  run(1, [](Session& session, uint32_t) {
    std::vector<int32_t> ids;
    ASSERT_TRUE(session.protect("ids", ids).ok());
    const Status said = session.redistribute_by_owner<int64_t>("ids", [](int64_t) { return 0u; });
    EXPECT_EQ(said.code(), StatusCode::invalid_argument);
    EXPECT_NE(said.to_string().find("its elements have 4 bytes, and the function takes some of 8"), std::string::npos)
        << said.to_string();
  });
}

/// What a restart on two ranks says of a vector that three saved, each made for its rank.
Status said_of_vectors(const SessionOptions& options, const std::function<std::vector<int>(uint32_t)>& made,
                       Redistribution how = Redistribution::none) {
  const auto run = [&](uint32_t rank_count, const std::function<void(Session&, uint32_t, std::vector<int>&)>& act) {
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      std::vector<int> values = made(rank);
      ASSERT_TRUE(session->protect("values", values).ok());
      ASSERT_TRUE(session->redistribute("values", how).ok());
      act(*session, rank, values);
    });
  };
  run(3, [](Session& session, uint32_t, std::vector<int>&) {
    ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
    EXPECT_TRUE(session.finish().ok());
  });
  OfRanks<Status> said;
  run(2, [&](Session& session, uint32_t, std::vector<int>& values) {
    const std::vector<int> wanted = made(0);
    values.clear();
    const Status restarted = session.restart().status();
    if (restarted.ok()) {
      EXPECT_EQ(values, wanted);
    }
    said.add(restarted);
  });
  return said.take().front();
}

TEST_F(ElasticLosses, WhatMayBeAlikeOnlyAtTheBeginningIsTheSameOnlyIfToldSo) {
  const auto zeros = [](uint32_t) { return std::vector<int>(100, 0); };
  const Status refused = said_of_vectors(options, zeros);
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
  EXPECT_NE(refused.to_string().find("Session::redistribute()"), std::string::npos) << refused.to_string();
  const SessionPlace other;
  EXPECT_TRUE(said_of_vectors(other.options(), zeros, Redistribution::same).ok());
}

TEST_F(ElasticLosses, ATableThatAllSavedAlikeComesBackAndOneThatDiffersInOnePlaceDoesNot) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{1000}, size_t{100'000}}) {
    const SessionPlace alike, differing;
    const auto table = [count](int more) {
      std::vector<int> values(count);
      for (size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i * i);
      values[count * 7 / 8] += more;
      return values;
    };
    const Status same = said_of_vectors(alike.options(), [&](uint32_t) { return table(0); });
    EXPECT_TRUE(same.ok()) << same.to_string();
    const Status said = said_of_vectors(
        differing.options(), [&](uint32_t rank) { return table(rank == 2 ? 1 : 0); }, Redistribution::same);
    EXPECT_EQ(said.code(), StatusCode::invalid_argument) << count;
    EXPECT_NE(said.to_string().find("ranks 0 and 2 have saved different values"), std::string::npos)
        << said.to_string();
  }
}

/// An array that lies in the stores of nodes, in any boxes.
class ArrayOnNodes {
 public:
  ArrayOnNodes(test::Cluster& cluster, std::string levels, std::vector<uint64_t> whole)
      : cluster_(cluster), levels_(std::move(levels)), whole_(std::move(whole)) {}

  void save(std::mt19937& random) {
    each(random, [](RunSession& session, std::vector<double>& cells, const std::vector<double>& wanted) {
      cells = wanted;
      ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
    });
  }
  void expect(std::mt19937& random) {
    each(random, [](RunSession& session, std::vector<double>& cells, const std::vector<double>& wanted) {
      const auto step = session.restart();
      ASSERT_TRUE(step.ok()) << step.status().to_string();
      EXPECT_EQ(*step, 1u);
      EXPECT_EQ(cells, wanted);
    });
  }

 private:
  template <class Act>
  void each(std::mt19937& random, const Act& act) {
    const std::vector<CellBox> boxes = test::divide(whole_, cluster_.rank_count(), random);
    run_ranks(cluster_.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = cluster_.open(rank, std::move(ranks), levels_);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      ArrayShape shape;
      shape.cells = boxes[rank].cells;
      shape.global_cells = whole_;
      shape.global_offset = boxes[rank].offset;
      const std::vector<double> wanted = values_of(boxes[rank]);
      std::vector<double> cells(wanted.size(), -1);
      VariableTable& variables = (*session)->variables();
      ASSERT_TRUE(variables.protect_array("array", element_type_of<double>(), cells.data(), cells.size(), shape).ok());
      act(**session, cells, wanted);
      test::Cluster::finish(**session);
    });
  }
  std::vector<double> values_of(const CellBox& box) const {
    const CellBox all{std::vector<uint64_t>(whole_.size(), 0), whole_};
    std::vector<double> values;
    for_each_cell_run(box, all, box, [&](const CellRun& run) {
      for (uint64_t i = 0; i < run.cells; ++i) values.push_back(1.5 * static_cast<double>(run.from + i) + 1);
      return Status();
    }).ignore("it cannot fail");
    return values;
  }

  test::Cluster& cluster_;
  const std::string levels_;
  const std::vector<uint64_t> whole_;
};

TEST(ARunThatHasLostNodes, FindsEachCellOfAnyDecompositionInAnother) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto any = [&](uint32_t least, uint32_t most) {
      return std::uniform_int_distribution<uint32_t>(least, most)(random);
    };
    test::Cluster cluster;
    cluster.nodes = {"a", "b", "c", "d"};
    cluster.nodes.resize(any(3, 4));
    cluster.node_ranks = any(1, 3);
    const std::vector<std::string> schemes{"partner", "xor:3", "rs:2+1", "xor:2"};
    std::vector<uint64_t> whole(any(1, 4));
    for (uint64_t& extent : whole) extent = any(1, 12);
    ArrayOnNodes array(cluster, "local:" + cluster.local + "; " + schemes[any(0, 3)], whole);
    array.save(random);
    const std::string lost = cluster.nodes[any(0, static_cast<uint32_t>(cluster.nodes.size()) - 1)];
    std::filesystem::remove_all(cluster.node_path(lost));
    // The node may be gone with its store.
    if (any(0, 1) == 1) std::erase(cluster.nodes, lost);
    cluster.node_ranks = any(1, 5);
    array.expect(random);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(ARunThatHasLostNodes, GoesOnWithTheRedundancyThatIsLeft) {
  test::Cluster cluster;
  const std::string levels = "local:" + cluster.local + "; xor:3";
  cluster.run_to(levels, 3);
  std::filesystem::remove_all(cluster.node_path("c"));
  // Its ranks are where there is room.
  cluster.nodes = {"a", "b"};
  cluster.node_ranks = 3;
  const std::string told = cluster.restart_from(levels, 3, 4);
  EXPECT_NE(told.find("redundancy needs 3 nodes, and this run has 2: it goes on with xor:2"), std::string::npos)
      << told;
  std::filesystem::remove_all(cluster.node_path("b"));
  EXPECT_NE(cluster.restart_from(levels, 4, 5).find("it goes on with xor:2"), std::string::npos);
  cluster.nodes = {"a"};
  cluster.node_ranks = 6;
  run_ranks(6, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = cluster.open(rank, std::move(ranks), levels);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const std::string words = test::Cluster::words((*session)->warnings());
    if (rank == 0) {
      EXPECT_NE(words.find("this run has 1: it goes on with none"), std::string::npos) << words;
    }
    test::Cluster::finish(**session);
  });
}

}  // namespace
}  // namespace varve
