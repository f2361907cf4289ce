#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "runtime/cluster.h"
#include "runtime/ranks.h"
#include "runtime/switched_file_system.h"
#include "store/catalog.h"
#include "store/remarks.h"

// A program that chooses what it goes on from, and one that goes back.

namespace varve {
namespace {

using test::Model;
using test::model_at;
using test::run_and_kill;
using test::run_ranks;
using test::SessionPlace;

constexpr size_t kCells = 20'000;

/// A model that goes on from what it is, with another course than others of the same steps.
void go(Session& session, Model& model, uint64_t first, uint64_t last, uint64_t course = 0,
        Persistence persistence = Persistence::now) {
  for (uint64_t step = first; step <= last; ++step) {
    model.step(step + course);
    const Status made = session.checkpoint(step, persistence);
    ASSERT_TRUE(made.ok()) << made.to_string();
  }
}

/// What it comes to: `steps` of the first course, and then up to `last` of another one.
Model went(uint32_t rank, uint64_t steps, uint64_t last = 0, uint64_t course = 0) {
  Model model = model_at(rank, kCells, steps);
  for (uint64_t step = steps + 1; step <= last; ++step) model.step(step + course);
  return model;
}

struct Runs {
  SessionPlace place;
  uint32_t rank_count = 3;
  SessionOptions options = place.options();
  Runs() {
    options.codec = "store";
    options.group = "rank";
  }
  void run(const std::function<void(Session&, Model&, uint32_t rank)>& act) const {
    run_ranks(rank_count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(test::protect(*session, model).ok());
      act(*session, model, rank);
    });
  }
  void make(uint64_t last) const {
    run([&](Session& session, Model& model, uint32_t) {
      ASSERT_TRUE(session.restart().ok());
      go(session, model, 1, last);
      EXPECT_TRUE(session.finish().ok());
    });
  }
  void damage(uint64_t step) const {
    const auto store = Store::open(posix_file_system(), place.store).value();
    const SetRecord record = Catalog(*store).read({"job", step}).value();
    const std::string arena = store->arena_path(record.groups.back().hint);
    std::fstream file(arena, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(arena) / 2));
    file << "damaged!damaged!";
  }
  std::vector<uint64_t> steps() const {
    return Catalog(*Store::open(posix_file_system(), place.store).value()).steps("job").value();
  }
  void expect_whole() const { test::expect_whole(place.store); }
};

/// All in memory, and each fourth checkpoint in the store.
struct RunsInMemory : Runs {
  RunsInMemory() {
    options.store.reset();
    options.levels = "memory; dir:" + place.store + " every=4";
  }
};

TEST(Choosing, TakesTheStepThatIsNamedOrTheNewestUpToIt) {
  const Runs runs;
  runs.make(5);
  for (const auto& [choice, step] : {std::pair(RestartChoice{.exactly = 2}, 2u),
                                     {RestartChoice{.at_most = 4}, 4u},
                                     {RestartChoice{.at_most = 99}, 5u},
                                     {RestartChoice{}, 5u}}) {
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      EXPECT_EQ(session.restart(choice).value(), step);
      EXPECT_EQ(model, went(rank, step));
    });
  }
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    const Status none = session.restart({.exactly = 7}).status();
    EXPECT_EQ(none.code(), StatusCode::not_found);
    EXPECT_NE(none.to_string().find("1, 2, 3, 4, 5"), std::string::npos) << none.to_string();
    EXPECT_EQ(session.restart({.at_most = 0}).value(), std::nullopt);
    EXPECT_EQ(session.restart({.at_most = rank}).status().code(), StatusCode::invalid_argument) << "ranks differ";
    EXPECT_EQ(model, went(rank, 0)) << "nothing was loaded";
  });
}

