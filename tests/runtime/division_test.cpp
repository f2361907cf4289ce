#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "core/cell_box.h"
#include "runtime/ranks.h"
#include "store/catalog.h"

// What a restart gives whom: boxes of a rank, elements by their owners, variables that come and go.

namespace varve {
namespace {

using test::run_ranks;
using test::SessionPlace;

using Ranks = std::function<void(Session&, uint32_t rank)>;

/// One run of so many ranks. `act` protects, and does the rest.
void run(const SessionPlace& place, uint32_t rank_count, const Ranks& act, bool variables_may_change = false) {
  SessionOptions options = place.options();
  options.variables_may_change = variables_may_change;
  run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    act(*session, rank);
  });
}

void save(Session& session, uint64_t step = 1) {
  const Status saved = session.checkpoint(step, Persistence::now);
  ASSERT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_TRUE(session.finish().ok());
}

void expect_from(Session& session, uint64_t step = 1) {
  const auto from = session.restart();
  ASSERT_TRUE(from.ok()) << from.status().to_string();
  EXPECT_EQ(*from, step);
}

// Several boxes a rank

/// Divides a whole into boxes without common cells, and these among ranks, of which some may get none.
std::vector<std::vector<CellBox>> deal(const std::vector<uint64_t>& cells, uint32_t rank_count, size_t box_count,
                                       std::mt19937& random) {
  std::vector<CellBox> boxes = test::cut(cells, box_count, random);
  std::vector<std::vector<CellBox>> of_rank(rank_count);
  for (CellBox& box : boxes)
    of_rank[std::uniform_int_distribution<uint32_t>(0, rank_count - 1)(random)].push_back(std::move(box));
  return of_rank;
}

/// The patches of one rank, each with memory and ghost cells of its own.
class Patches {
 public:
  Patches(std::vector<uint64_t> whole, std::vector<CellBox> boxes, uint64_t ghosts, DimensionOrder order)
      : whole_(std::move(whole)), boxes_(std::move(boxes)), ghosts_(ghosts), order_(order) {
    for (const CellBox& box : boxes_) {
      uint64_t count = 1;
      for (const uint64_t cells : box.cells) count *= cells + 2 * ghosts_;
      memory_.emplace_back(count, -1.0);
    }
  }
  Status protect(Session& session) {
    std::vector<ArrayBox<double>> boxes;
    for (size_t i = 0; i < boxes_.size(); ++i) {
      ArrayShape shape = ArrayShape::with_ghosts(boxes_[i].cells, ghosts_);
      for (uint64_t& cells : shape.cells) cells += 2 * ghosts_;
      shape.cells = ordered(shape.cells);
      shape.global_offset = ordered(boxes_[i].offset);
      shape.order = order_;
      boxes.push_back({std::span(memory_[i]), shape});
    }
    return session.protect_boxes("field", ordered(whole_), boxes, order_);
  }
  void set(uint64_t step) {
    for_each_cell([&](double& value, uint64_t cell) { value = at(cell, step); });
  }
  size_t wrong_cells(uint64_t step) {
    size_t wrong = 0;
    for_each_cell([&](double& value, uint64_t cell) { wrong += value != at(cell, step) ? 1 : 0; });
    return wrong;
  }

 private:
  static double at(uint64_t cell, uint64_t step) { return static_cast<double>(cell * 17 + step); }
  std::vector<uint64_t> ordered(std::vector<uint64_t> numbers) const {
    if (order_ == DimensionOrder::fastest_first) std::reverse(numbers.begin(), numbers.end());
    return numbers;
  }
  template <class Visit>
  void for_each_cell(const Visit& visit) {
    const CellBox whole{std::vector<uint64_t>(whole_.size(), 0), whole_};
    for (size_t i = 0; i < boxes_.size(); ++i) {
      CellBox padded = boxes_[i];  // moved, so that no offset is below 0
      CellBox moved = boxes_[i];
      for (size_t d = 0; d < whole_.size(); ++d) {
        padded.cells[d] += 2 * ghosts_;
        moved.offset[d] += ghosts_;
      }
      std::vector<uint64_t> places, cells;
      const auto note = [](std::vector<uint64_t>& into) {
        return [&into](const CellRun& run) {
          for (uint64_t cell = 0; cell < run.cells; ++cell) into.push_back(run.from + cell);
          return Status();
        };
      };
      for_each_cell_run(moved, padded, moved, note(places)).ignore("it cannot fail");
      for_each_cell_run(boxes_[i], whole, boxes_[i], note(cells)).ignore("it cannot fail");
      for (size_t at = 0; at < places.size(); ++at) visit(memory_[i][places[at]], cells[at]);
    }
  }

