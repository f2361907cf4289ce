#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "core/cell_box.h"
#include "runtime/cluster.h"
#include "runtime/ranks.h"

// A run that goes on with another number of ranks.

namespace varve {
namespace {

using test::divide;
using test::run_and_kill;
using test::run_ranks;
using test::SessionPlace;

/// One rank's part of a computation whose state as a whole depends on the step alone.
class Part {
 public:
  Part(std::vector<uint64_t> whole, CellBox box, uint64_t ghosts) : whole_(std::move(whole)), box_(std::move(box)) {
    shape_ = ArrayShape::with_ghosts(box_.cells, ghosts);
    for (uint64_t& cells : shape_.cells) cells += 2 * ghosts;
    shape_.global_cells = whole_;
    shape_.global_offset = box_.offset;
    field_.resize(std::accumulate(shape_.cells.begin(), shape_.cells.end(), uint64_t{1}, std::multiplies<>()), -1.0);
  }

  Status protect(Session& session) {
    VARVE_TRY(session.protect("field", std::span(field_), shape_));
    VARVE_TRY(session.protect("time", time_));
    VARVE_TRY(session.protect("particles", particles_));
    return session.redistribute("particles", Redistribution::evenly);
  }

  /// `rank` has its own number of particles.
  void set(uint64_t step, uint32_t rank) {
    for_each_cell([&](size_t at, uint64_t cell) { field_[at] = value(cell, step); });
    time_ = 0.1 * static_cast<double>(step);
    particles_.assign(10 * (rank + 1), 0);
    std::iota(particles_.begin(), particles_.end(), 10 * rank * (rank + 1) / 2);
  }

  void expect(uint64_t step, uint32_t rank, uint32_t rank_count, uint32_t before) {
    size_t wrong = 0;
    for_each_cell([&](size_t at, uint64_t cell) { wrong += field_[at] != value(cell, step); });
    EXPECT_EQ(wrong, 0u) << "of rank " << rank;
    EXPECT_EQ(time_, 0.1 * static_cast<double>(step));
    if (rank_count == before) return;
    const uint64_t total = 10 * before * (before + 1) / 2, each = total / rank_count, more = total % rank_count;
    std::vector<uint64_t> share(each + (rank < more ? 1 : 0));
    std::iota(share.begin(), share.end(), each * rank + std::min<uint64_t>(rank, more));
    EXPECT_EQ(particles_, share) << "of rank " << rank;
  }

 private:
  static double value(uint64_t cell, uint64_t step) { return static_cast<double>(cell * 31 + step); }

  /// visit(place in the field, ordinal in the whole)
  template <class Visit>
  void for_each_cell(const Visit& visit) {
    CellBox inner{shape_.ghosts_low, box_.cells};
    const CellBox all{std::vector<uint64_t>(whole_.size(), 0), shape_.cells};
    const CellBox whole{std::vector<uint64_t>(whole_.size(), 0), whole_};
    std::vector<uint64_t> places;
    auto visit_all = [](const CellBox& part, const CellBox& in, std::vector<uint64_t>& ordinals) {
      for_each_cell_run(part, in, part, [&](const CellRun& run) {
        for (uint64_t i = 0; i < run.cells; ++i) ordinals.push_back(run.from + i);
        return Status();
      }).ignore("it cannot fail");
    };
    std::vector<uint64_t> cells;
    visit_all(inner, all, places);
    visit_all(box_, whole, cells);
    for (size_t i = 0; i < places.size(); ++i) visit(places[i], cells[i]);
  }

  std::vector<uint64_t> whole_;
  CellBox box_;
  ArrayShape shape_;
  std::vector<double> field_;
  double time_ = 0;
  std::vector<uint64_t> particles_;
};

struct WholeRun {
  SessionOptions options;
  std::vector<uint64_t> whole;
  std::vector<CellBox> boxes;
  uint64_t ghosts = 0;