TEST(Choosing, TakesAnOlderStepOrFailsWhereTheOneThatWasNamedIsDamaged) {
  const Runs runs;
  runs.make(3);
  runs.damage(3);
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    const Status damaged = session.restart({.exactly = 3}).status();
    EXPECT_EQ(damaged.code(), StatusCode::corrupt) << damaged.to_string();
    EXPECT_NE(damaged.to_string().find("restart from another step"), std::string::npos) << damaged.to_string();
    EXPECT_NE(damaged.to_string().find("there are 1, 2"), std::string::npos) << damaged.to_string();
    EXPECT_EQ(session.restart({.at_most = 3}).value(), 2u);
    EXPECT_EQ(model, went(rank, 2));
    EXPECT_EQ(session.restart({.exactly = 1}).value(), 1u);
    EXPECT_EQ(model, went(rank, 1));
  });
}

TEST(Choosing, LeavesLaterSetsUntilTheRunHasMadeThemAnew) {
  const Runs runs;
  runs.make(5);
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_EQ(session.restart({.exactly = 2}).value(), 2u);
    EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
    go(session, model, 3, 4, 100);
    EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
    EXPECT_TRUE(session.finish().ok());
  });
  runs.expect_whole();
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    EXPECT_EQ(session.restart().value(), 4u) << "it was made last";
    EXPECT_EQ(model, went(rank, 2, 4, 100));
    EXPECT_EQ(session.restart({.exactly = 5}).value(), 5u);
    EXPECT_EQ(model, went(rank, 5));
  });
}

TEST(Choosing, RejectsDownToNothing) {
  const Runs runs;
  runs.make(4);
  runs.damage(2);
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    EXPECT_EQ(session.reject().status().code(), StatusCode::invalid_argument) << "nothing was loaded";
    ASSERT_EQ(session.restart().value(), 4u);
    EXPECT_EQ(session.reject().value(), 3u);
    EXPECT_EQ(model, went(rank, 3));
    EXPECT_EQ(session.reject().value(), 1u) << "2 is damaged";
    EXPECT_EQ(model, went(rank, 1));
    EXPECT_EQ(session.reject().value(), std::nullopt);
    model = went(rank, 0);
    go(session, model, 1, 2, 50);
    EXPECT_EQ(session.reject().status().code(), StatusCode::invalid_argument) << "there was a checkpoint since";
    EXPECT_TRUE(session.finish().ok());
  });
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(model, went(rank, 0, 2, 50));
  });
}

TEST(Choosing, RejectsWhatWasInMemoryThoughTheStoreIsToKeepOneSet) {
  const SessionPlace place;
  test::die_with_a_snapshot(place, kCells);
  SessionOptions options = place.options();
  options.store.reset();
  options.levels = "memory; dir:" + place.store + " keep=1";
  const auto steps = [&] { return test::steps_at(place.store); };
  auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells);
  ASSERT_TRUE(test::protect(*session, model).ok());
  ASSERT_EQ(session->restart().value(), 2u);
  ASSERT_TRUE(session->wait().ok());
  EXPECT_EQ(steps(), (std::vector<uint64_t>{1, 2})) << "the program may reject what it has loaded";
  EXPECT_EQ(session->reject().value(), 1u);
  EXPECT_EQ(model, model_at(0, kCells, 1));
  go(*session, model, 3, 3);
  EXPECT_TRUE(session->finish().ok());
  EXPECT_EQ(steps(), std::vector<uint64_t>{3});
}

TEST(Choosing, TakesWhatWasMadeLastThoughThatRunHadNotAskedForWhatWasInMemory) {
  const SessionPlace place;
  test::die_with_a_snapshot(place, kCells, 7);
  run_and_kill([&] {
    test::SwitchedFileSystem files;
    const auto session = test::open_on(files, make_single_communicator(), place.options());
    Model model = model_at(0, kCells, 3);
    ASSERT_TRUE(test::protect(*session, model).ok());
    files.set(test::SwitchedFileSystem::Mode::full);
    ASSERT_TRUE(session->checkpoint(3, Persistence::later).ok());
    ASSERT_FALSE(session->wait().ok());
    ::kill(::getpid(), SIGKILL);  // with the memory as it is
  });
  auto session = Session::open(place.options());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells);
  ASSERT_TRUE(test::protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), 3u);
  EXPECT_EQ(model, model_at(0, kCells, 3));
}

