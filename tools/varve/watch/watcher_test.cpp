#include "watch/watcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "core/open_writers.h"
#include "engine/restore_target.h"
#include "sets/saving.h"
#include "watch/originals.h"
#include "watch/test_text.h"

namespace varve {
namespace {

using Kind = WatchEvent::Kind;

/// Ends a watcher's run.
class Stop final : public ProgressSink {
 public:
  void total(uint64_t) override {}
  void advance(uint64_t) override {}
  void phase(std::string_view) override {}
  void warning(const Status&) override {}
  bool cancelled() const override { return stopped; }
  std::atomic<bool> stopped{false};
};

struct AWatcher : testing::Test, WatchListener {
  AWatcher() {
    options.folders = {run.path()};
    options.job = "run";
    options.quiet_seconds = 0;
  }

  Result<std::unique_ptr<Watcher>> open() {
    WatchDuty duty;
    duty.save = [this](const SetToSave& set, const SetName& name, ProgressSink& progress) {
      const std::lock_guard lock(mutex);
      if (!failure.ok()) return Result<SaveReport>(failure);
      while_saving();
      return save_files(*store, set.folder, set.files, name, test::save_options(name.job, name.step),
                        test::layout_service(), progress, set.check_as_found);
    };
    duty.find = [this](const SetName& name) -> Result<const Store*> {
      if (Catalog(*store).has(name).value()) return store.get();
      if (!farther_store.ok()) return farther_store;
      return nullptr;
    };
    duty.bring_along = [this](const SetName&, ProgressSink&) {
      const std::lock_guard lock(mutex);
      once_saved();
      return elsewhere;
    };
    return Watcher::open(*store, options, std::move(duty), *this);
  }
  void happened(const WatchEvent& event) override {
    const std::lock_guard lock(mutex);
    events.push_back({event.kind, event.entry.name.step});
  }
  void begins(const SetName&) override {}
  void rests(const SetTracker&) override {}
  /// Saves what is whole.
  void once() {
    const auto watcher = open();
    ASSERT_TRUE(watcher.ok()) << watcher.status().to_string();
    const Status ran = (*watcher)->run(true, stop);
    ASSERT_TRUE(ran.ok()) << ran.to_string();
  }
  std::vector<uint64_t> saved() const { return Catalog(*store).steps("run").value(); }
  bool has_happened(Kind kind, uint64_t step) {
    const std::lock_guard lock(mutex);
    return std::find(events.begin(), events.end(), std::pair(kind, step)) != events.end();
  }
  bool happens(Kind kind, uint64_t step) {
    for (int i = 0; i < 500 && !has_happened(kind, step); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return has_happened(kind, step);
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  test::TempFolder run{test::TempFolder::Where::disk};
  WatchOptions options;
  Stop stop;
  std::mutex mutex;
  Status failure;
  std::function<void()> while_saving = [] {};
  std::function<void()> once_saved = [] {};
  Status elsewhere;      ///< what becomes of bringing sets to other levels
  Status farther_store;  ///< what becomes of asking one for a set
  std::vector<std::pair<Kind, uint64_t>> events;
};

TEST_F(AWatcher, CatchesUpWithWhatIsThere) {
  test::write_file(run / "out3/data.0", "three");
  test::write_file(run / "out12/data.0", "twelve");
  test::write_file(run / "log", "no set");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{3, 12}));
  EXPECT_TRUE(test::restores_as(*store, {"run", 12}, test::snapshot_of(run / "out12")));
  events.clear();
  once();
  EXPECT_TRUE(has_happened(Kind::was_saved, 3));
  EXPECT_FALSE(has_happened(Kind::saved, 3));
}

TEST_F(AWatcher, SavesFilesThatLieSideBySide) {
  options.patterns = parse_patterns("restart.{step}.{rank}").value();
  options.completeness.rank_count = 2;
  for (const char* name : {"restart.1.0", "restart.1.1", "restart.2.0", "other"}) test::write_file(run / name, name);
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
  EXPECT_EQ(Catalog(*store).read({"run", 1})->file_count, 2u);
  test::write_file(run / "restart.2.1", "late");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1, 2}));
}

TEST_F(AWatcher, WaitsForTheEndMarker) {
  options.completeness.end_marker = "DONE.{step}";
  test::write_file(run / "out7/data", "x");
  once();
  EXPECT_TRUE(saved().empty());
  test::write_file(run / "out7/DONE.7", "");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{7}));
}

