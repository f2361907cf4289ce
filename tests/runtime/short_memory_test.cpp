// Sessions where shared memory is too small for snapshots, or not there at all.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "runtime/cluster.h"
#include "runtime/node_drain.h"
#include "runtime/ranks.h"
#include "runtime/stage_one.h"
#include "snapshot/test_segments.h"

namespace varve {
namespace {

using test::Cluster;
using test::Model;
using test::model_at;
using test::run_ranks;
using test::SessionPlace;

constexpr size_t kCells = 200'000;  // 1.6 MB
constexpr int kNotPermitted = 77;

struct AProcessWithLittleMemory : testing::TestWithParam<uint32_t> {
  SessionPlace place;
  const std::string spill = place.folder / "spill";

  AProcessWithLittleMemory() { std::filesystem::create_directory(spill); }

  /// Runs `body` in a process that has so much shared memory.
  void run(const std::string& size, const std::function<void()>& body) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!test::mount_small_memory(place.memory, size)) ::_exit(kNotPermitted);
      body();
      ::_exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotPermitted) GTEST_SKIP() << "this user may not mount a memory file system";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "see above";
  }
  SessionOptions options(const std::string& snapshot_folder) const {
    SessionOptions options = place.options();
    options.snapshot_folder = snapshot_folder;
    options.print_warnings = false;
    return options;
  }
  /// The same with another memory, to which snapshots are spilled. `make_full` fills the first one, or gives it room.
  void run_with_memory_to_spill(const std::function<void(const std::function<void(bool)>& make_full)>& body) {
    run("16m", [&] {
      ASSERT_TRUE(test::mount_small_memory(spill, "16m"));
      body([this](bool full) {
        const std::string filler = place.memory + "/filler";
        std::filesystem::remove(filler);
        const std::string zeros(4096, 0);
        std::ofstream out;
        if (full) out.open(filler);
        while (full && out.write(zeros.data(), static_cast<std::streamsize>(zeros.size())).flush()) continue;
      });
    });
  }
  /// A whole run, and one that restarts from it. Returns what rank 0 was told by the first.
  std::string run_twice(const SessionOptions& options, const std::function<void(Session&)>& in_between = {}) {
    std::string told;
    for (const uint64_t from : {0, 4}) {
      run_ranks(GetParam(), [&](uint32_t rank, std::unique_ptr<Communicator> ranks) {
        auto session = Session::open(std::move(ranks), options);
        ASSERT_TRUE(session.ok()) << session.status().to_string();
        Model model(rank, kCells);
        ASSERT_TRUE(protect(*session, model).ok());
        const auto restarted = session->restart();
        ASSERT_TRUE(restarted.ok()) << restarted.status().to_string();
        EXPECT_EQ(restarted->value_or(0), from);
        for (uint64_t step = from + 1; step <= from + 4; ++step) {
          model.step(step);
          const Status made = session->checkpoint(step);
          EXPECT_TRUE(made.ok()) << made.to_string();
        }
        if (in_between) in_between(*session);
        const Status finished = session->finish();
        EXPECT_TRUE(finished.ok()) << finished.to_string();
        EXPECT_EQ(model, model_at(rank, kCells, from + 4));
        if (rank == 0 && from == 0) told = Cluster::words(session->warnings());
      });
    }
    EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
    test::expect_whole(place.store);
    EXPECT_EQ(place.memory_files(), 0u);
    EXPECT_TRUE(std::filesystem::is_empty(spill));
    return told;
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, AProcessWithLittleMemory, testing::Values(1, 3));

TEST_P(AProcessWithLittleMemory, HasOneSnapshotWhereTwoDoNotFit) {
  run(std::to_string(2500 * GetParam()) + "k", [&] {
    SessionOptions two = options("none");
    two.when_busy = WhenBusy::two_slots;
    const std::string told = run_twice(two);
    // Of several ranks, some may get two, and one nothing at all.
    if (GetParam() == 1) {
      EXPECT_NE(told.find("one snapshot instead of two"), std::string::npos) << told;
    }
  });
}

TEST_P(AProcessWithLittleMemory, MakesItsSnapshotsInAFolderWhereNoneFits) {
  run("1m", [&] {
    const std::string told = run_twice(options(spill), [&](Session& session) {
      EXPECT_FALSE(std::filesystem::is_empty(spill));
      if (!is_memory_folder(spill)) {
        EXPECT_EQ(session.progress().newest_snapshot, std::nullopt) << "a folder on a disk is no memory";
      }
    });
    EXPECT_NE(told.find("snapshots are made in " + spill), std::string::npos) << told;
    EXPECT_NE(told.find("shm-size"), std::string::npos) << told;
  });
}