TEST(GoingBack, TakesUpTheRunAtAnyOfItsCheckpointsAndReplacesWhatFollowed) {
  for (const char* const group : {"rank", "node"}) {
    Runs runs;
    runs.options.group = group;
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      ASSERT_TRUE(session.restart().ok());
      go(session, model, 1, 6, 0, Persistence::later);
      ASSERT_EQ(session.restart({.exactly = 3}).value(), 3u);
      EXPECT_EQ(model, went(rank, 3));
      EXPECT_EQ(session.progress().newest_persistent, 3u);
      go(session, model, 4, 8, 100, Persistence::later);
      ASSERT_EQ(session.restart().value(), 8u);
      EXPECT_EQ(model, went(rank, 3, 8, 100));
      EXPECT_EQ(session.reject().value(), 7u);
      EXPECT_EQ(model, went(rank, 3, 7, 100));
      go(session, model, 8, 9, 200);
      EXPECT_EQ(session.progress().newest_persistent, 9u);
      EXPECT_TRUE(session.finish().ok());
    });
    EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    runs.expect_whole();
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      ASSERT_EQ(session.restart({.at_most = 5}).value(), 5u);
      EXPECT_EQ(model, went(rank, 3, 5, 100));
    });
  }
}

TEST(GoingBack, TakesWhatIsInTheRunsOwnMemoryAlone) {
  const RunsInMemory runs;
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 6, 0, Persistence::later);
    model.step(1000);
    ASSERT_EQ(session.restart().value(), 6u);
    EXPECT_EQ(model, went(rank, 6));
    EXPECT_TRUE(session.wait().ok());
    EXPECT_EQ(session.progress().newest_persistent, 6u) << "it goes to the store at once";
    EXPECT_EQ(session.reject().value(), 4u);
    EXPECT_EQ(model, went(rank, 4));
    EXPECT_EQ(session.restart().value(), 4u) << "it stays rejected";
    EXPECT_EQ(session.restart({.exactly = 6}).value(), 6u) << "unless it is named";
    EXPECT_EQ(model, went(rank, 6));
    EXPECT_TRUE(session.finish().ok());
  });
}

TEST(GoingBack, LeavesNothingOfARejectedCheckpointInWhatTheOlderOneLacks) {
  Runs runs;
  runs.options.variables_may_change = true;
  runs.make(2);
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    double added = 0;
    ASSERT_TRUE(session.protect("added", added).ok());
    ASSERT_EQ(session.restart().value(), 2u);
    added = 3;
    go(session, model, 3, 3);
    ASSERT_EQ(session.restart().value(), 3u);
    const Status refused = session.reject().status();
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
    EXPECT_NE(refused.to_string().find("'added'"), std::string::npos) << refused.to_string();
    ASSERT_TRUE(session.unprotect("added").ok());
    added = 0;
    ASSERT_TRUE(session.protect("added", added).ok());
    EXPECT_EQ(session.reject().value(), 2u);
    EXPECT_EQ(model, went(rank, 2));
    EXPECT_EQ(added, 0);
    EXPECT_TRUE(session.finish().ok());
  });
}

/// Makes six checkpoints, of which the store gets the fourth alone, and goes on from the sixth in the same run.
void go_on_from_memory(const Runs& runs, const std::function<void()>& before_last_rank_saves_it, bool unprotects) {
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    bool goes_on = false;
    std::vector<std::byte> values(1);
    const auto bytes = [&]() -> std::span<const std::byte> {
      if (goes_on && rank + 1 == runs.rank_count) before_last_rank_saves_it();
      return values;
    };
    const auto resize = [&](uint64_t count) -> std::span<std::byte> {
      values.resize(count);
      return values;
    };
    ASSERT_TRUE(session.protect_vector("values", element_type_of<std::byte>(), bytes, resize).ok());
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 6, 0, Persistence::later);
    EXPECT_TRUE(session.wait().ok());
    goes_on = true;
    if (unprotects) {
      EXPECT_TRUE(session.unprotect("values").ok());
    }
    EXPECT_EQ(session.restart().value(), 6u);
    ::kill(::getpid(), SIGKILL);
  });
}

