#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>

#include "core/faulty_file_system.h"
#include "engine/save.h"
#include "runtime/ranks.h"
#include "runtime/switched_file_system.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::die_with_a_snapshot;
using test::Model;
using test::model_at;
using test::open_on;
using test::run_ranks;
using test::SessionPlace;
using test::SwitchedFileSystem;
using Mode = SwitchedFileSystem::Mode;

constexpr size_t kCells = 20'000;

/// Runs steps until `last`, each with a checkpoint, and ends the session.
void run_to(Session& session, Model& model, uint64_t first, uint64_t last) {
  for (uint64_t step = first; step <= last; ++step) {
    model.step(step);
    if (session.due(step)) {
      const Status made = session.checkpoint(step);
      EXPECT_TRUE(made.ok()) << made.to_string();
    }
  }
  const Status finished = session.finish();
  EXPECT_TRUE(finished.ok()) << finished.to_string();
}

class ASessionOfRanks : public testing::TestWithParam<uint32_t> {
 protected:
  SessionPlace place;
};

INSTANTIATE_TEST_SUITE_P(Ranks, ASessionOfRanks, testing::Values(1, 2, 4, 8));

TEST_P(ASessionOfRanks, ReportsWhereTheTimeOfItsCheckpointsWent) {
  for (const char* effort : {"auto", "best"}) {
    const SessionPlace own;
    auto options = own.options();
    options.effort = effort;
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      run_to(*session, model, 1, 3);
      if (rank != 0) return;
      const std::string json = session->report_json();
      const auto number = [&](const std::string& key) {
        const size_t at = json.find('"' + key + "\":");
        EXPECT_NE(at, std::string::npos) << key << " in " << json;
        return at == std::string::npos ? -1.0 : std::stod(json.substr(at + key.size() + 3));
      };
      EXPECT_EQ(number("persistent_count"), 3) << json;
      EXPECT_GT(number("score_seconds"), 0) << json;
      EXPECT_GT(number("write_seconds"), 0) << json;
      EXPECT_GT(number("sync_seconds"), 0) << json;
      EXPECT_GE(number("starved_seconds"), 0) << json;
      EXPECT_LE(number("read_seconds") + number("score_seconds") + number("encode_seconds"),
                number("drain_processor_seconds"))
          << "parts of the whole: " << json;
      EXPECT_EQ(number("full_effort_count") + number("fast_effort_count") + number("no_effort_count"), 3) << json;
      const bool adapts = json.find("\"effort_adapts\":true") != std::string::npos;
      EXPECT_EQ(adapts, options.effort == "auto") << json;
      if (!adapts) {
        EXPECT_EQ(number("late_effort_count") + number("awaited_effort_count"), 0) << json;
      }
    });
  }
}

TEST_P(ASessionOfRanks, GoesOnFromItsLastCheckpoint) {
  for (const char* group : {"node", "rank", "3"}) {
    SCOPED_TRACE(group);
    const SessionPlace own;
    auto options = own.options();
    options.group = group;
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      EXPECT_EQ(session->restart().value(), std::nullopt);
      run_to(*session, model, 1, 3);
    });
    EXPECT_EQ(own.memory_files(), 0u);
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      const auto from = session->restart();
      ASSERT_TRUE(from.ok()) << from.status().to_string();
      EXPECT_EQ(*from, 3u);
      EXPECT_EQ(model, model_at(rank, kCells, 3));
      run_to(*session, model, 4, 6);
      EXPECT_EQ(model, model_at(rank, kCells, 6));
    });
    const auto store = Store::open(posix_file_system(), own.store).value();
    EXPECT_EQ(Catalog(*store).steps("job").value(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(Catalog(*store).read({"job", 6}).value().rank_count, GetParam());
    EXPECT_TRUE(list_parts(*store).value().empty());
  }
}

std::vector<uint64_t> steps_in(const SessionPlace& place) {
  const auto store = Store::open(posix_file_system(), place.store).value();
  return Catalog(*store).steps("job").value();
}

/// The step from which a new session goes on; its model is as it should be then.
uint64_t restarted_step(const SessionPlace& place) {
  Model model(0, kCells);
  auto session = Session::open(place.options());
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_TRUE(protect(*session, model).ok());
  const auto from = session->restart();
  EXPECT_TRUE(from.ok()) << from.status().to_string();
  EXPECT_EQ(model, model_at(0, kCells, (*from).value()));
  EXPECT_TRUE(session->finish().ok());
  return (*from).value();
}

// What happens while the checkpoint before is being written

TEST_P(ASessionOfRanks, WaitsForTheCheckpointBeforeUnlessToldOtherwise) {
  SwitchedFileSystem files;
  std::atomic<bool> released = false;
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), place.options());
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    model.step(1);
    if (rank == 0) files.set(Mode::held);
    ASSERT_TRUE(session->checkpoint(1, Persistence::later).ok());
    if (rank == 0) {
      files.await_held();
      released = true;
      files.set(Mode::normal);
    }
    model.step(2);
    ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
    EXPECT_TRUE(released);
    EXPECT_TRUE(session->finish(std::chrono::hours(1)).ok());
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2}));
}