TEST_F(AWatcher, WaitsForWritersToCloseTheirFiles) {
  test::write_file(run / "out1/data", "x");
  const int writer = ::open((run / "out1/data").c_str(), O_WRONLY);
  if (!is_being_written(run / "out1/data").value()) GTEST_SKIP() << "no leases on this file system";
  once();
  EXPECT_TRUE(saved().empty());
  ::close(writer);
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
}

TEST_F(AWatcher, SavesSetsWhileTheyAppear) {
  options.quiet_seconds = 0.1;
  auto watcher = open().value();
  std::thread thread([&] { EXPECT_TRUE(watcher->run(false, stop).ok()); });
  for (uint64_t step : {1, 2, 3}) {
    test::write_file(run / ("deep/" + std::to_string(step) + ".tmp/inner/data"), std::to_string(step));
    std::filesystem::rename(run / ("deep/" + std::to_string(step) + ".tmp"), run / ("out" + std::to_string(step)));
    EXPECT_TRUE(happens(Kind::saved, step)) << step;
  }
  stop.stopped = true;
  thread.join();
  EXPECT_TRUE(test::restores_as(*store, {"run", 3}, test::snapshot_of(run / "out3")));
}

TEST_F(AWatcher, NeverReplacesAnotherSetOfThatName) {
  test::write_file(run / "out1/data", "first");
  once();
  const test::Snapshot first = test::snapshot_of(run / "out1");
  test::write_file(run / "out1/data", "second");
  options.remove_originals = true;
  once();
  EXPECT_TRUE(has_happened(Kind::differs, 1));
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, first));
  EXPECT_TRUE(std::filesystem::exists(run / "out1/data"));
}

/// As a saver leaves it who is killed before he comes to sync a folder.
class NoNamesAreSynced final : public ForwardingFileSystem {
 public:
  using ForwardingFileSystem::ForwardingFileSystem;
  Status sync_directory(const std::string&) override { return {}; }
};

TEST_F(AWatcher, RemovesNoOriginalsOfASetThatALossOfPowerWouldTake) {
  options.remove_originals = true;
  test::write_file(run / "out1/data", "first");
  const test::Snapshot first = test::snapshot_of(run / "out1");
  {
    NoNamesAreSynced careless(fs);
    const auto own = Store::open(careless, store->path()).value();
    ASSERT_TRUE(test::save(*own, run / "out1", "run", 1).ok());
    ASSERT_TRUE(fs.sync_directory(own->arenas_path()).ok()) << "before the commit, it is";
  }
  once();
  EXPECT_FALSE(has_happened(Kind::saved, 1));
  EXPECT_FALSE(std::filesystem::exists(run / "out1"));
  const auto left = fs.after_crash({});
  const auto after = Store::open(*left, store->path());
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_TRUE(test::restores_as(**after, {"run", 1}, first));
}

TEST_F(AWatcher, RemovesOriginalsOnceTheyAreSaved) {
  options.remove_originals = true;
  test::write_file(run / "out1/deep/data", "first");
  test::write_file(run / "out1/more", "more");
  std::filesystem::create_symlink("more", run / "out1/link");
  const test::Snapshot first = test::snapshot_of(run / "out1");
  once();
  EXPECT_FALSE(std::filesystem::exists(run / "out1"));
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, first));
}

TEST_F(AWatcher, RemovesNothingThatAProgramHasOpenForWriting) {
  test::write_file(run / "out1/data", "first");
  once();
  const int writer = ::open((run / "out1/data").c_str(), O_WRONLY);
  if (!is_being_written(run / "out1/data").value()) GTEST_SKIP() << "no leases on this file system";
  options.remove_originals = true;
  once();
  EXPECT_TRUE(std::filesystem::exists(run / "out1/data"));
  ::close(writer);
  once();
  EXPECT_FALSE(std::filesystem::exists(run / "out1"));
}

TEST_F(AWatcher, RemovesNothingThatAProgramOpensForWritingDuringTheSave) {
  test::write_file(run / "out1/data", "first");
  int writer = -1;
  while_saving = [&] { writer = ::open((run / "out1/data").c_str(), O_WRONLY | O_APPEND); };
  options.remove_originals = true;
  once();
  if (!is_being_written(run / "out1/data").value()) GTEST_SKIP() << "no leases on this file system";
  EXPECT_TRUE(has_happened(Kind::saved, 1));
  ASSERT_EQ(::write(writer, "!", 1), 1);
  ::close(writer);
  EXPECT_EQ(test::text_of_file(run / "out1/data"), "first!");
  once();
  EXPECT_TRUE(has_happened(Kind::differs, 1));
  EXPECT_EQ(test::text_of_file(run / "out1/data"), "first!");
}