  std::vector<uint64_t> whole_;
  std::vector<CellBox> boxes_;
  uint64_t ghosts_;
  DimensionOrder order_;
  std::vector<std::vector<double>> memory_;
};

struct BoxRun {
  std::vector<uint64_t> whole;
  std::vector<std::vector<CellBox>> boxes;
  uint64_t ghosts = 0;
  DimensionOrder order = DimensionOrder::slowest_first;

  void each(const SessionPlace& place, const std::function<void(Session&, Patches&)>& act) const {
    run(place, static_cast<uint32_t>(boxes.size()), [&](Session& session, uint32_t rank) {
      Patches patches(whole, boxes[rank], ghosts, order);
      const Status declared = patches.protect(session);
      ASSERT_TRUE(declared.ok()) << declared.to_string();
      act(session, patches);
    });
  }
};

RC_GTEST_PROP(SeveralBoxesOfARank, ComeBackInAnyOtherBoxes, ()) {
  const auto dimensions = *rc::gen::inRange<size_t>(1, 5);
  const auto whole = *rc::gen::container<std::vector<uint64_t>>(dimensions, rc::gen::inRange<uint64_t>(1, 9));
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  const auto any_run = [&] {
    const auto ranks = *rc::gen::inRange<uint32_t>(1, 5);
    const auto order = *rc::gen::element(DimensionOrder::slowest_first, DimensionOrder::fastest_first);
    return BoxRun{whole, deal(whole, ranks, *rc::gen::inRange<size_t>(1, 12), random),
                  *rc::gen::inRange<uint64_t>(0, 3), order};
  };
  const SessionPlace place;
  const BoxRun before = any_run(), after = any_run();
  before.each(place, [](Session& session, Patches& patches) {
    patches.set(1);
    save(session);
  });
  for (const BoxRun& again : {after, before}) {
    again.each(place, [](Session& session, Patches& patches) {
      expect_from(session);
      EXPECT_EQ(patches.wrong_cells(1), 0u);
    });
  }
}

TEST(SeveralBoxesOfARank, ComeBackAfterTheMeshWasRefinedAndTheRunGoesBack) {
  std::mt19937 random(5);
  const std::vector<uint64_t> whole{30, 20};
  const auto first = deal(whole, 2, 7, random), second = deal(whole, 2, 9, random);
  const SessionPlace place;
  run(place, 2, [&](Session& session, uint32_t rank) {
    Patches coarse(whole, first[rank], 1, DimensionOrder::slowest_first);
    Patches fine(whole, second[rank], 0, DimensionOrder::slowest_first);
    ASSERT_TRUE(coarse.protect(session).ok());
    coarse.set(1);
    ASSERT_TRUE(session.checkpoint(1).ok());
    ASSERT_TRUE(fine.protect(session).ok());
    fine.set(2);
    ASSERT_TRUE(session.checkpoint(2).ok());
    fine.set(99);
    ASSERT_EQ(session.restart({.exactly = 1}).value(), 1u);
    EXPECT_EQ(fine.wrong_cells(1), 0u);
    ASSERT_TRUE(coarse.protect(session).ok());
    ASSERT_EQ(session.restart({.exactly = 2}).value(), 2u);
    EXPECT_EQ(coarse.wrong_cells(2), 0u);
    EXPECT_TRUE(session.finish().ok());
  });
}