TEST_P(ASessionOfRanks, LeavesACheckpointOutOnAllRanksWhileTheOneBeforeIsBusy) {
  SwitchedFileSystem files;
  auto options = place.options();
  options.when_busy = WhenBusy::skip;
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    if (rank == 0) files.set(Mode::held);
    model.step(1);
    ASSERT_TRUE(session->checkpoint(1, Persistence::later).ok());
    if (rank == 0) files.await_held();
    model.step(2);
    ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
    EXPECT_EQ(session->progress().skipped, 1u);
    files.set(Mode::normal);
    ASSERT_TRUE(session->wait().ok());
    model.step(3);
    ASSERT_TRUE(session->checkpoint(3, Persistence::now).ok());
    EXPECT_EQ(session->progress().newest_persistent, 3u);
    EXPECT_TRUE(session->finish(std::chrono::hours(1)).ok());
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 3}));
}

TEST_P(ASessionOfRanks, WithTwoSlotsGoesOnWhileOneIsWritten) {
  SwitchedFileSystem files;
  auto options = place.options();
  options.when_busy = WhenBusy::two_slots;
  std::atomic<uint32_t> through = 0;
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    if (rank == 0) files.set(Mode::held);
    model.step(1);
    ASSERT_TRUE(session->checkpoint(1, Persistence::later).ok());
    if (rank == 0) files.await_held();
    model.step(2);
    // Would never return if it waited for the first.
    ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
    if (++through == GetParam()) files.set(Mode::normal);
    model.step(3);
    ASSERT_TRUE(session->checkpoint(3, Persistence::later).ok());
    EXPECT_TRUE(session->finish(std::chrono::hours(1)).ok());
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(ASession, HasItsCheckpointsCompletedThoughTheProgramMakesNoFurtherCall) {
  const SessionPlace place;
  auto session = Session::open(place.options());
  ASSERT_TRUE(session.ok());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  ASSERT_TRUE(session->checkpoint(1).ok());
  while (steps_in(place).empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(ASession, IsFinishedByItsDestructor) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_TRUE(session->checkpoint(1).ok());
  }
  EXPECT_EQ(steps_in(place), std::vector<uint64_t>{1});
  EXPECT_EQ(place.memory_files(), 0u);
}

TEST_P(ASessionOfRanks, GivesTheNewestCheckpointUpWhenTimeRunsOut) {
  SwitchedFileSystem files;
  std::atomic<uint32_t> through = 0;
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), place.options());
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    if (rank == 0) files.set(Mode::held);
    ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
    if (rank == 0) files.await_held();
    std::thread release;
    if (++through == GetParam()) {
      // The engine stops at the next point where it can, once the disk answers.
      release = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        files.set(Mode::normal);
      });
    }
    EXPECT_EQ(session->finish(std::chrono::duration<double>(0)).code(), StatusCode::busy);
    if (release.joinable()) release.join();
  });
  EXPECT_EQ(place.memory_files(), 0u);
  const std::vector<uint64_t> steps = steps_in(place);
  ASSERT_FALSE(steps.empty());
  EXPECT_EQ(steps[0], 1u);
}

// What fails

TEST_P(ASessionOfRanks, SavesOnAFullDiskOnceOlderSetsHaveMadeRoom) {
  SwitchedFileSystem files;
  auto options = place.options();
  options.keep_last = 1;
  files.only_below(place.store + "/arenas/");
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    for (uint64_t step = 1; step <= 3; ++step) {
      model.step(step);
      ASSERT_TRUE(session->checkpoint(step, Persistence::now).ok());
    }
    // The arenas of the first two are still there.
    if (rank == 0) files.set(Mode::full_until_freed);
    model.step(4);
    const Status saved = session->checkpoint(4, Persistence::now);
    EXPECT_TRUE(saved.ok()) << saved.to_string();
    EXPECT_EQ(session->progress().newest_persistent, 4u);
  });
  EXPECT_EQ(steps_in(place), std::vector<uint64_t>{4});
}

TEST_P(ASessionOfRanks, GoesOnWhenTheDiskIsFullAndSaysSo) {
  for (const char* group : {"node", "rank"}) {
    const SessionPlace own;
    auto options = own.options();
    options.group = group;
    SwitchedFileSystem files;
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = open_on(files, std::move(ranks), options);
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      model.step(1);
      ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
      if (rank == 0) files.set(Mode::full);
      model.step(2);
      EXPECT_EQ(session->checkpoint(2, Persistence::now).code(), StatusCode::no_space);
      // A group that had room may only know that another had none.
      const StatusCode known = session->progress().last_error.code();
      EXPECT_TRUE(known == StatusCode::no_space || (options.group == "rank" && known == StatusCode::io_error));
      model.step(3);
      EXPECT_TRUE(session->checkpoint(3, Persistence::later).ok());
      EXPECT_FALSE(session->wait().ok());
      EXPECT_EQ(session->progress().newest_persistent, 1u);
    });
    EXPECT_EQ(steps_in(own), std::vector<uint64_t>{1});
    files.set(Mode::normal);
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = open_on(files, std::move(ranks), options);
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      EXPECT_EQ(session->restart().value(), 1u);
      EXPECT_EQ(model, model_at(rank, kCells, 1));
    });
  }
}