TEST_F(AWatcher, CallsNothingWrongThatAProgramChangesBeforeItIsRemoved) {
  options.remove_originals = true;
  test::write_file(run / "out1/data", "first");
  once_saved = [this] { test::write_file(run / "out1/data", "other"); };
  once();
  EXPECT_FALSE(has_happened(Kind::failed, 1));
  once();
  EXPECT_TRUE(has_happened(Kind::differs, 1));
  EXPECT_EQ(test::text_of_file(run / "out1/data"), "other");
}

TEST_F(AWatcher, GivesFilesTheirNamesBackThatAKilledOneWasRemoving) {
  test::write_file(run / "out1/a", "first");
  test::write_file(run / "out1/b", "second");
  once();
  std::filesystem::create_directory(run / ("out1/" + std::string(kRemovingFolder)));
  std::filesystem::rename(run / "out1/a", run / ("out1/" + std::string(kRemovingFolder) + "/a"));
  once();
  EXPECT_EQ(test::text_of_file(run / "out1/a"), "first");
  EXPECT_FALSE(has_happened(Kind::differs, 1));
  options.remove_originals = true;
  once();
  EXPECT_FALSE(std::filesystem::exists(run / "out1"));
}

TEST_F(AWatcher, GoesOnRemovingWhereItWasStopped) {
  test::write_file(run / "out1/a", "first");
  test::write_file(run / "out1/b", "second");
  once();
  test::write_file(run / ("out1/" + removal_note_name({"run", 1})), "");
  std::filesystem::remove(run / "out1/a");
  options.remove_originals = true;
  once();
  EXPECT_FALSE(std::filesystem::exists(run / "out1"));
  EXPECT_EQ(Catalog(*store).read({"run", 1})->file_count, 2u);
}

TEST_F(AWatcher, SavesNothingOfASetThatIsBeingRemovedWhileTheStoreThatHasItIsAway) {
  test::write_file(run / "out1/b", "what is left");
  test::write_file(run / ("out1/" + removal_note_name({"run", 1})), "");
  once();
  EXPECT_TRUE(saved().empty());
  EXPECT_FALSE(has_happened(Kind::failed, 1));
  farther_store = Status::io_error("the level cannot be reached");
  once();
  EXPECT_TRUE(saved().empty());
  EXPECT_TRUE(has_happened(Kind::failed, 1));
  EXPECT_EQ(test::text_of_file(run / "out1/b"), "what is left");
}

TEST_F(AWatcher, SavesNothingThatIsBeingRemovedSideBySideWithOtherSets) {
  options.patterns = parse_patterns("*{step}").value();
  for (const char* name : {"state1", "state2"}) test::write_file(run / name, name);
  for (const char* job : {"run", "another"}) {
    SCOPED_TRACE(job);
    test::write_file(run / removal_note_name({job, 1}), "");
    once();
    EXPECT_EQ(saved(), (std::vector<uint64_t>{2})) << "whoever removes its files";
    std::filesystem::remove(run / removal_note_name({job, 1}));
  }
  EXPECT_EQ(Catalog(*store).read({"run", 2})->file_count, 1u) << "the note is no file of a set";
}

TEST_F(AWatcher, SavesNothingIntoWhichARestoreWasStopped) {
  const std::string note(kRestoringNote);
  for (const std::string& place : {"out1/" + note, note}) {
    SCOPED_TRACE(place);
    test::write_file(run / "out1/b", "some of a set");
    test::write_file(run / place, "run@1\n");
    once();
    EXPECT_TRUE(saved().empty());
    std::filesystem::remove(run / place);
  }
  test::write_file(run / note, "run@1\n");
  test::make_older(run / note);
  test::write_file(run / "out1/b", "of a program, afterwards");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
  EXPECT_EQ(Catalog(*store).read({"run", 1})->file_count, 1u);
}