  uint32_t rank_count() const { return static_cast<uint32_t>(boxes.size()); }
  /// `act(session, part, rank)` on each rank.
  void each(const std::function<void(Session&, Part&, uint32_t)>& act) const {
    run_ranks(rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Part part(whole, boxes[rank], ghosts);
      ASSERT_TRUE(part.protect(*session).ok());
      act(*session, part, rank);
    });
  }
  void save(uint64_t step) const {
    each([&](Session& session, Part& part, uint32_t rank) {
      ASSERT_TRUE(session.restart().ok());
      part.set(step, rank);
      const Status saved = session.checkpoint(step, Persistence::now);
      ASSERT_TRUE(saved.ok()) << saved.to_string();
      EXPECT_TRUE(session.finish().ok());
    });
  }
  void expect(uint64_t step, uint32_t before) const {
    each([&](Session& session, Part& part, uint32_t rank) {
      const auto from = session.restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      ASSERT_EQ(*from, step);
      part.expect(step, rank, rank_count(), before);
      EXPECT_TRUE(session.finish().ok());
    });
  }
};

TEST(AnElasticRestart, GoesFromAnyNumberOfRanksToAnyOther) {
  std::mt19937 random(1);
  const std::vector<uint64_t> whole{13, 11, 7};
  for (uint32_t before = 1; before <= 16; ++before) {
    const SessionPlace place;
    const WholeRun first{place.options(), whole, divide(whole, before, random), 1};
    first.save(5);
    for (uint32_t after = 1; after <= 16; ++after) {
      SCOPED_TRACE(before);
      SCOPED_TRACE(after);
      const WholeRun second{place.options(), whole, divide(whole, after, random), after % 3};
      second.expect(5, before);
      if (HasFailure()) return;
    }
  }
}

TEST(AnElasticRestart, TakesWhatAKilledRunLeftInMemory) {
  std::mt19937 random(2);
  const std::vector<uint64_t> whole{40, 30};
  for (const auto& [before, after] : {std::pair(4u, 3u), {3u, 7u}, {5u, 1u}, {1u, 6u}}) {
    const SessionPlace place;
    const WholeRun first{place.options(), whole, divide(whole, before, random), 2};
    run_and_kill([&] {
      std::atomic<uint32_t> made = 0;
      first.each([&](Session& session, Part& part, uint32_t rank) {
        ASSERT_TRUE(session.restart().ok());
        part.set(3, rank);
        ASSERT_TRUE(session.checkpoint(3, Persistence::now).ok());
        part.set(4, rank);
        ASSERT_TRUE(session.checkpoint(4).ok());
        if (++made == first.rank_count()) ::kill(::getpid(), SIGKILL);
        ::pause();
      });
    });
    WholeRun{place.options(), whole, divide(whole, after, random), 0}.expect(4, before);
  }
}

TEST(AnElasticRestart, PassesOverWhatOnlySomeRanksOfAKilledRunHadInMemory) {
  std::mt19937 random(4);
  const std::vector<uint64_t> whole{20, 30};
  const SessionPlace place;
  const WholeRun first{place.options(), whole, divide(whole, 4, random), 1};
  run_and_kill([&] {
    std::atomic<uint32_t> made = 0;
    first.each([&](Session& session, Part& part, uint32_t rank) {
      ASSERT_TRUE(session.restart().ok());
      part.set(3, rank);
      ASSERT_TRUE(session.checkpoint(3, Persistence::now).ok());
      part.set(4, rank);
      if (rank != 2) {
        ASSERT_TRUE(session.checkpoint(4).ok());
        ++made;
      }
      while (made < first.rank_count() - 1) std::this_thread::yield();
      ::kill(::getpid(), SIGKILL);
    });
  });
  WholeRun{place.options(), whole, divide(whole, 3, random), 1}.expect(3, 4);
}

TEST(AnElasticRestart, TakesTheLaterOfWhatNodesHaveOfDifferentRuns) {
  test::Cluster cluster;
  cluster.node_ranks = 1;
  const std::string levels = "local:" + cluster.local;
  uint64_t value = 0;
  auto run = [&](std::vector<std::string> nodes, const std::function<void(RunSession&, const uint64_t& value)>& act) {
    cluster.nodes = std::move(nodes);
    run_ranks(cluster.rank_count(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = cluster.open(rank, std::move(ranks), levels);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      uint64_t own = value;
      ASSERT_TRUE((*session)->variables().protect_scalar("value", element_type_of<uint64_t>(), &own).ok());
      act(**session, own);
    });
  };
  for (const char* node : {"a", "b"}) {
    ++value;
    run({node}, [](RunSession& session, const uint64_t&) {
      EXPECT_TRUE(session.checkpoint(1, Persistence::now).ok());
      test::Cluster::finish(session);
    });
  }
  // What b has was made last, and is whole.
  value = 0;
  run({"a", "b"}, [](RunSession& session, const uint64_t& loaded) {
    EXPECT_EQ(session.restart().value(), 1u);
    EXPECT_EQ(loaded, 2u);
  });
}

/// What a restart of `ranks` ranks says, after another number of them has saved; `declare` protects.
template <class Declare>
Status said_after(uint32_t before, uint32_t after, const Declare& declare) {
  const SessionPlace place;
  std::vector<Status> said(after);
  auto run = [&](uint32_t rank_count, const auto& act) {
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), place.options());
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      declare(*session, rank, rank_count, [&] { act(*session, rank); });
    });
  };
  run(before, [](Session& session, uint32_t) { EXPECT_TRUE(session.checkpoint(1, Persistence::now).ok()); });
  run(after, [&](Session& session, uint32_t rank) { said[rank] = session.restart().status(); });
  for (const Status& of_rank : said) EXPECT_EQ(of_rank.code(), said.front().code()) << of_rank.to_string();
  return said.front();
}