TEST(ASession, KeepsEarlierSetsWhateverOperationOfTheNextOneFails) {
  for (const FaultKind kind : {FaultKind::no_space, FaultKind::io_error, FaultKind::failed_sync}) {
    for (uint64_t operation = 0;; operation += 1) {
      const SessionPlace place;
      {
        auto first = Session::open(place.options());
        Model model(0, kCells);
        ASSERT_TRUE(protect(*first, model).ok());
        model.step(1);
        ASSERT_TRUE(first->checkpoint(1, Persistence::now).ok());
        ASSERT_TRUE(first->finish().ok());
      }
      FaultyFileSystem files(posix_file_system(), {{kind, operation, /*persistent=*/true}});
      {
        SCOPED_TRACE(operation);
        const auto session = open_on(files, make_single_communicator(), place.options());
        ASSERT_TRUE(session);
        Model model(0, kCells);
        ASSERT_TRUE(protect(*session, model).ok());
        ASSERT_EQ(session->restart().value(), 1u);
        model.step(2);
        const Status made = session->checkpoint(2, Persistence::now);
        if (made.ok()) {
          EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2}));
        }
        EXPECT_EQ(session->progress().last_error.ok(), made.ok());
      }
      // A part that was published before the store failed is made a set by the restart.
      const std::vector<uint64_t> steps = steps_in(place);
      EXPECT_EQ(steps.front(), 1u);
      EXPECT_GE(restarted_step(place), steps.back());
      if (!files.struck()) break;
    }
  }
}

TEST_P(ASessionOfRanks, DoesWithoutACheckpointOfWhichOneRankHasNoSnapshot) {
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    ASSERT_TRUE(session.ok());
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    bool fails = false;
    ASSERT_TRUE(session
                    ->protect(
                        "object",
                        [&](std::vector<std::byte>&) { return fails ? Status::internal("not now") : Status(); },
                        [](std::span<const std::byte>) { return Status(); })
                    .ok());
    EXPECT_TRUE(session->checkpoint(1).ok());
    fails = rank == GetParam() - 1;
    EXPECT_EQ(session->checkpoint(2).ok(), !fails);
    EXPECT_FALSE(session->wait().ok() && !fails) << "the others are told";
    fails = false;
    EXPECT_TRUE(session->checkpoint(3, Persistence::now).ok());
    fails = rank == 0;
    EXPECT_FALSE(session->checkpoint(4, Persistence::now).ok()) << "on all ranks";
    EXPECT_FALSE(session->progress().last_error.ok());
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 3}));
}

// Restart

void flip_bytes_in_the_middle(const std::string& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
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

TEST_P(ASessionOfRanks, FallsBackTogetherBehindWhatIsDamagedOnOneRank) {
  auto options = place.options();
  options.group = "rank";
  options.codec = "store";
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    run_to(*session, model, 1, 3);
  });
  {
    const auto store = Store::open(posix_file_system(), place.store).value();
    const SetRecord record = Catalog(*store).read({"job", 3}).value();
    flip_bytes_in_the_middle(store->arena_path(record.groups.back().hint));
  }
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 2u);
    EXPECT_EQ(model, model_at(rank, kCells, 2));
    const std::vector<Status> warnings = session->warnings();
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].to_string().find("step 3"), std::string::npos) << warnings[0].to_string();
    if (GetParam() > 1) {
      EXPECT_NE(warnings[0].to_string().find("rank " + std::to_string(GetParam() - 1)), std::string::npos);
    }
    // The damaged set's step comes again, and may take its place.
    run_to(*session, model, 3, 4);
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2, 3, 4}));
  {
    const auto store = Store::open(posix_file_system(), place.store).value();
    for (const Damage& damage : verify_store(*store, /*deep=*/true).value().damages) {
      EXPECT_TRUE(damage.affected_sets.empty()) << damage.what.to_string();
    }
  }
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 4u);
    EXPECT_EQ(model, model_at(rank, kCells, 4));
  });
}

TEST(ASession, DoesNotReplaceASetFromWhichItDidNotFallBack) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    run_to(*session, model, 1, 2);
  }
  auto session = Session::open(place.options());
  Model other(7, kCells);
  ASSERT_TRUE(protect(*session, other).ok());
  EXPECT_EQ(session->checkpoint(2, Persistence::now).code(), StatusCode::already_exists);
  EXPECT_EQ(session->progress().last_error.code(), StatusCode::already_exists);
  EXPECT_TRUE(session->checkpoint(3, Persistence::now).ok());
  EXPECT_TRUE(session->finish().ok());
  const auto store = Store::open(posix_file_system(), place.store).value();
  ASSERT_TRUE(Catalog(*store).remove({"job", 3}).ok());
  EXPECT_EQ(restarted_step(place), 2u);
}