TEST(GoingBack, KeepsWhatItGoesOnFromInMemoryAloneUntilItIsSaved) {
  struct Way {
    const char* name;
    std::function<void()> before_it_is_saved;
    bool unprotects;
  };
  const std::vector<Way> ways = {
      {"killed", [] { ::kill(::getpid(), SIGKILL); }, false},
      {"fails", [] { throw std::runtime_error("not now"); }, false},
      {"has a variable less", [] {}, true},
  };
  for (const auto& [name, before_it_is_saved, unprotects] : ways) {
    SCOPED_TRACE(name);
    RunsInMemory runs;
    runs.options.variables_may_change = true;
    run_and_kill([&, &first = before_it_is_saved, less = unprotects] { go_on_from_memory(runs, first, less); });
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      EXPECT_EQ(session.restart().value(), 6u);
      EXPECT_EQ(model, went(rank, 6));
    });
  }
}

TEST(GoingBack, TakesWhatItHasKeptInMemoryAloneAgain) {
  RunsInMemory runs;
  runs.options.variables_may_change = true;
  const auto save = [](std::vector<std::byte>& bytes) -> Status {
    bytes.resize(1);
    return {};
  };
  const auto load = [](std::span<const std::byte>) { return Status(); };
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.protect("object", save, load).ok());
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 6, 0, Persistence::later);
    EXPECT_TRUE(session.wait().ok());
    EXPECT_TRUE(session.unprotect("object").ok());
    EXPECT_EQ(session.restart().value(), 6u) << "it stays in memory, as it has more than what is protected";
    ASSERT_TRUE(session.protect("object", save, load).ok());
    model.step(1000);
    EXPECT_EQ(session.restart().value(), 6u);
    EXPECT_EQ(model, went(rank, 6));
    EXPECT_TRUE(session.finish().ok());
  });
  EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{4, 6}));
  runs.expect_whole();
}

TEST(GoingBack, LeavesWhatItWentOnFromInMemoryAloneThereIfItsSaveFailsUntilTheEnd) {
  RunsInMemory runs;
  test::SwitchedFileSystem files;
  runs.rank_count = 1;
  {
    auto session = test::open_on(files, make_single_communicator(), runs.options);
    Model model(0, kCells);
    ASSERT_TRUE(test::protect(*session, model).ok());
    ASSERT_TRUE(session->restart().ok());
    for (uint64_t step = 1; step <= 6; ++step) {
      model.step(step);
      ASSERT_TRUE(session->checkpoint(step, Persistence::later).ok());
    }
    EXPECT_TRUE(session->wait().ok());
    files.set(test::SwitchedFileSystem::Mode::full);
    EXPECT_EQ(session->restart().value(), 6u);
    EXPECT_EQ(session->finish(std::chrono::seconds(60)).code(), StatusCode::no_space);
  }
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    EXPECT_EQ(session.restart().value(), 6u);
    EXPECT_EQ(model, went(rank, 6));
  });
}

// As another run, so that it is not taken for what was rejected.
TEST(GoingBack, TakesAStepThatWasMadeAnewInMemoryThoughThatOfItsNameWasRejected) {
  const RunsInMemory runs;
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 6, 0, Persistence::later);
    ASSERT_EQ(session.restart().value(), 6u);
    ASSERT_EQ(session.reject().value(), 4u);
    go(session, model, 5, 6, 100, Persistence::later);
    EXPECT_EQ(session.restart().value(), 6u);
    EXPECT_EQ(model, went(rank, 4, 6, 100));
    EXPECT_TRUE(session.finish().ok());
  });
}

/// What a level that is farther away has got, for who has lost all else.
void expect_far(const Runs& of, const std::string& far, uint64_t step, const std::function<Model(uint32_t)>& expected) {
  Runs runs;
  runs.options.store.reset();
  runs.options.levels = "dir:" + far;
  runs.rank_count = of.rank_count;
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_EQ(session.restart({.exactly = step}).value(), step);
    EXPECT_EQ(model, expected(rank));
  });
}