TEST(AnElasticRestart, RefusesWhatNothingIsSaidOfAndNamesIt) {
  const auto differs = [](Session& session, uint32_t rank, uint32_t, const auto& act) {
    std::vector<double> mine(10, rank);
    ASSERT_TRUE(session.protect("mine", std::span(mine)).ok());
    act();
    EXPECT_EQ(mine, std::vector<double>(10, rank));
  };
  for (const auto& [before, after] : {std::pair(2u, 3u), {1u, 2u}, {3u, 1u}}) {
    const Status refused = said_after(before, after, differs);
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
    EXPECT_NE(refused.to_string().find("variable 'mine'"), std::string::npos) << refused.to_string();
    EXPECT_NE(refused.to_string().find("ArrayShape::global_cells"), std::string::npos) << refused.to_string();
  }
}

TEST(AnElasticRestart, RefusesAnotherWholeAndCellsThatNobodySaved) {
  const auto whole = [](uint64_t cells_before, uint64_t cells_after, uint64_t saved_before) {
    return said_after(2, 1, [&](Session& session, uint32_t rank, uint32_t rank_count, const auto& act) {
      ArrayShape shape;
      shape.global_cells = {rank_count == 2 ? cells_before : cells_after};
      const uint64_t mine = rank_count == 2 ? saved_before / 2 : cells_after;
      shape.global_offset = {rank * mine};
      std::vector<float> cells(mine, 1.0F);
      ASSERT_TRUE(session.protect("cells", std::span(cells), shape).ok());
      act();
    });
  };
  EXPECT_TRUE(whole(10, 10, 10).ok());
  EXPECT_NE(whole(10, 12, 10).to_string().find("as a whole it is 10 in the checkpoint, but protected as 12"),
            std::string::npos);
  EXPECT_NE(whole(10, 10, 8).to_string().find("no rank has saved its cells from (8) on"), std::string::npos);
}

TEST(AnElasticRestart, GivesAllWhatARankAloneSavedOnlyIfToldSo) {
  for (const bool told : {false, true}) {
    const Status said = said_after(1, 3, [&](Session& session, uint32_t, uint32_t rank_count, const auto& act) {
      std::vector<uint32_t> table(rank_count == 1 ? 5 : 0, 7);
      double time = rank_count == 1 ? 2.5 : 0;
      ASSERT_TRUE(session.protect("table", table).ok());
      ASSERT_TRUE(session.protect("time", time).ok());
      if (told) {
        ASSERT_TRUE(session.redistribute("table", Redistribution::same).ok());
      }
      act();
      if (told) {
        EXPECT_EQ(table, std::vector<uint32_t>(5, 7));
        EXPECT_EQ(time, 2.5);
      }
    });
    EXPECT_EQ(said.code(), told ? StatusCode::ok : StatusCode::invalid_argument) << said.to_string();
  }
}

TEST(AnElasticRestart, WarnsOfNamesThatNoRankProtects) {
  const SessionPlace place;
  ::setenv("VARVE_REDISTRIBUTION", "particels=evenly; of_one=ignore; log=ignore", 1);
  run_ranks(3, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    std::vector<uint32_t> particles(3, rank), of_one(3);
    ASSERT_TRUE(session->protect("particles", particles).ok());
    if (rank == 1) {
      ASSERT_TRUE(session->protect("of_one", of_one).ok());
    }
    EXPECT_TRUE(session->restart().ok());
    std::string words;
    for (const Status& warning : session->warnings()) words += warning.to_string() + "\n";
    EXPECT_NE(words.find("variable 'particels'"), std::string::npos) << words;
    EXPECT_NE(words.find("was 'particles' meant?"), std::string::npos) << words;
    EXPECT_NE(words.find("variable 'log'"), std::string::npos) << words;
    EXPECT_EQ(words.find("of_one"), std::string::npos) << words;
  });
  ::unsetenv("VARVE_REDISTRIBUTION");
}