TEST(ASession, RefusesAnotherNumberOfRanksAndHarmsNothing) {
  const SessionPlace place;
  auto open_with = [&](uint32_t count, const std::function<void(uint32_t, Session&, Model&)>& body) {
    run_ranks(count, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), place.options());
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      body(rank, *session, model);
    });
  };
  open_with(4, [](uint32_t, Session& session, Model& model) { run_to(session, model, 1, 2); });
  for (const uint32_t count : {1u, 2u, 8u}) {
    open_with(count, [&](uint32_t rank, Session& session, Model& model) {
      const Status refused = session.restart().status();
      EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
      EXPECT_NE(refused.to_string().find("variable 'field'"), std::string::npos) << refused.to_string();
      EXPECT_NE(refused.to_string().find("4 ranks"), std::string::npos) << refused.to_string();
      EXPECT_NE(refused.to_string().find("has " + std::to_string(count)), std::string::npos) << refused.to_string();
      EXPECT_EQ(model, Model(rank, kCells));
    });
  }
  open_with(4, [](uint32_t rank, Session& session, Model& model) {
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_EQ(model, model_at(rank, kCells, 2));
  });
}

TEST(ASession, RefusesToLoadWhatDoesNotFit) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    std::vector<double> array(100, 1.0);
    double scalar = 2;
    ASSERT_TRUE(session->protect("array", std::span(array)).ok());
    ASSERT_TRUE(session->protect("scalar", scalar).ok());
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
  }
  auto session = Session::open(place.options());
  std::vector<double> shorter(99, 5.0);
  double scalar = 6;
  ASSERT_TRUE(session->protect("array", std::span(shorter)).ok());
  ASSERT_TRUE(session->protect("scalar", scalar).ok());
  EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument);
  std::vector<float> floats(100, 5.0F);
  EXPECT_EQ(session->protect("array", std::span(floats)).code(), StatusCode::invalid_argument) << "another type";
  ASSERT_TRUE(session->unprotect("array").ok());
  EXPECT_EQ(session->unprotect("array").code(), StatusCode::not_found);
  EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument) << "a variable is missing";
  ASSERT_TRUE(session->protect("array", std::span(floats)).ok());
  EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument) << "of another type";
  EXPECT_EQ(shorter, std::vector<double>(99, 5.0));
  EXPECT_EQ(floats, std::vector<float>(100, 5.0F));
  EXPECT_EQ(scalar, 6);
  ASSERT_TRUE(session->unprotect("array").ok());
  std::vector<double> array(100);
  ASSERT_TRUE(session->protect("array", std::span(array)).ok());
  EXPECT_EQ(session->restart().value(), 1u);
  EXPECT_EQ(array, std::vector<double>(100, 1.0));
  EXPECT_EQ(scalar, 2);
}

TEST(ASession, RefusesStepsThatDoNotGrowAndCheckpointsOfNothing) {
  const SessionPlace place;
  auto session = Session::open(place.options());
  EXPECT_EQ(session->checkpoint(1).code(), StatusCode::invalid_argument) << "nothing is protected";
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_TRUE(session->checkpoint(5).ok());
  EXPECT_EQ(session->checkpoint(5).code(), StatusCode::invalid_argument);
  EXPECT_EQ(session->checkpoint(4).code(), StatusCode::invalid_argument);
  EXPECT_EQ(session->restart().value(), 5u);
  EXPECT_EQ(session->checkpoint(5).code(), StatusCode::invalid_argument) << "it is what the run goes on from";
  EXPECT_TRUE(session->finish().ok());
  EXPECT_EQ(session->checkpoint(6).code(), StatusCode::invalid_argument) << "it has ended";
  EXPECT_FALSE(session->report().empty());
}

TEST(ASession, RefusesAJobThatIsRunningAlready) {
  const SessionPlace place;
  auto first = Session::open(place.options());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Session::open(place.options()).status().code(), StatusCode::busy);
  auto options = place.options();
  options.job = "another";
  const Status other = Session::open(options).status();
  EXPECT_TRUE(other.ok()) << other.to_string();
  ASSERT_TRUE(first->finish().ok());
  EXPECT_TRUE(Session::open(place.options()).ok());
}

TEST(ASession, BringsBackVectorsOfAnySizeAndObjects) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    std::vector<int32_t> grown(1000, 3);
    ASSERT_TRUE(session->protect("grown", grown).ok());
    ASSERT_TRUE(session
                    ->protect(
                        "object",
                        [](std::vector<std::byte>& out) {
                          out.assign(17, std::byte{42});
                          return Status();
                        },
                        [](std::span<const std::byte>) { return Status(); })
                    .ok());
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    grown.resize(5000, 4);
    ASSERT_TRUE(session->checkpoint(2, Persistence::now).ok());
  }
  auto session = Session::open(place.options());
  std::vector<int32_t> grown;
  std::vector<std::byte> loaded;
  ASSERT_TRUE(session->protect("grown", grown).ok());
  ASSERT_TRUE(session
                  ->protect(
                      "object", [](std::vector<std::byte>&) { return Status(); },
                      [&](std::span<const std::byte> bytes) {
                        loaded.assign(bytes.begin(), bytes.end());
                        return Status();
                      })
                  .ok());
  EXPECT_EQ(session->restart().value(), 2u);
  ASSERT_EQ(grown.size(), 5000u);
  EXPECT_EQ(grown[999], 3);
  EXPECT_EQ(grown[1000], 4);
  EXPECT_EQ(loaded, std::vector<std::byte>(17, std::byte{42}));
}