TEST(GoingBack, BringsWhatIsMadeAnewToALevelOnTheWayToWhichIsStillTheOldSet) {
  Runs runs;
  const std::string far = runs.place.folder / "far";
  runs.options.store.reset();
  runs.options.levels = "dir:" + runs.place.store + "; dir:" + far + " bandwidth=2MB/s";
  constexpr uint64_t kCourses = 4;
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 1);
    for (uint64_t course = 1; course <= kCourses; ++course) {
      if (course > 1) {
        ASSERT_EQ(session.restart({.at_most = 1}).value(), 1u);
      }
      go(session, model, 2, 2, course);
    }
    EXPECT_TRUE(session.finish().ok());
  });
  expect_far(runs, far, 2, [](uint32_t rank) { return went(rank, 1, 2, kCourses); });
}

TEST(GoingBack, AndForwardAgainOwesFartherLevelsAllThatItGoesOnFrom) {
  Runs runs;
  const std::string far = runs.place.folder / "far";
  runs.options.store.reset();
  runs.options.levels = "dir:" + runs.place.store;
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_TRUE(session.restart().ok());
    go(session, model, 1, 6);
    EXPECT_TRUE(session.finish().ok());
  });
  runs.options.levels = "dir:" + runs.place.store + " keep=1; dir:" + far;
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_EQ(session.restart({.at_most = 3}).value(), 3u);
    ASSERT_EQ(session.restart({.exactly = 6}).value(), 6u);
    go(session, model, 7, 8);
    EXPECT_TRUE(session.finish().ok());
  });
  for (uint64_t step = 1; step <= 8; ++step)
    expect_far(runs, far, step, [&](uint32_t rank) { return went(rank, step); });
}

TEST(GoingBack, BringsToAFartherLevelWhatWasMadeAnewWhileNobodyCouldBringItThere) {
  Runs runs;
  const std::string far = runs.place.folder / "far";
  const std::string near = "dir:" + runs.place.store, both = near + "; dir:" + far;
  runs.options.store.reset();
  runs.options.levels = both;
  runs.make(3);
  runs.options.levels = near;
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_EQ(session.restart({.at_most = 1}).value(), 1u);
    go(session, model, 2, 4, 100);
    EXPECT_TRUE(session.finish().ok());
  });
  runs.options.levels = both;
  runs.run([&](Session& session, Model&, uint32_t) {
    ASSERT_EQ(session.restart().value(), 4u);
    const Status finished = session.finish();
    EXPECT_TRUE(finished.ok()) << finished.to_string();
  });
  for (const uint64_t step : {uint64_t{2}, uint64_t{3}, uint64_t{4}})
    expect_far(runs, far, step, [&](uint32_t rank) { return went(rank, 1, step, 100); });
}

TEST(GoingBack, LeavesWhatIsTakenFromAFartherLevelThereWhenWhatWasMadeAnewIsRejected) {
  // The run has to reject the new set before that takes the old one's place.
  bool in_time = false;
  for (int tries = 0; tries < 20 && !in_time; ++tries) {
    Runs runs;
    const std::string far = runs.place.folder / "far", near = "dir:" + runs.place.store;
    runs.options.store.reset();
    runs.options.levels = near + "; dir:" + far;
    runs.make(2);
    runs.options.levels = near;
    runs.run([&](Session& session, Model& model, uint32_t) {
      ASSERT_EQ(session.restart({.at_most = 1}).value(), 1u);
      go(session, model, 2, 2, 100);
      EXPECT_TRUE(session.finish().ok());
    });
    runs.options.levels = near + "; dir:" + far;
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      ASSERT_EQ(session.restart().value(), 2u);
      EXPECT_EQ(model, went(rank, 1, 2, 100));
      const std::optional<uint64_t> taken = session.reject().value();
      if (rank == 0) in_time = taken == 2u;
      EXPECT_EQ(model, went(rank, *taken)) << "of the first course";
      EXPECT_TRUE(session.finish().ok());
    });
    if (in_time) expect_far(runs, far, 2, [](uint32_t rank) { return went(rank, 2); });
  }
  EXPECT_TRUE(in_time);
}

