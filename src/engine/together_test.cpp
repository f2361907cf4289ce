// Saves, restores and verifications by several processes, which threads with stores and targets of their own stand for.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/process_share.h"
#include "core/faulty_file_system.h"
#include "core/memory_file_system.h"
#include "engine/save.h"
#include "sets/saving.h"
#include "store/commit.h"
#include "store/test_sets.h"
#include "store/verify.h"

namespace varve {
namespace {

using test::TempFolder;

TEST(ProcessShares, AreNeighboursAndAboutEqual) {
  for (uint32_t processes : {1u, 2u, 3u, 7u}) {
    ProcessShares shares(100 * 10, processes);
    std::vector<uint64_t> bytes(processes);
    uint32_t last = 0;
    for (int i = 0; i < 100; ++i) {
      const uint32_t process = shares.take(10);
      EXPECT_GE(process, last);
      last = process;
      bytes.at(process) += 10;
    }
    for (uint64_t of_one : bytes) EXPECT_NEAR(static_cast<double>(of_one), 1000.0 / processes, 10.0);
  }
  ProcessShares empty(0, 4);
  EXPECT_EQ(empty.take(0), 0u);
}

struct Together : testing::TestWithParam<uint32_t> {
  Together() {
    test::layout_service();
    for (int rank = 0; rank < 9; ++rank) {
      const auto seed = static_cast<uint64_t>(rank);
      test::write_file(source.path() + "/data/rank" + std::to_string(rank) + ".bin", test::random_bytes(30'000, seed));
      test::write_file(source.path() + "/fields/f." + std::to_string(rank), test::smooth_field(4000, seed));
    }
    test::write_file(source.path() + "/notes.txt", "notes");
    std::filesystem::create_directory(source.path() + "/empty");
    std::filesystem::create_symlink("notes.txt", source.path() + "/link");
    saved = test::snapshot_of(source.path());
    test::make_store(fs);
  }

  /// Runs `work` as so many processes, each with a store of its own in `place` (of each process).
  std::vector<Status> on_all(const std::function<Status(const Store&, Communicator&)>& work,
                             const std::function<FileSystem&(uint32_t)>& place) {
    auto ranks = make_thread_communicators(GetParam());
    std::vector<Status> outcomes(GetParam());
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < GetParam(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto store = Store::open(place(rank), "/store").value();
        outcomes[rank] = work(*store, *ranks[rank]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  std::vector<Status> on_all(const std::function<Status(const Store&, Communicator&)>& work) {
    return on_all(work, [this](uint32_t) -> FileSystem& { return fs; });
  }
  Status save(const Store& store, Communicator& ranks, bool smaller_groups = true, uint64_t step = 7) {
    SaveOptions options = test::save_options("run", step);
    options.ranks.smaller_groups = smaller_groups;
    const Result<SaveReport> report =
        save_folder_together(store, source.path(), options, test::layout_service(), ranks);
    EXPECT_TRUE(!report.ok() || report->record.name == (SetName{"run", step}));
    return report.status();
  }
  static testing::AssertionResult all_are(const std::vector<Status>& outcomes, StatusCode code) {
    for (const Status& status : outcomes) {
      if (status.code() != code) return testing::AssertionFailure() << status.to_string();
    }
    return testing::AssertionSuccess();
  }
  void save_on_all() {
    ASSERT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) { return save(s, r); }), StatusCode::ok));
  }

  MemoryFileSystem fs;
  TempFolder source;
  test::Snapshot saved;
};

TEST_P(Together, SaveOneSetThatOneProcessRestoresAndVerifies) {
  save_on_all();
  const auto store = test::open_store(fs);
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, saved));
  EXPECT_TRUE(test::is_whole(*store));
  const SetRecord record = Catalog(*store).read({"run", 7}).value();
  EXPECT_EQ(record.rank_count, 9u);
  EXPECT_EQ(record.file_count, saved.size());
  EXPECT_GE(record.groups.size(), std::min(GetParam(), 9u));
  EXPECT_TRUE(list_parts(*store).value().empty());
  EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
  // A second one finds everything known.
  ASSERT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) { return save(s, r, true, 8); }), StatusCode::ok));
  EXPECT_LT(Catalog(*store).read({"run", 8}).value().new_bytes, 2000u);
}

/// Does something once, in whichever process the first bytes have gone through.
struct OnceSaved final : ProgressSink {
  explicit OnceSaved(std::function<void()> act_once) : act(std::move(act_once)) {}
  void total(uint64_t) override {}
  void advance(uint64_t) override { std::call_once(once, act); }
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return false; }
  std::function<void()> act;
  std::once_flag once;
};