TEST(ASession, NeitherRestartsFromNorReplacesSetsThatNoSessionMade) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    run_to(*session, model, 1, 2);
  }
  const std::string folder = place.folder / "of-files";
  test::write_file(folder + "/rank-0.bin", "something else");
  test::write_file(folder + "/rank-1.bin", "of two ranks");
  {
    const auto store = Store::open(posix_file_system(), place.store).value();
    const auto layouts = LayoutService::start().value();
    SaveOptions options;
    options.job = "job";
    options.step = 3;
    ASSERT_TRUE(save_folder(*store, folder, options, *layouts).ok());
  }
  auto session = Session::open(place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(session->checkpoint(3, Persistence::now).code(), StatusCode::already_exists);
}

// What a killed run left in memory

TEST(ASessionAfterAKill, GoesOnFromTheSnapshotInMemory) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  EXPECT_EQ(steps_in(place), std::vector<uint64_t>{1});
  auto session = Session::open(place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), 2u);
  EXPECT_EQ(model, model_at(0, kCells, 2));
  run_to(*session, model, 3, 3);
  EXPECT_EQ(place.memory_files(), 0u) << "the dead run's memory went, too";
}

TEST(ASessionAfterAKill, BringsTheSnapshotToTheStoreThoughItMakesNoCheckpoint) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  auto options = place.options();
  options.levels = "memory; dir:" + place.store + " every=5";
  options.store.reset();
  for (const bool again : {false, true}) {
    auto session = Session::open(options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 2u);
    EXPECT_EQ(model, model_at(0, kCells, 2));
    EXPECT_EQ(session->checkpoint(2).code(), StatusCode::invalid_argument) << "the step is known";
    EXPECT_TRUE(session->finish().ok());
    EXPECT_EQ(place.memory_files(), 0u) << again;
    EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2}));
  }
}

/// A program that takes over what is loaded when restart() has returned: until then its callbacks give what it began
/// with.
struct StagedProgram {
  std::vector<std::byte> text{std::byte{1}}, staged_text;
  std::vector<double> values{1}, staged_values;
  bool stages_values = false;

  Status protect(Session& session) {
    VARVE_TRY(session.protect(
        "text",
        [this](std::vector<std::byte>& out) {
          out = text;
          return Status();
        },
        [this](std::span<const std::byte> bytes) {
          staged_text.assign(bytes.begin(), bytes.end());
          return Status();
        }));
    return session.protect_vector(
        "values", element_type_of<double>(), [this] { return std::as_bytes(std::span(values)); },
        [this](uint64_t count) {
          std::vector<double>& into = stages_values ? staged_values : values;
          into.resize(count);
          return std::as_writable_bytes(std::span(into));
        });
  }
};

/// Leaves the set of step 1 in the store, and step 2 in memory alone, with a text of two bytes and two values.
void die_staged(const SessionOptions& options) {
  test::run_and_kill([&] {
    auto session = Session::open(options);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    StagedProgram program;
    ASSERT_TRUE(program.protect(*session).ok());
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
    program.text.assign(2, std::byte{2});
    program.values.assign(2, 2.5);
    ASSERT_TRUE(session->checkpoint(2, Persistence::later).ok());
    ::kill(::getpid(), SIGKILL);
  });
}

TEST(ASessionAfterAKill, SavesWhatItHasLoadedFromMemoryAndNotWhatCallbacksSay) {
  for (const bool stages_values : {false, true}) {
    const SessionPlace place;
    auto options = place.options();
    options.levels = "memory; dir:" + place.store + " every=4";
    options.store.reset();
    die_staged(options);
    const auto restart = [&](bool stages) {
      auto session = Session::open(options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      StagedProgram program;
      program.stages_values = stages;
      ASSERT_TRUE(program.protect(*session).ok());
      ASSERT_EQ(session->restart().value(), 2u);
      EXPECT_EQ(program.staged_text, std::vector<std::byte>(2, std::byte{2}));
      EXPECT_EQ(stages ? program.staged_values : program.values, std::vector<double>(2, 2.5));
      // It is killed, so to say, before it has made a checkpoint.
      session->finish().ignore("what could not be saved is told among the warnings");
      EXPECT_EQ(session->warnings().empty(), !stages);
    };
    restart(stages_values);
    EXPECT_EQ(steps_in(place), stages_values ? std::vector<uint64_t>{1} : (std::vector<uint64_t>{1, 2}));
    EXPECT_EQ(place.memory_files() > 0, stages_values) << "what cannot be saved as it is stays in memory";
    restart(false);
    EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2}));
  }
}