TEST(GoingBack, LeavesAPinnedSetAtAFartherLevelAndBringsTheLaterOnesThere) {
  Runs runs;
  const std::string far = runs.place.folder / "far";
  runs.options.store.reset();
  runs.options.levels = "dir:" + runs.place.store + "; dir:" + far;
  runs.make(3);
  const auto store = Store::open(posix_file_system(), far).value();
  ASSERT_TRUE(Remarks(*store).pin({"job", 3}).ok());
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_EQ(session.restart({.at_most = 2}).value(), 2u);
    go(session, model, 3, 5, 100);
    session.finish().ignore("it says that step 3 is not there");
  });
  expect_far(runs, far, 3, [](uint32_t rank) { return went(rank, 3); });
  for (const uint64_t step : {uint64_t{4}, uint64_t{5}})
    expect_far(runs, far, step, [step](uint32_t rank) { return went(rank, 2, step, 100); });
}

TEST(GoingBack, FailsTheCheckpointOfAStepOfWhichTheSetIsPinned) {
  const Runs runs;
  runs.make(3);
  ASSERT_TRUE(Remarks(*Store::open(posix_file_system(), runs.place.store).value()).pin({"job", 3}).ok());
  runs.run([&](Session& session, Model& model, uint32_t) {
    ASSERT_EQ(session.restart({.at_most = 2}).value(), 2u);
    model.step(103);
    const Status made = session.checkpoint(3, Persistence::now);
    EXPECT_EQ(made.code(), StatusCode::permission_denied) << made.to_string();
    model.step(104);
    EXPECT_TRUE(session.checkpoint(4, Persistence::now).ok());
    EXPECT_TRUE(session.finish().ok());
  });
  expect_far(runs, runs.place.store, 3, [](uint32_t rank) { return went(rank, 3); });
  expect_far(runs, runs.place.store, 4, [](uint32_t rank) { return went(rank, 2, 4, 100); });
}

TEST(GoingBack, KnowsWhatIsInMemoryAloneFromTheSetOfTheSameStepThatItReplaces) {
  Runs runs;
  runs.options.store.reset();
  runs.options.levels = "memory; dir:" + runs.place.store + " every=4";
  constexpr uint64_t kCourse = 100;
  run_and_kill([&] {
    std::atomic<uint32_t> made = 0;
    runs.run([&](Session& session, Model& model, uint32_t) {
      ASSERT_TRUE(session.restart().ok());
      go(session, model, 1, 8, 0, Persistence::later);
      ASSERT_EQ(session.restart({.exactly = 4}).value(), 4u);
      for (uint64_t step = 5; step <= 8; ++step) model.step(step + kCourse);
      ASSERT_TRUE(session.checkpoint(8).ok());
      ++made;
      while (made < runs.rank_count) std::this_thread::yield();
      ::kill(::getpid(), SIGKILL);
    });
  });
  EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{4, 8}));
  runs.run([&](Session& session, Model& model, uint32_t rank) {
    ASSERT_EQ(session.restart().value(), 8u);
    EXPECT_EQ(model, went(rank, 4, 8, kCourse));
    const Status saved = session.wait();
    EXPECT_TRUE(saved.ok()) << saved.to_string();
    EXPECT_EQ(session.progress().newest_persistent, 8u);
    EXPECT_TRUE(session.finish().ok());
  });
  expect_far(runs, runs.place.store, 8, [](uint32_t rank) { return went(rank, 4, 8, kCourse); });
}