TEST(SeveralBoxesOfARank, AreRefusedWhereTheyDoNotFitTheWhole) {
  auto session = Session::open(SessionPlace().options());
  std::vector<double> values(6);
  const auto said = [&](ArrayShape shape, const std::vector<uint64_t>& whole) {
    return session->protect_boxes("field", whole, std::vector<ArrayBox<double>>{{std::span(values), std::move(shape)}})
        .to_string();
  };
  ArrayShape shape;
  shape.cells = {2, 3};
  EXPECT_NE(said(shape, {}).find("of what whole"), std::string::npos);
  EXPECT_NE(said(shape, {2, 2}).find("do not lie in 2 global cells"), std::string::npos);
  shape.order = DimensionOrder::fastest_first;
  EXPECT_NE(said(shape, {2, 3}).find("different orders"), std::string::npos);
}

TEST(ARestart, TakesWhatWasSavedInTheOtherOrderOfDimensions) {
  const SessionPlace place;
  run(place, 1, [](Session& session, uint32_t) {
    std::vector<int32_t> cells(24);
    std::iota(cells.begin(), cells.end(), 0);
    ASSERT_TRUE(session.protect("cells", std::span(cells), {{4, 6}, {}, {}, {4, 6}, {}}).ok());
    save(session);
  });
  run(place, 2, [](Session& session, uint32_t rank) {
    std::vector<int32_t> cells(12);
    ArrayShape shape{{6, 2}, {}, {}, {6, 4}, {0, 2 * rank}};
    shape.order = DimensionOrder::fastest_first;
    ASSERT_TRUE(session.protect("cells", std::span(cells), shape).ok());
    expect_from(session);
    std::vector<int32_t> expected(12);
    std::iota(expected.begin(), expected.end(), 12 * static_cast<int32_t>(rank));
    EXPECT_EQ(cells, expected);
  });
}

// Elements by their owners

struct Position {
  double x = 0, y = 0;
  bool operator==(const Position&) const = default;
};

/// Particles with an array of cells that lie in slabs, the last dimension over the ranks.
struct Particles {
  std::vector<Position> positions;
  std::vector<uint64_t> ids;
  std::vector<float> speeds;
  std::vector<double> slab;
  static constexpr uint64_t kRows = 5, kColumns = 24;
  static uint64_t begin_of(uint32_t rank, uint32_t rank_count) { return kColumns * rank / rank_count; }

  Status protect(Session& session, uint32_t rank, uint32_t rank_count) {
    const uint64_t begin = begin_of(rank, rank_count), columns = begin_of(rank + 1, rank_count) - begin;
    slab.assign(kRows * columns, static_cast<double>(rank));
    ArrayShape shape{{columns, kRows}, {}, {}, {kColumns, kRows}, {begin, 0}};
    shape.order = DimensionOrder::fastest_first;
    VARVE_TRY(session.protect("slab", std::span(slab), shape));
    VARVE_TRY(session.protect("positions", positions));
    VARVE_TRY(session.protect("ids", ids));
    return session.protect("speeds", speeds);
  }
  void add(uint64_t id) {
    ids.push_back(id);
    // Neighbours in memory are none in space.
    positions.push_back({static_cast<double>(id * 7919 % 2400) / 100.0, static_cast<double>(id % 50) / 10.0});
    speeds.push_back(static_cast<float>(id) / 3);
  }
  void expect_together(uint32_t before) const {
    ASSERT_EQ(positions.size(), ids.size());
    ASSERT_EQ(speeds.size(), ids.size());
    Particles same;
    for (const uint64_t id : ids) same.add(id);
    EXPECT_EQ(positions, same.positions);
    EXPECT_EQ(speeds, same.speeds);
    // In the order of the ranks that had them, and of each in its own.
    const auto had = [before](uint64_t id) { return std::pair(id % before, id); };
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end(), [&](uint64_t a, uint64_t b) { return had(a) < had(b); }));
  }
};

void save_particles(const SessionPlace& place, uint32_t rank_count, uint64_t count) {
  run(place, rank_count, [&](Session& session, uint32_t rank) {
    Particles particles;
    ASSERT_TRUE(particles.protect(session, rank, rank_count).ok());
    for (uint64_t id = rank; id < count; id += rank_count) particles.add(id);
    save(session);
  });
}