TEST_P(Together, SaveWhatTheyChooseWhileTheRestComesAndGoes) {
  TempFolder run;
  for (int rank = 0; rank < 9; ++rank) {
    const std::string folder = run / ("rank" + std::to_string(rank));
    test::write_file(folder + "/data", test::random_bytes(30'000, static_cast<uint64_t>(rank)));
    test::write_file(folder + "/old.log", "left out");
  }
  const auto is_no_log = [](const std::string& path) { return !path.ends_with(".log"); };
  const test::Snapshot before = test::snapshot_of(run.path(), is_no_log);
  const auto outcomes_of_saving = [&](uint64_t step, const std::vector<std::string>& exclude,
                                      const std::function<void(const std::string& folder)>& change) {
    OnceSaved meanwhile([&] {
      change(run.path());
      for (int rank = 0; rank < 9; ++rank) change(run / ("rank" + std::to_string(rank)));
    });
    return on_all([&](const Store& s, Communicator& r) {
      SaveOptions options = test::save_options("run", step);
      options.choice.exclude = exclude;
      options.ranks.smaller_groups = true;
      return save_folder_together(s, run.path(), options, test::layout_service(), r, meanwhile).status();
    });
  };
  const auto logs_change = [](const std::string& folder) {
    std::filesystem::remove(folder + "/old.log");
    test::write_file(folder + "/new.log", "left out");
  };
  ASSERT_TRUE(all_are(outcomes_of_saving(1, {"*.log"}, logs_change), StatusCode::ok));
  EXPECT_TRUE(test::restores_as(*test::open_store(fs), {"run", 1}, before)) << "with the times that were read first";
  EXPECT_TRUE(all_are(outcomes_of_saving(2, {}, logs_change), StatusCode::busy));
  const auto more_comes = [](const std::string& folder) { test::write_file(folder + "/more", "taken"); };
  EXPECT_TRUE(all_are(outcomes_of_saving(3, {"*.log"}, more_comes), StatusCode::busy));
}

TEST_P(Together, SaveAsManyGroupsAsTheyAreToldThoughProcessesStayIdle) {
  const auto outcomes = on_all([&](const Store& s, Communicator& r) { return save(s, r, false); });
  ASSERT_TRUE(all_are(outcomes, StatusCode::ok));
  const auto store = test::open_store(fs);
  EXPECT_EQ(Catalog(*store).read({"run", 7}).value().groups.size(), 1u);
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, saved));
}

/// Lets another set of the job appear when one process has published its part, and before others begin theirs.
class WithAnotherSetMeanwhile final : public ForwardingFileSystem {
 public:
  explicit WithAnotherSetMeanwhile(FileSystem& inner) : ForwardingFileSystem(inner), inner_(inner) {}
  Result<std::unique_ptr<File>> create(const std::string& path, CreateOptions options = {}) override {
    if (path.find("/writers/") != std::string::npos && lease_count_++ > 0) save_another();
    return ForwardingFileSystem::create(path, options);
  }

 private:
  void save_another() {
    std::call_once(once_, [this] {
      const auto store = Store::open(inner_, "/store").value();
      while (list_parts(*store)->empty() && Catalog(*store).sets()->empty()) std::this_thread::yield();
      EXPECT_TRUE(test::save_numbers(*store, {"run", 1}, {1}, 1).ok());
    });
  }

  FileSystem& inner_;
  std::atomic<int> lease_count_ = 0;
  std::once_flag once_;
};

TEST_P(Together, SaveOneSetThoughAnotherOfTheJobAppearsMeanwhile) {
  WithAnotherSetMeanwhile meanwhile(fs);
  const auto outcomes = on_all([&](const Store& s, Communicator& r) { return save(s, r); },
                               [&](uint32_t) -> FileSystem& { return meanwhile; });
  ASSERT_TRUE(all_are(outcomes, StatusCode::ok));
  const auto store = test::open_store(fs);
  EXPECT_EQ(Catalog(*store).read({"run", 7}).value().number, 1u) << "of all parts alike";
  EXPECT_EQ(Catalog(*store).has({"run", 1}).value(), GetParam() > 1);
  EXPECT_TRUE(test::restores_as(*store, {"run", 7}, saved));
}

TEST_P(Together, RefuseASetThatIsThere) {
  save_on_all();
  const auto outcomes = on_all([&](const Store& s, Communicator& r) { return save(s, r); });
  EXPECT_TRUE(all_are(outcomes, StatusCode::already_exists));
}

TEST_P(Together, SaveNothingIfOneFails) {
  for (uint32_t failing = 0; failing < GetParam(); ++failing) {
    // Its disk is full from somewhere on.
    for (uint64_t at : {0, 3, 5, 9, 11}) {
      FaultyFileSystem full(fs, {{.kind = FaultKind::no_space, .at_operation = at, .persistent = true, .seed = at}});
      const auto outcomes =
          on_all([&](const Store& s, Communicator& r) { return save(s, r); },
                 [&](uint32_t rank) -> FileSystem& { return rank == failing ? full : static_cast<FileSystem&>(fs); });
      const auto store = test::open_store(fs);
      if (!full.struck()) continue;
      EXPECT_TRUE(all_are(outcomes, StatusCode::no_space)) << failing << " at " << at << "\n" << full.trace();
      EXPECT_TRUE(Catalog(*store).sets().value().empty());
      EXPECT_TRUE(list_parts(*store).value().empty());
      EXPECT_TRUE(fs.list(store->writers_path()).value().empty());
    }
  }
}