TEST(GoingBack, LosesNothingIfTheRunIsKilledWhileItReplacesASet) {
  for (const uint64_t killed_at : {uint64_t{3}, uint64_t{4}, uint64_t{5}}) {
    const Runs runs;
    run_and_kill([&] {
      std::atomic<uint32_t> made = 0;
      runs.run([&](Session& session, Model& model, uint32_t rank) {
        ASSERT_TRUE(session.restart().ok());
        go(session, model, 1, 5);
        ASSERT_EQ(session.restart({.exactly = 2}).value(), 2u);
        go(session, model, 3, killed_at - 1, 100);
        // One rank lacks its part.
        model.step(killed_at + 100);
        if (rank != 1) {
          ASSERT_TRUE(session.checkpoint(killed_at).ok());
          ++made;
        }
        while (made < runs.rank_count - 1) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        ::kill(::getpid(), SIGKILL);
      });
    });
    EXPECT_EQ(runs.steps(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
    runs.run([&](Session& session, Model& model, uint32_t rank) {
      const auto from = session.restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      if (killed_at == 3) {
        ASSERT_EQ(*from, 5u) << "nothing newer was whole";
        EXPECT_EQ(model, went(rank, 5));
      } else {
        ASSERT_EQ(*from, killed_at - 1);
        EXPECT_EQ(model, went(rank, 2, killed_at - 1, 100));
      }
      ASSERT_EQ(session.restart({.exactly = 5}).value(), 5u);
      EXPECT_EQ(model, went(rank, 5)) << "it is there as it was";
    });
  }
}

TEST(GoingBack, IsForNodesWithStoresOfTheirOwnToo) {
  test::Cluster cluster;
  const std::string levels = "local:" + cluster.local + "; xor:3; dir:" + cluster.far + " every=2";
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_TRUE(session.restart().ok());
    test::Cluster::go(session, model, 1, 4);
    const auto back = session.restart({.exactly = 2});
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(model, model_at(rank, test::Cluster::kCells, 2));
    EXPECT_EQ(session.progress().newest_persistent, 2u);
    test::Cluster::go(session, model, 3, 3);
    test::Cluster::finish(session);
  });
  std::filesystem::remove_all(cluster.node_path("b"));
  EXPECT_NE(cluster.restart_from(levels, 3, 6).find("rebuilt"), std::string::npos);
  for (const std::string& node : cluster.nodes) test::expect_whole(cluster.node_path(node));
  test::expect_whole(cluster.far);
}

TEST(GoingBack, DoesNotMixWhatNodesHaveOfBothCourses) {
  test::Cluster cluster;
  const std::string levels = "local:" + cluster.local, kept = cluster.place.folder / "kept";
  cluster.run(levels, [&](uint32_t rank, RunSession& session, Model& model) {
    ASSERT_TRUE(session.restart().ok());
    test::Cluster::go(session, model, 1, 4);
    if (rank == 0) std::filesystem::copy(cluster.node_path("a"), kept, std::filesystem::copy_options::recursive);
    ASSERT_EQ(session.restart({.exactly = 2}).value(), 2u);
    test::Cluster::go(session, model, 3, 3);
    test::Cluster::finish(session);
  });
  // One node had not come to replace its part of step 3.
  std::filesystem::remove_all(cluster.node_path("a"));
  std::filesystem::rename(kept, cluster.node_path("a"));
  EXPECT_NE(cluster.restart_from(levels, 4, 4).find("made by different runs"), std::string::npos);
}

TEST(GoingBack, AsksWhereWhatWasLentIsToComeBack) {
  const SessionPlace place;
  auto session = Session::open(place.options());
  ASSERT_TRUE(session.ok());
  std::span<double> grid = session->make_grid<double>("grid", 1000).value();
  std::span<double> other = session->make_grid<double>("grid", 1000).value();
  ASSERT_TRUE(session->protect("grid", grid).ok());
  ASSERT_TRUE(session->restart().ok());
  std::fill(grid.begin(), grid.end(), 1.0);
  std::span<double> spare = session->lend("grid", grid).value();
  ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
  std::fill(other.begin(), other.end(), 2.0);
  const Status refused = session->restart().status();
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << refused.to_string();
  EXPECT_NE(refused.to_string().find("variable 'grid'"), std::string::npos);
  ASSERT_TRUE(session->protect("grid", spare).ok());
  ASSERT_EQ(session->restart().value(), 1u);
  EXPECT_EQ(spare[999], 1.0);
  std::fill(spare.begin(), spare.end(), 3.0);
  ASSERT_TRUE(session->lend("grid", spare).ok());
  ASSERT_TRUE(session->checkpoint(2, Persistence::now).ok());
  EXPECT_TRUE(session->finish().ok());
}

}  // namespace
}  // namespace varve