TEST_P(AProcessWithLittleMemory, WritesStraightFromTheProgramsMemoryWhereNoFolderHasRoom) {
  run("1m", [&] {
    for (const char* group : {"node", "rank"}) {
      std::filesystem::remove_all(place.store);
      SessionOptions none = options("none");
      none.group = group;
      const std::string told = run_twice(none);
      EXPECT_NE(told.find("written while the program waits"), std::string::npos) << told;
    }
  });
}

TEST_P(AProcessWithLittleMemory, SaysSoOnceOnStandardErrorUnlessToldNotTo) {
  run("1m", [&] {
    for (const bool prints : {true, false}) {
      std::filesystem::remove_all(place.store);
      SessionOptions none = options("none");
      none.print_warnings = prints;
      testing::internal::CaptureStderr();
      run_twice(none);
      const std::string printed = testing::internal::GetCapturedStderr();
      size_t count = 0;
      for (size_t at = printed.find("shared memory is short"); at != std::string::npos;
           at = printed.find("shared memory is short", at + 1))
        ++count;
      EXPECT_EQ(count, prints ? 2u : 0u) << printed;  // once in each of two runs
    }
  });
}

TEST_P(AProcessWithLittleMemory, GoesOnWhenAVariableOutgrowsIt) {
  run("4m", [&] {
    run_ranks(1, [&](uint32_t, std::unique_ptr<Communicator> ranks) {
      auto session = Session::open(std::move(ranks), options("none"));
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      std::vector<double> values(1000);
      ASSERT_TRUE(session->protect("values", values).ok());
      for (const uint64_t step : {1, 2, 3, 4}) {
        values.resize(step == 3 ? 2'000'000 : 1000, static_cast<double>(step));
        const Status made = session->checkpoint(step, Persistence::now);
        EXPECT_TRUE(made.ok()) << made.to_string();
      }
    });
    EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3, 4}));
    test::expect_whole(place.store);
  });
}

TEST_P(AProcessWithLittleMemory, HasGridsToLendAllTheSame) {
  run("1m", [&] {
    for (const std::string& folder : {spill, std::string("none")}) {
      std::filesystem::remove_all(place.store);
      auto session = Session::open(options(folder));
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const auto first = session->make_grid<double>("grid", kCells);
      if (folder == "none") {
        EXPECT_EQ(first.status().code(), StatusCode::no_space);
        continue;
      }
      ASSERT_TRUE(first.ok()) << first.status().to_string();
      std::span<double> now = *first, next = session->make_grid<double>("grid", kCells).value();
      ASSERT_TRUE(session->protect("grid", now).ok());
      for (uint64_t step = 1; step <= 4; ++step) {
        std::fill(next.begin(), next.end(), static_cast<double>(step));
        std::swap(now, next);
        next = session->lend("grid", now).value();
        const Status made = session->checkpoint(step);
        EXPECT_TRUE(made.ok()) << made.to_string();
      }
      EXPECT_TRUE(session->finish().ok());
      EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2, 3, 4}));
      EXPECT_TRUE(std::filesystem::is_empty(spill));
    }
  });
}

TEST_P(AProcessWithLittleMemory, LeavesNothingInTheFolderAfterTheNextRunIfItIsKilled) {
  run("1m", [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      auto session = Session::open(options(spill));
      Model model(0, kCells);
      const bool fine = protect(*session, model).ok() && session->checkpoint(1, Persistence::now).ok();
      if (fine) ::kill(::getpid(), SIGKILL);
      ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    ASSERT_FALSE(std::filesystem::is_empty(spill));
    auto session = Session::open(options(spill));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Model model(0, kCells);
    ASSERT_TRUE(protect(*session, model).ok());
    EXPECT_EQ(session->restart().value(), 1u);
    EXPECT_TRUE(session->finish().ok());
    EXPECT_TRUE(std::filesystem::is_empty(spill));
    EXPECT_EQ(place.memory_files(), 0u);
  });
}

TEST_P(AProcessWithLittleMemory, GoesOnFromWhatAKilledRunHasInAnotherMemoryThanItsOwn) {
  run_with_memory_to_spill([&](const auto& make_full) {
    for (const bool was_full : {false, true}) {
      SCOPED_TRACE(was_full);
      std::filesystem::remove_all(place.store);
      make_full(was_full);
      test::die_with_a_snapshot(options(spill), kCells);
      EXPECT_EQ(std::filesystem::is_empty(spill), !was_full);
      make_full(!was_full);
      auto session = Session::open(options(spill));
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      Model model(0, kCells);
      ASSERT_TRUE(protect(*session, model).ok());
      EXPECT_EQ(session->restart().value(), 2u);
      EXPECT_EQ(model, model_at(0, kCells, 2));
      EXPECT_TRUE(session->finish().ok());
      make_full(false);
      EXPECT_EQ(place.memory_files(), 0u) << "a newer set is in the store";
      EXPECT_TRUE(std::filesystem::is_empty(spill));
      EXPECT_EQ(test::steps_at(place.store), (std::vector<uint64_t>{1, 2}));
    }
  });
}