TEST_P(Together, RestoreWhatOneProcessSaved) {
  const auto store = test::open_store(fs);
  ASSERT_TRUE(test::save(*store, source.path(), "run", 7).ok());
  const TempFolder place;
  const std::string folder = place / "deep/target";
  const auto outcomes = on_all([&](const Store& s, Communicator& r) -> Status {
    VARVE_ASSIGN(const RestoreReport report, restore_set_together(s, {"run", 7}, folder, {}, r));
    EXPECT_EQ(report.file_count, saved.size());
    EXPECT_EQ(report.raw_bytes, Catalog(s).read({"run", 7})->raw_bytes);
    return {};
  });
  EXPECT_TRUE(all_are(outcomes, StatusCode::ok));
  EXPECT_EQ(test::snapshot_of(folder), saved);
}

TEST_P(Together, RestoreNothingIfWhatOneNeedsIsDamaged) {
  save_on_all();
  const auto store = test::open_store(fs);
  const SetRecord record = Catalog(*store).read({"run", 7}).value();
  const std::string arena = store->arena_path(record.groups.back().hint);
  ByteVector bytes = read_file(fs, arena, 10_MiB).value();
  for (size_t at = 200; at < 20'000; at += 100) bytes[at] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(arena).ok());
  ASSERT_TRUE(fs.create(arena).value()->write_at(0, bytes).ok());

  const TempFolder place;
  const std::string folder = place / "target";
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) {
                        return restore_set_together(s, {"run", 7}, folder, {}, r).status();
                      }),
                      StatusCode::corrupt));
  EXPECT_FALSE(std::filesystem::exists(folder));

  // The same damage, found by all and told by all.
  const VerifyReport expected = verify_store(*store, true).value();
  EXPECT_FALSE(expected.whole());
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) -> Status {
                        VARVE_ASSIGN(const VerifyReport report, verify_store_together(s, true, r));
                        EXPECT_EQ(report.damages.size(), expected.damages.size());
                        EXPECT_EQ(report.arena_count, expected.arena_count);
                        EXPECT_EQ(report.pack_count, expected.pack_count);
                        EXPECT_EQ(report.checked_bytes, expected.checked_bytes);
                        EXPECT_EQ(report.set_count, 1u);
                        for (const Damage& damage : report.damages) {
                          EXPECT_EQ(damage.affected_sets.empty(), damage.affected_files.empty());
                        }
                        return {};
                      }),
                      StatusCode::ok));

  RestoreOptions going_on;
  going_on.keep_going = true;
  EXPECT_TRUE(
      all_are(on_all([&](const Store& s, Communicator& r) -> Status {
                VARVE_ASSIGN(const RestoreReport report, restore_set_together(s, {"run", 7}, folder, going_on, r));
                EXPECT_FALSE(report.lost_files.empty());
                return {};
              }),
              StatusCode::ok));
  const test::Snapshot restored = test::snapshot_of(folder);
  EXPECT_LT(restored.size(), saved.size());
  for (const auto& [path, what] : restored) EXPECT_EQ(saved.at(path), what);
}

TEST_P(Together, RestoreNothingOverAFileThatIsThere) {
  save_on_all();
  const TempFolder place;
  test::write_file(place / "data/rank8.bin", "mine");
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) {
                        return restore_set_together(s, {"run", 7}, place.path(), {}, r).status();
                      }),
                      StatusCode::already_exists));
  EXPECT_EQ(test::snapshot_of(place.path()).size(), 2u);
}

TEST_P(Together, RestoreWhatIsAskedFor) {
  save_on_all();
  const TempFolder place;
  RestoreOptions options;
  options.filter.rank = 3;
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) {
                        return restore_set_together(s, {"run", 7}, place.path(), options, r).status();
                      }),
                      StatusCode::ok));
  EXPECT_EQ(test::snapshot_of(place.path()).size(), 4u);
  options.filter.rank = 30;
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) {
                        return restore_set_together(s, {"run", 7}, place.path(), options, r).status();
                      }),
                      StatusCode::not_found));
}

TEST_P(Together, SayTheSameOfASetThatIsNotThere) {
  const TempFolder place;
  EXPECT_TRUE(all_are(on_all([&](const Store& s, Communicator& r) {
                        return restore_set_together(s, {"run", 1}, place / "x", {}, r).status();
                      }),
                      StatusCode::not_found));
}

INSTANTIATE_TEST_SUITE_P(Processes, Together, testing::Values(1, 2, 4, 11));

}  // namespace
}  // namespace varve