TEST_F(AWatcher, SavesASetThatAProgramHasMadeAnewOverOneWhoseRemovalWasStopped) {
  test::write_file(run / "out1/a", "first");
  test::write_file(run / "out1/b", "second");
  once();
  const std::string note = run / ("out1/" + removal_note_name({"run", 1}));
  test::write_file(note, "");
  test::make_older(note);
  for (const char* name : {"out1/a", "out1/b"}) test::write_file(run / name, "written anew");
  once();
  EXPECT_TRUE(has_happened(Kind::differs, 1));
  ASSERT_TRUE(Catalog(*store).remove({"run", 1}).ok());
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(test::restores_as(*store, {"run", 1}, test::snapshot_of(run / "out1")));
  test::write_file(note, "");
  test::make_older(note);
  options.job = "other";
  once();
  EXPECT_TRUE(Catalog(*store).has({"other", 1}).value());
}

TEST_F(AWatcher, SavesASetBesideANoteThatALossOfPowerHasLeftOfAnEarlierOne) {
  options.patterns = parse_patterns("*{step}").value();
  const std::string note = run / removal_note_name({"run", 1});
  test::write_file(note, "");
  test::make_older(note);
  test::write_file(run / "state1", "of a later run");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
  EXPECT_FALSE(std::filesystem::exists(note));
}

TEST_F(AWatcher, SavesToTheNearestStoreWhileAFartherOneCannotBeAsked) {
  farther_store = Status::io_error("the level cannot be reached");
  test::write_file(run / "out1/data", "first");
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
}

TEST_F(AWatcher, RemovesNothingUnderAProgramThatMakesASavedSetAnew) {
  options.remove_originals = true;
  test::write_file(run / "out1/deep/data", "first");
  once();
  ASSERT_FALSE(std::filesystem::exists(run / "out1"));
  std::filesystem::create_directories(run / "out1/deep");
  once();
  EXPECT_TRUE(std::filesystem::exists(run / "out1/deep"));
  EXPECT_FALSE(has_happened(Kind::failed, 1));
}

TEST_F(AWatcher, SavesNoSetToWhichAFileIsAddedDuringTheSave) {
  test::write_file(run / "out1/a", "first");
  while_saving = [this] { test::write_file(run / "out1/b", "second"); };
  options.remove_originals = true;
  once();
  EXPECT_TRUE(saved().empty());
  EXPECT_FALSE(has_happened(Kind::failed, 1));
  EXPECT_EQ(test::text_of_file(run / "out1/a"), "first");
  while_saving = [] {};
  options.remove_originals = false;
  once();
  EXPECT_EQ(Catalog(*store).read({"run", 1})->file_count, 2u);
}

TEST_F(AWatcher, RemovesNothingOfASetToWhichAFileIsAddedBeforeItIsRemoved) {
  options.remove_originals = true;
  for (const char* name : {"out1/b", "out2/deep/b"}) {
    test::write_file(run / name, "first");
    const std::string later = name + std::string("-and-later");
    once_saved = [this, later] { test::write_file(run / later, "second"); };
    once();
    EXPECT_EQ(test::text_of_file(run / name), "first");
    EXPECT_EQ(test::text_of_file(run / later), "second");
  }
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(has_happened(Kind::removed, 1));
  EXPECT_FALSE(has_happened(Kind::removed, 2));
}

TEST_F(AWatcher, KeepsOriginalsThatTheStoreCannotGiveBack) {
  test::write_file(run / "out1/data", test::random_bytes(100'000, 1));
  once();
  const std::string arena = store->arena_path(store->list_arenas().value().at(0));
  ByteVector bytes = read_file(fs, arena, 64_MiB).value();
  bytes[bytes.size() / 2] ^= std::byte{1};
  ASSERT_TRUE(fs.remove(arena).ok());
  ASSERT_TRUE(fs.create(arena).value()->write_at(0, bytes).ok());
  options.remove_originals = true;
  once();
  EXPECT_TRUE(has_happened(Kind::failed, 1));
  EXPECT_TRUE(std::filesystem::exists(run / "out1/data"));
}

TEST_F(AWatcher, TriesAgainWhatFailed) {
  test::write_file(run / "out1/data", "x");
  failure = Status(StatusCode::no_space, "the disk is full");
  once();
  EXPECT_TRUE(has_happened(Kind::failed, 1));
  EXPECT_TRUE(saved().empty());
  failure = {};
  once();
  EXPECT_EQ(saved(), (std::vector<uint64_t>{1}));
}

TEST_F(AWatcher, RefusesFoldersThatLieInOneAnother) {
  std::filesystem::create_directory(run / "sub");
  options.folders.push_back(run / "sub");
  EXPECT_EQ(open().status().code(), StatusCode::invalid_argument);
  options.folders = {run / "none"};
  EXPECT_EQ(open().status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace varve