TEST_P(AProcessWithLittleMemory, LeavesAloneWhatIsInAnotherMemoryUntilSomethingNewerIsSaved) {
  run_with_memory_to_spill([&](const auto& make_full) {
    test::die_with_a_snapshot(options(spill), kCells);
    make_full(true);
    const size_t before = place.memory_files();
    for (uint32_t time = 0; time < 2; ++time) {
      auto session = Session::open(options(spill));
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      const std::vector<RestartPoint> points = session->restart_points().value();
      EXPECT_TRUE(std::any_of(points.begin(), points.end(), [](const RestartPoint& one) { return one.step == 2; }));
      EXPECT_TRUE(session->finish().ok());
      EXPECT_EQ(place.memory_files(), before);
    }
  });
}

TEST_P(AProcessWithLittleMemory, IsDrainedOfWhatItsRunsHaveLeftInEachMemory) {
  run_with_memory_to_spill([&](const auto& make_full) {
    for (const bool has_left_in_first : {false, true}) {
      SCOPED_TRACE(has_left_in_first);
      std::filesystem::remove_all(place.store);
      SessionOptions other = options(spill);
      other.job = "other";
      NodeDrainOptions drain;
      drain.shared_memory = place.memory;
      if (has_left_in_first) {
        test::die_with_a_snapshot(options(spill), kCells);  // and says where it would have gone
      } else {
        drain.spill_folders = {spill};
      }
      make_full(true);
      test::die_with_a_snapshot(other, kCells);
      make_full(false);
      const std::vector<DrainedJob> jobs = drain_node(drain).value();
      EXPECT_EQ(jobs.size(), has_left_in_first ? 2u : 1u);
      for (const DrainedJob& job : jobs) {
        EXPECT_TRUE(job.failures.empty()) << job.failures.front().to_string();
        EXPECT_TRUE(job.is_done);
        EXPECT_EQ(Catalog(*test::store_at(place.store)).steps(job.job).value(), (std::vector<uint64_t>{1, 2}));
      }
      EXPECT_EQ(place.memory_files(), 0u);
      EXPECT_TRUE(std::filesystem::is_empty(spill));
    }
  });
}

TEST_P(AProcessWithLittleMemory, TellsOthersWhereItWouldGo) {
  SettingsSources sources;
  sources.environment = {{"TMPDIR", "/scratch"}, {"VARVE_NODE", "a"}};
  sources.command_line = {{"levels", "memory; local:/nvme/varve; dir:/lustre/varve; unix:/run/varve"}};
  const auto folders = [&] { return expected_spill_folders(resolve_settings({}, sources).value(), sources); };
  EXPECT_EQ(folders(), (std::vector<std::string>{"/scratch", "/nvme/varve", "/lustre"}));
  sources.environment["VARVE_SNAPSHOT_FOLDER"] = "/ram";
  EXPECT_EQ(folders(), std::vector<std::string>{"/ram"});
  sources.environment["VARVE_SNAPSHOT_FOLDER"] = "none";
  EXPECT_TRUE(folders().empty());
}

TEST_P(AProcessWithLittleMemory, IsToldWhatIsWrongWithMemoryThatIsThere) {
  SessionOptions broken = options(spill);
  broken.shared_memory = place.folder / "loop";
  std::filesystem::create_symlink("loop", *broken.shared_memory);
  const Status refused = Session::open(broken).status();
  EXPECT_EQ(refused.code(), StatusCode::io_error) << refused.to_string();
  EXPECT_NE(refused.to_string().find("loop"), std::string::npos) << refused.to_string();
}

TEST_P(AProcessWithLittleMemory, DoesWithoutSharedMemoryIfAFolderCanTakeItsPlace) {
  for (const std::string& folder : {spill, std::string("none")}) {
    SessionOptions nowhere = options(folder);
    nowhere.shared_memory = place.folder / "nowhere";
    if (folder == "none") {
      EXPECT_EQ(Session::open(nowhere).status().code(), StatusCode::not_found);
    } else {
      const std::string told = run_twice(nowhere);
      EXPECT_NE(told.find("shared memory cannot be used"), std::string::npos) << told;
    }
  }
}

}  // namespace
}  // namespace varve