TEST(ElementsByTheirOwners, GoWhereTheirCellIsWithAllThatBelongsToThem) {
  for (const auto& [before, after] : {std::pair(4u, 3u), {1u, 5u}, {3u, 7u}, {5u, 1u}}) {
    SCOPED_TRACE(before);
    const SessionPlace place;
    constexpr uint64_t kCount = 3'000;
    save_particles(place, before, kCount);
    std::vector<std::vector<uint64_t>> ids(after);
    run(place, after, [&, before = before, after = after](Session& session, uint32_t rank) {
      Particles particles;
      ASSERT_TRUE(particles.protect(session, rank, after).ok());
      const auto cell = [](const Position& position, std::span<uint64_t> numbers) {
        numbers[0] = static_cast<uint64_t>(position.x);
        numbers[1] = static_cast<uint64_t>(position.y);
      };
      ASSERT_TRUE(session.redistribute_by_cell<Position>("positions", "slab", cell, {"ids", "speeds"}).ok());
      expect_from(session);
      particles.expect_together(before);
      const auto begin = static_cast<double>(Particles::begin_of(rank, after));
      const auto end = static_cast<double>(Particles::begin_of(rank + 1, after));
      for (const Position& position : particles.positions) EXPECT_TRUE(position.x >= begin && position.x < end);
      ids[rank] = particles.ids;
    });
    std::vector<uint64_t> all;
    for (const auto& of_rank : ids) all.insert(all.end(), of_rank.begin(), of_rank.end());
    std::sort(all.begin(), all.end());
    std::vector<uint64_t> expected(kCount);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << "each particle once";
  }
}