TEST(ASessionAfterAKill, KeepsTheSnapshotIfTheStoreIsStillFull) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  const size_t files_before = place.memory_files();
  SwitchedFileSystem files;
  const auto session = open_on(files, make_single_communicator(), place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  files.set(Mode::full);
  EXPECT_EQ(session->restart().value(), 2u);
  EXPECT_EQ(session->finish(std::chrono::seconds(60)).code(), StatusCode::no_space);
  EXPECT_EQ(place.memory_files(), files_before);
  EXPECT_EQ(steps_in(place), std::vector<uint64_t>{1});
}

/// A session that restarts from what `choice` says, which is `from`, and then does `act`.
void go_back(const SessionPlace& place, const RestartChoice& choice, std::optional<uint64_t> from,
             const std::function<void(Session&, Model&)>& act) {
  auto session = Session::open(place.options());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  const auto step = session->restart(choice);
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  EXPECT_EQ(*step, from);
  act(*session, model);
}

TEST(ASessionAfterAKill, LeavesTheSnapshotBehindWhichItGoesBackIfItEndsWithoutASet) {
  for (const RestartChoice& choice :
       {RestartChoice{.exactly = 1}, RestartChoice{.at_most = 1}, RestartChoice{.at_most = 0}}) {
    const SessionPlace place;
    die_with_a_snapshot(place, kCells);
    const auto from = choice.at_most == 0u ? std::nullopt : std::optional<uint64_t>(1);
    go_back(place, choice, from, [](Session& session, Model&) { EXPECT_TRUE(session.finish().ok()); });
    EXPECT_EQ(steps_in(place), std::vector<uint64_t>{1});
    EXPECT_EQ(restarted_step(place), 2u);
    EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2})) << "it went to the store then";
    EXPECT_EQ(place.memory_files(), 0u);
  }
}

TEST(ASessionAfterAKill, TakesTheSnapshotAwayBehindWhichItGoesBackWhenItHasSavedASet) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  go_back(place, {.exactly = 1}, 1, [](Session& session, Model& model) { run_to(session, model, 2, 3); });
  EXPECT_EQ(place.memory_files(), 0u);
  EXPECT_EQ(restarted_step(place), 3u);
}

TEST(ASessionAfterAKill, TakesTheSnapshotAwayThatItRejects) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  SwitchedFileSystem files;
  const auto session = open_on(files, make_single_communicator(), place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  files.set(Mode::full);
  ASSERT_EQ(session->restart().value(), 2u);
  EXPECT_EQ(session->reject().value(), 1u);
  EXPECT_EQ(model, model_at(0, kCells, 1));
  session->finish(std::chrono::seconds(60)).ignore("the store is full");
  EXPECT_EQ(place.memory_files(), 0u);
  EXPECT_EQ(steps_in(place), std::vector<uint64_t>{1});
}

TEST(ASessionAfterAKill, FallsBackToTheStoreIfTheSnapshotIsDamaged) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  for (const auto& file : std::filesystem::directory_iterator(place.memory)) {
    // It lies in the second one where the first checkpoint was still being saved when it was made.
    const std::string name = file.path().string();
    if (name.ends_with("slot0") || name.ends_with("slot1")) flip_bytes_in_the_middle(file.path());
  }
  auto session = Session::open(place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), 1u);
  EXPECT_EQ(model, model_at(0, kCells, 1));
  const std::vector<Status> warnings = session->warnings();
  const auto is_of_memory = [](const Status& warning) {
    return warning.to_string().find("step 2 in memory") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(warnings.begin(), warnings.end(), is_of_memory), 1)
      << testing::PrintToString(warnings.size());
}

TEST(ASessionAfterAKill, OfAnotherNumberOfRanksLeavesTheSnapshotAlone) {
  const SessionPlace place;
  die_with_a_snapshot(place, kCells);
  run_ranks(2, [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), place.options());
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(model, Model(rank, kCells));
  });
  auto session = Session::open(place.options());
  Model model(0, kCells);
  ASSERT_TRUE(protect(*session, model).ok());
  EXPECT_EQ(session->restart().value(), 2u) << "it is still there";
}

// Groups across nodes

/// As if each node had two ranks.
std::unique_ptr<RunSession> open_across_nodes(FileSystem& files, std::unique_ptr<Communicator> ranks,
                                              const SessionOptions& options) {
  SessionEnvironment environment;
  environment.files = &files;
  environment.sources.environment.clear();
  environment.find_place = [rank = ranks->rank()](const std::string&) -> Result<RankPlace> {
    return RankPlace{"node " + std::to_string(rank / 2), 0};
  };
  auto session = RunSession::open(std::move(ranks), options, environment);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? std::move(*session) : nullptr;
}

TEST_P(ASessionOfRanks, SendsSnapshotsToAnotherNodeIfItsGroupIsThere) {
  auto options = place.options();
  options.group = "3";
  for (const WhenBusy when_busy : {WhenBusy::wait, WhenBusy::skip, WhenBusy::two_slots}) {
    const SessionPlace own;
    options = own.options();
    options.group = "3";
    options.when_busy = when_busy;
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = open_across_nodes(posix_file_system(), std::move(ranks), options);
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      for (uint64_t step = 1; step <= 5; ++step) {
        model.step(step);
        ASSERT_TRUE(session->checkpoint(step, step % 2 == 0 ? Persistence::now : Persistence::later).ok());
      }
      EXPECT_TRUE(session->wait().ok());
      EXPECT_TRUE(session->progress().last_error.ok());
      EXPECT_TRUE(session->finish(std::chrono::hours(1)).ok());
    });
    EXPECT_EQ(own.memory_files(), 0u);
    EXPECT_EQ(steps_in(own).size(), 5u);
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = open_across_nodes(posix_file_system(), std::move(ranks), options);
      Model model(rank, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      EXPECT_EQ(session->restart().value(), 5u);
      EXPECT_EQ(model, model_at(rank, kCells, 5));
    });
  }
}