TEST(AnElasticRestart, DividesWhatWhoeverStartsTheProgramSaysOf) {
  const auto said = [](const char* redistribution) {
    ::setenv("VARVE_REDISTRIBUTION", redistribution, 1);
    const Status status = said_after(2, 3, [](Session& session, uint32_t rank, uint32_t rank_count, const auto& act) {
      const bool before = rank_count == 2;
      std::vector<uint32_t> particles(before ? 3 : 0, rank), log(before ? 1 + rank : 7, 9);
      std::vector<double> clock(2, before ? 1.5 + rank : 0);
      ASSERT_TRUE(session.protect("particles", particles).ok());
      ASSERT_TRUE(session.protect("log", log).ok());
      ASSERT_TRUE(session.protect("clock", std::span(clock)).ok());
      ASSERT_TRUE(session.redistribute("log", Redistribution::evenly).ok());
      act();
      if (before || particles.empty()) return;  // nothing came back where it was refused
      EXPECT_EQ(particles, (std::vector<uint32_t>{rank == 2 ? 1U : 0U, rank == 0 ? 0U : 1U}));
      EXPECT_EQ(log, std::vector<uint32_t>(7, 9)) << "it goes before what the program says";
      EXPECT_EQ(clock, std::vector<double>(2, 0));
    });
    ::unsetenv("VARVE_REDISTRIBUTION");
    return status;
  };
  EXPECT_TRUE(said("particles=evenly; log=ignore; clock=ignore").ok());
  const Status unsaid = said("particles = evenly; log = ignore");
  EXPECT_EQ(unsaid.code(), StatusCode::invalid_argument);
  EXPECT_NE(unsaid.to_string().find("variable 'clock'"), std::string::npos) << unsaid.to_string();
  EXPECT_NE(unsaid.to_string().find("option redistribution"), std::string::npos) << unsaid.to_string();
  EXPECT_NE(said("clock=evenly").to_string().find("only a vector's elements"), std::string::npos);
  ::setenv("VARVE_REDISTRIBUTION", "ids=evenly", 1);
  const Status of_owners = said_after(2, 2, [](Session& session, uint32_t, uint32_t, const auto& act) {
    std::vector<uint64_t> ids(3, 1), others(3, 2);
    ASSERT_TRUE(session.protect("ids", ids).ok());
    ASSERT_TRUE(session.protect("others", others).ok());
    ASSERT_TRUE(session.redistribute_by_owner<uint64_t>("ids", [](uint64_t id) { return id % 2; }, {"others"}).ok());
    act();
  });
  ::unsetenv("VARVE_REDISTRIBUTION");
  EXPECT_NE(of_owners.to_string().find("by the owners of its elements"), std::string::npos) << of_owners.to_string();
}

TEST(AnElasticRestart, TakesAnOlderSetIfTheNewestIsDamaged) {
  std::mt19937 random(3);
  const std::vector<uint64_t> whole{60, 50};
  const SessionPlace place;
  auto options = place.options();
  options.codec = "store";
  const WholeRun first{options, whole, divide(whole, 3, random), 1};
  first.save(1);
  first.save(2);
  const auto store = Store::open(posix_file_system(), place.store).value();
  const SetRecord record = Catalog(*store).read({"job", 2}).value();
  const std::string arena = store->arena_path(record.groups.back().hint);
  std::fstream file(arena, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(arena) / 2));
  file << "damaged!damaged!";
  file.close();
  WholeRun{options, whole, divide(whole, 4, random), 1}.expect(1, 3);
}

RC_GTEST_PROP(AnElasticRestart, FindsEachCellOfAnyDecomposition, ()) {
  const auto dimensions = *rc::gen::inRange<size_t>(1, 5);
  const auto whole = *rc::gen::container<std::vector<uint64_t>>(dimensions, rc::gen::inRange<uint64_t>(1, 12));
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const auto before = *rc::gen::inRange<uint32_t>(1, 6), after = *rc::gen::inRange<uint32_t>(1, 6);
  const SessionPlace place;
  WholeRun{place.options(), whole, divide(whole, before, random), *rc::gen::inRange<uint64_t>(0, 3)}.save(1);
  WholeRun{place.options(), whole, divide(whole, after, random), *rc::gen::inRange<uint64_t>(0, 3)}.expect(1, before);
}

}  // namespace
}  // namespace varve