TEST(ElementsByTheirOwners, GoWhereTheProgramSays) {
  const SessionPlace place;
  save_particles(place, 3, 1'000);
  run(place, 4, [](Session& session, uint32_t rank) {
    Particles particles;
    ASSERT_TRUE(particles.protect(session, rank, 4).ok());
    const auto owner = [](uint64_t id) { return id / 10 % 4; };
    ASSERT_TRUE(session.redistribute_by_owner<uint64_t>("ids", owner, {"positions", "speeds"}).ok());
    expect_from(session);
    particles.expect_together(3);
    EXPECT_EQ(particles.ids.size(), 250u);
    for (const uint64_t id : particles.ids) EXPECT_EQ(owner(id), rank);
  });
  run(place, 3, [](Session& session, uint32_t rank) {
    Particles particles;
    ASSERT_TRUE(particles.protect(session, rank, 3).ok());
    const auto nobody = [](uint64_t) { return 99; };
    ASSERT_TRUE(session.redistribute_by_owner<uint64_t>("ids", nobody, {"positions", "speeds"}).ok());
    expect_from(session);
    EXPECT_EQ(particles.ids.size(), rank == 0 ? 334u : 333u) << "as many ranks as before: each has its own";
  });
}

TEST(ElementsByTheirOwners, AreRefusedIfTheyAreNobodysOrDoNotBelongTogether) {
  const SessionPlace place;
  save_particles(place, 2, 100);
  const auto said = [&](const std::function<Status(Session&)>& declare) {
    std::string all;
    run(place, 3, [&](Session& session, uint32_t rank) {
      Particles particles;
      ASSERT_TRUE(particles.protect(session, rank, 3).ok());
      const Status declared = declare(session);
      ASSERT_TRUE(declared.ok()) << declared.to_string();
      const Status refused = session.restart().status();
      EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
      EXPECT_TRUE(particles.ids.empty());
      if (rank == 0) all = refused.to_string();
    });
    return all;
  };
  EXPECT_NE(
      said([](Session& session) {
        return session.redistribute_by_owner<uint64_t>("ids", [](uint64_t) { return 3; }, {"positions", "speeds"});
      }).find("is to go to rank 3 of 3"),
      std::string::npos);
  EXPECT_NE(said([](Session& session) {
              return session.redistribute_by_cell<Position>(
                  "positions", "slab", [](const Position&, std::span<uint64_t> cell) { cell[0] = 99; },
                  {"ids", "speeds"});
            }).find("which no rank has"),
            std::string::npos);
  EXPECT_NE(said([](Session& session) {
              return session.redistribute_by_cell<Position>(
                  "positions", "other", [](const Position&, std::span<uint64_t>) {}, {"ids", "speeds"});
            }).find("no rank has protected the array 'other'"),
            std::string::npos);
  // Of ranks that have so many keys each, and ten values.
  const auto refused_with = [](const std::function<std::optional<size_t>(uint32_t rank)>& keys_of) {
    const SessionPlace own;
    run(own, 2, [&](Session& session, uint32_t rank) {
      std::vector<uint32_t> keys(keys_of(rank).value_or(0)), values(10);
      if (keys_of(rank)) {
        ASSERT_TRUE(session.protect("keys", keys).ok());
      }
      ASSERT_TRUE(session.protect("values", values).ok());
      save(session);
    });
    std::string refused;
    run(own, 1, [&](Session& session, uint32_t) {
      std::vector<uint32_t> keys, values;
      ASSERT_TRUE(session.protect("keys", keys).ok());
      ASSERT_TRUE(session.protect("values", values).ok());
      ASSERT_TRUE(session.redistribute_by_owner<uint32_t>("keys", [](uint32_t) { return 0; }, {"values"}).ok());
      refused = session.restart().status().to_string();
    });
    return refused;
  };
  const std::string lacking = refused_with([](uint32_t rank) { return rank == 0 ? std::optional(10) : std::nullopt; });
  EXPECT_NE(lacking.find("rank 1 has saved 10 elements of it, and nothing of 'keys'"), std::string::npos) << lacking;
  const std::string other = refused_with([](uint32_t rank) { return 10 + rank; });
  EXPECT_NE(other.find("has saved 10 elements of it, and 11 of 'keys'"), std::string::npos) << other;
}

// Variables that come and go

TEST(VariablesThatChange, AreAnErrorUnlessTheyMay) {
  for (const uint32_t ranks : {2u, 3u}) {
    SCOPED_TRACE(ranks);
    const SessionPlace place;
    run(place, 2, [](Session& session, uint32_t) {
      double time = 2.5, old = 7;
      ASSERT_TRUE(session.protect("time", time).ok());
      ASSERT_TRUE(session.protect("old", old).ok());
      save(session);
    });
    const auto protects = [&](bool may, const std::function<void(Session&)>& expect) {
      run(
          place, ranks,
          [&](Session& session, uint32_t) {
            double time = 0, added = 3;
            std::vector<float> more(4, 1.0F);
            ASSERT_TRUE(session.protect("time", time).ok());
            ASSERT_TRUE(session.protect("added", added).ok());
            ASSERT_TRUE(session.protect("more", more).ok());
            expect(session);
            EXPECT_EQ(time, may ? 2.5 : 0);
            EXPECT_EQ(added, 3);
            EXPECT_EQ(more, std::vector<float>(4, 1.0F));
          },
          may);
    };
    protects(false, [](Session& session) {
      const Status refused = session.restart().status();
      EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
      EXPECT_NE(refused.to_string().find("variables_may_change"), std::string::npos) << refused.to_string();
    });
    protects(true, [](Session& session) {
      expect_from(session);
      std::string words;
      for (const Status& warning : session.warnings()) words += warning.to_string() + "\n";
      for (const char* const word : {"'old'", "left out", "'added'", "'more'", "keeps what it holds"})
        EXPECT_NE(words.find(word), std::string::npos) << words;
    });
  }
}

TEST(VariablesThatChange, MayNotChangeTheirType) {
  for (const uint32_t ranks : {1u, 2u}) {
    const SessionPlace place;
    run(place, 1, [](Session& session, uint32_t) {
      double value = 1;
      ASSERT_TRUE(session.protect("value", value).ok());
      save(session);
    });
    run(
        place, ranks,
        [](Session& session, uint32_t) {
          float value = 0;
          ASSERT_TRUE(session.protect("value", value).ok());
          ASSERT_TRUE(session.redistribute("value", Redistribution::same).ok());
          EXPECT_EQ(session.restart().status().code(), StatusCode::invalid_argument);
        },
        true);
  }
}

TEST(VariablesThatChange, ComeBackForAnotherNumberOfRanksOnlyIfTheyAreNotToBeIgnored) {
  const SessionPlace place;
  const auto protects = [&](uint32_t rank_count, const std::function<void(Session&, std::vector<int>&)>& act) {
    run(place, rank_count, [&](Session& session, uint32_t rank) {
      std::vector<int> mine(5, static_cast<int>(rank));
      double time = rank_count == 2 ? 1.5 : 0;
      ASSERT_TRUE(session.protect("mine", std::span(mine)).ok());
      ASSERT_TRUE(session.protect("time", time).ok());
      ASSERT_TRUE(session.redistribute("mine", Redistribution::ignore).ok());
      act(session, mine);
      EXPECT_EQ(time, 1.5);
    });
  };
  protects(2, [](Session& session, std::vector<int>&) { save(session); });
  protects(3, [](Session& session, std::vector<int>& mine) {
    std::fill(mine.begin(), mine.end(), 42);
    expect_from(session);
    EXPECT_EQ(mine, std::vector<int>(5, 42));
  });
  protects(2, [](Session& session, std::vector<int>& mine) {
    const std::vector<int> saved = mine;
    std::fill(mine.begin(), mine.end(), 42);
    expect_from(session);
    EXPECT_EQ(mine, saved) << "as many ranks as before";
  });
}

// What there is

TEST(WhatThereIs, IsTheSameOnAllRanksAndSaysHowMuchMemoryItTakes) {
  const SessionPlace place;
  const auto begin = std::chrono::system_clock::now() - std::chrono::seconds(2);
  run(place, 3, [](Session& session, uint32_t rank) {
    EXPECT_TRUE(session.restart_points().value().empty());
    EXPECT_EQ(session.saved_variables(1).status().code(), StatusCode::not_found);
    std::vector<double> slab(10 * (rank + 1));
    ArrayShape shape{{rank + 1, 10}, {}, {}, {6, 10}, {rank * (rank + 1) / 2, 0}};
    std::vector<float> particles(rank * 100);
    int32_t step = 1;
    ASSERT_TRUE(session.protect("slab", std::span(slab), shape).ok());
    ASSERT_TRUE(session.protect("particles", particles).ok());
    ASSERT_TRUE(session.protect("step", step).ok());
    ASSERT_TRUE(session.checkpoint(1, Persistence::now).ok());
    save(session, 2);
  });
  run(place, 2, [&](Session& session, uint32_t) {
    const std::vector<RestartPoint> points = session.restart_points().value();
    ASSERT_EQ(points.size(), 2u);
    EXPECT_EQ(points[0].step, 2u);
    EXPECT_EQ(points[1].step, 1u);
    EXPECT_EQ(points[0].rank_count, 3u);
    EXPECT_EQ(points[0].place, "dir:" + place.store);
    EXPECT_TRUE(points[0].made_at && *points[0].made_at > begin && *points[0].made_at <= begin + std::chrono::hours(1));

    const std::vector<SavedVariable> variables = session.saved_variables(2).value();
    ASSERT_EQ(variables.size(), 3u);
    EXPECT_EQ(variables[0].name, "particles");
    EXPECT_EQ(variables[0].bytes, 300 * sizeof(float));
    EXPECT_EQ(variables[0].parts[2].cells, (std::vector<uint64_t>{200}));
    EXPECT_EQ(variables[1].name, "slab");
    EXPECT_EQ(variables[1].type, element_type_of<double>());
    EXPECT_EQ(variables[1].global_cells, (std::vector<uint64_t>{6, 10}));
    EXPECT_EQ(variables[1].bytes, 60 * sizeof(double));
    EXPECT_EQ(variables[1].parts[2].global_offset, (std::vector<uint64_t>{3, 0}));
    EXPECT_EQ(variables[2].bytes, 3 * sizeof(int32_t));
    EXPECT_TRUE(variables[2].parts[0].cells.empty()) << "a scalar";
  });
}

}  // namespace
}  // namespace varve