TEST_P(ASessionOfRanks, TellsRanksOnOtherNodesWhatFailed) {
  auto options = place.options();
  options.group = "8";
  SwitchedFileSystem files;
  for (uint32_t failing = 0; failing < GetParam(); failing += 3) {
    const SessionPlace own;
    options = own.options();
    options.group = "8";
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      const auto session = open_across_nodes(files, std::move(ranks), options);
      Model model(rank, kCells);
      bool fails = false;
      ASSERT_TRUE(protect(*session, model).ok());
      auto save = [&](std::vector<std::byte>&) { return fails ? Status::internal("not now") : Status(); };
      ASSERT_TRUE(session->variables().protect_object("object", save, [](ByteSpan) { return Status(); }).ok());
      ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
      fails = rank == failing;
      EXPECT_EQ(session->checkpoint(2, Persistence::later).ok(), !fails);
      EXPECT_FALSE(session->wait().ok() && !fails);
      fails = false;
      ASSERT_TRUE(session->checkpoint(3, Persistence::now).ok());
      if (rank == 0) files.set(Mode::full);
      EXPECT_EQ(session->checkpoint(4, Persistence::now).code(), StatusCode::no_space);
      if (rank == 0) files.set(Mode::normal);
      fails = rank == failing;
      EXPECT_EQ(session->checkpoint(5, Persistence::later).ok(), !fails);
      EXPECT_FALSE(session->finish(std::chrono::hours(1)).ok()) << "the last one is nowhere";
    });
    EXPECT_EQ(steps_in(own), (std::vector<uint64_t>{1, 3}));
    EXPECT_EQ(own.memory_files(), 0u);
  }
}

// Lent grids

TEST_P(ASessionOfRanks, SavesLentGridsBitByBitWhileTheProgramComputesInOthers) {
  SwitchedFileSystem files;
  auto options = place.options();
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    const auto session = open_on(files, std::move(ranks), options);
    auto grid = [&] {
      std::byte* const memory = session->make_grid("f", kCells * sizeof(double)).value();
      return std::span(reinterpret_cast<double*>(memory), kCells);
    };
    std::span<double> now = grid(), next = grid();
    ASSERT_TRUE(session->variables().protect_array("f", element_type_of<double>(), now.data(), kCells, {}).ok());
    for (uint64_t step = 1; step <= 6; ++step) {
      for (size_t i = 0; i < kCells; ++i) {
        next[i] = now[i] + static_cast<double>(rank + 1) * static_cast<double>(step) + static_cast<double>(i);
      }
      std::byte* const spare = session->lend("f", reinterpret_cast<std::byte*>(next.data())).value();
      EXPECT_NE(spare, reinterpret_cast<std::byte*>(next.data()));
      EXPECT_NE(spare, reinterpret_cast<std::byte*>(now.data()));
      ASSERT_TRUE(session->checkpoint(step, Persistence::later).ok());
      // What was lent may be read on; the other grid is written at once, while the lent one is saved.
      std::span<double> spare_grid(reinterpret_cast<double*>(spare), kCells);
      std::copy(next.begin(), next.end(), spare_grid.begin());
      next = now;
      now = spare_grid;
    }
    const Status finished = session->finish(std::chrono::hours(1));
    EXPECT_TRUE(finished.ok()) << finished.to_string();
  });
  EXPECT_EQ(place.memory_files(), 0u);
  for (uint64_t wanted = 6; wanted > 0; --wanted) {
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      std::vector<double> f(kCells);
      ASSERT_TRUE(session->protect("f", std::span(f)).ok());
      ASSERT_EQ(session->restart().value(), wanted);
      const auto steps = static_cast<double>(wanted);
      for (size_t i = 0; i < kCells; ++i) {
        const double expected =
            static_cast<double>(rank + 1) * steps * (steps + 1) / 2 + steps * static_cast<double>(i);
        ASSERT_EQ(f[i], expected) << i;
      }
    });
    const auto store = Store::open(posix_file_system(), place.store).value();
    ASSERT_TRUE(Catalog(*store).remove({"job", wanted}).ok());
  }
}

TEST(ASession, DoesNotLoadIntoMemoryThatWasLentForTheNextCheckpoint) {
  const SessionPlace place;
  {
    auto session = Session::open(place.options());
    std::vector<double> f(kCells, 1);
    ASSERT_TRUE(session->protect("f", std::span(f)).ok());
    ASSERT_TRUE(session->checkpoint(1, Persistence::now).ok());
  }
  auto session = Session::open(place.options());
  const std::span<double> now = session->make_grid<double>("f", kCells).value();
  const std::span<double> next = session->make_grid<double>("f", kCells).value();
  ASSERT_TRUE(session->protect("f", now).ok());
  std::fill(next.begin(), next.end(), 3.0);
  ASSERT_TRUE(session->lend("f", next).ok());
  EXPECT_EQ(session->restart().status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(next[0], 3.0);
}

TEST(ASession, NoticesThatALentGridWasWrittenTo) {
  const SessionPlace place;
  SwitchedFileSystem files;
  const auto session = open_on(files, make_single_communicator(), place.options());
  const size_t bytes = kCells * sizeof(double);
  std::byte* const grid = session->make_grid("f", bytes).value();
  ASSERT_TRUE(session->variables().protect_array("f", element_type_of<double>(), grid, kCells, {}).ok());
  files.set(Mode::held);
  ASSERT_TRUE(session->lend("f", grid).ok());
  ASSERT_TRUE(session->checkpoint(1, Persistence::later).ok());
  files.await_held();
  // Against all rules, and after it was summed.
  grid[bytes / 2] = std::byte{1};
  files.set(Mode::normal);
  EXPECT_EQ(session->wait().code(), StatusCode::corrupt);
  EXPECT_TRUE(steps_in(place).empty()) << "what is neither old nor new is not saved";
}

// Stops

TEST_P(ASessionOfRanks, StopsOnAllRanksAtTheSameStepAfterALastCheckpoint) {
  auto options = place.options();
  options.every_steps = 1000;
  options.stop_file = place.folder / "halt";
  std::vector<uint64_t> stopped_at(GetParam());
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, 100);
    ASSERT_TRUE(protect(*session, model).ok());
    uint64_t step = 0;
    while (!session->should_stop()) {
      model.step(++step);
      if (step == 3 && rank == GetParam() - 1) std::ofstream(place.folder / "halt") << "now";
      if (session->due(step)) {
        ASSERT_TRUE(session->checkpoint(step).ok());
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    stopped_at[rank] = step;
    EXPECT_EQ(session->progress().newest_persistent, step) << "without any further call";
  });
  EXPECT_EQ(stopped_at, std::vector<uint64_t>(GetParam(), stopped_at[0]));
  EXPECT_EQ(steps_in(place).back(), stopped_at[0]);
}

TEST_P(ASessionOfRanks, MayCallAnythingWhileItsRanksTalkAboutWhatIsDue) {
  auto options = place.options();
  options.every_steps.reset();
  options.every_seconds = 1000;
  options.group = "rank";
  const auto with_session = [&](const std::function<void(Session&, Model&)>& act) {
    run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options);
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(rank, 100);
      ASSERT_TRUE(protect(*session, model).ok());
      ASSERT_TRUE(session->restart().ok());
      act(*session, model);
    });
  };
  with_session([&](Session& session, Model& model) {
    EXPECT_FALSE(session.due(1));
    EXPECT_TRUE(session.wait().ok());
    for (uint64_t step = 1; step <= 3; ++step) {
      EXPECT_FALSE(session.due(step));
      model.step(step);
      ASSERT_TRUE(session.checkpoint(step, Persistence::now).ok());
    }
    EXPECT_FALSE(session.due(3));
    EXPECT_EQ(session.restart_points()->size(), 3u);
    EXPECT_FALSE(session.due(3));
    EXPECT_FALSE(session.saved_variables(2)->empty());
    EXPECT_FALSE(session.due(3));
    EXPECT_TRUE(session.drop(3).ok());
    EXPECT_FALSE(session.due(3));
    EXPECT_EQ(session.restart().value(), 2u);
    EXPECT_FALSE(session.due(2));
    EXPECT_EQ(session.reject().value(), 1u);
    EXPECT_FALSE(session.due(1));
    EXPECT_TRUE(session.finish().ok());
  });
  with_session([&](Session& session, Model&) {
    EXPECT_FALSE(session.due(2));
    EXPECT_TRUE(session.abandon().ok());
  });
  with_session([&](Session& session, Model& model) {
    EXPECT_FALSE(session.due(3));
    model.step(3);
    EXPECT_TRUE(session.checkpoint(3).ok());
    EXPECT_FALSE(session.due(3));
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{1, 2, 3}));
}

// Retention

TEST_P(ASessionOfRanks, KeepsTheNewestSetsOnly) {
  auto options = place.options();
  options.keep_last = 2;
  options.group = "rank";
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    run_to(*session, model, 1, 12);
    for (const Status& warning : session->warnings()) ADD_FAILURE() << warning.to_string();
  });
  EXPECT_EQ(steps_in(place), (std::vector<uint64_t>{11, 12}));
  const auto store = Store::open(posix_file_system(), place.store).value();
  EXPECT_LE(store->list_arenas().value().size(), 2u * GetParam() + 1) << "space comes back";
  run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
    auto session = Session::open(std::move(ranks), options);
    Model model(rank, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 12u);
    EXPECT_EQ(model, model_at(rank, kCells, 12));
  });
}

}  // namespace
}  // namespace varve
