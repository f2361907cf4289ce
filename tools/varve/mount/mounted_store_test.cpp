#include "mount/mounted_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <utility>

#include "core/step_text.h"
#include "sets/mounting.h"

namespace varve {
namespace {

using test::MountSettings;
using test::TempFolder;
using test::TestMount;
using Names = std::vector<std::string>;

class Mounted : public testing::Test {
 protected:
  Mounted() {
    test::layout_service();  // it forks, and must not share the lock of a spool for a moment
    test::make_store(posix_file_system(), folder_ / "store");
  }
  std::unique_ptr<TestMount> mount(const MountSettings& settings = {}) {
    auto opened = TestMount::open(posix_file_system(), folder_ / "store", folder_ / "spool", settings);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    return std::move(opened).value();
  }
  /// An open set run/NAME with two files.
  static void write_set(TestMount& mount, const std::string& name) {
    mount.make_folder("run").ok();
    ASSERT_EQ(mount.make_folder("run/" + name).number, 0);
    ASSERT_EQ(mount.make_folder("run/" + name + "/sub").number, 0);
    ASSERT_EQ(mount.write_file("run/" + name + "/a", "first").number, 0);
    ASSERT_EQ(mount.write_file("run/" + name + "/sub/b", "second").number, 0);
  }
  inline static const std::map<std::string, std::string> kWritten{{"a", "first"}, {"sub/b", "second"}};

  TempFolder folder_;
};

TEST_F(Mounted, ShowsASetAsItIsWrittenAndAsItIsCommitted) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  EXPECT_EQ(mounted->names("run"), Names{"7.tmp"});
  EXPECT_EQ(mounted->files("run/7.tmp"), kWritten);
  ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(mounted->names("run"), (Names{"7", "latest"}));
  EXPECT_EQ(mounted->files("run/7"), kWritten);
  EXPECT_EQ(mounted->look("run/7/a")->status.st_mode & 0777, 0644u);
  EXPECT_TRUE(mounted->look("run/7/a")->lasting);
}

TEST_F(Mounted, KeepsNumbersAndReadersAcrossTheSeal) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  const uint64_t folder = mounted->inode("run/7.tmp"), file = mounted->inode("run/7.tmp/sub/b");
  const auto reader = mounted->open("run/7.tmp/sub/b", O_RDONLY);
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(mounted->inode("run/7"), folder);
  EXPECT_EQ(mounted->inode("run/7/sub/b"), file);
  std::byte bytes[20];
  EXPECT_EQ(*(*reader)->read(0, bytes), 6u);
  EXPECT_TRUE((*mounted)->open(file, O_RDONLY).ok()) << "by its old number";
}

TEST_F(Mounted, RefusesToSealWhatIsBeingWritten) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  auto file = mounted->create("run/7.tmp/c");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EBUSY);
  ASSERT_EQ(TestMount::write(**file, "third").number, 0);
  file->reset();
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(*mounted->read_file("run/7/c"), "third");
}

TEST_F(Mounted, TheLogSaysHowASetCanBeCalled) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  EXPECT_EQ(mounted->make_folder("run/final").number, EINVAL);
  EXPECT_TRUE(mounted->lines.has("no set can be called run/final: the name has a step's number"));
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/last").number, EINVAL);
  EXPECT_TRUE(mounted->lines.has("no set can be called run/last"));
}

TEST_F(Mounted, AnUnlinkedFileIsNotPartOfTheSet) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  const auto file = mounted->create("run/7.tmp/gone");
  ASSERT_EQ(TestMount::write(**file, "text").number, 0);
  ASSERT_EQ(mounted->remove("run/7.tmp/gone").number, 0);
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0) << "though it is open for writing";
  EXPECT_EQ(mounted->files("run/7"), kWritten);
}

TEST_F(Mounted, AClosedFileMayBeWrittenAgainUntilItsSetIsSealed) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  EXPECT_TRUE(mounted->open("run/7.tmp/a", O_WRONLY).ok());
  EXPECT_TRUE(mounted->open("run/7.tmp/a", O_RDONLY | O_TRUNC).ok());
  ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(mounted->open("run/7/a", O_WRONLY).error().number, EROFS);
}

TEST_F(Mounted, SealsWhatIsQuietAndNothingElse) {
  const auto mounted = mount({.seal_seconds = 30});
  write_set(*mounted, "1");
  write_set(*mounted, "2.tmp");
  write_set(*mounted, "3");
  ASSERT_EQ(mounted->make_folder("run/4").number, 0);
  const auto writer = mounted->create("run/3/more");
  mounted->clock.advance(29);
  (*mounted)->seal_quiet_sets();
  EXPECT_EQ(mounted->names("run"), (Names{"1", "2.tmp", "3", "4"}));
  mounted->clock.advance(2);
  (*mounted)->seal_quiet_sets();
  EXPECT_EQ(mounted->names("run"), (Names{"1", "2.tmp", "3", "4", "latest"}));
  EXPECT_EQ(Catalog(mounted->store()).steps("run").value(), std::vector<uint64_t>{1});
}

/// Closes a file as the kernel does, and gives it back.
void close_file(TestMount& mount, const std::string& path, std::unique_ptr<OpenFile> file,
                std::initializer_list<ClosedBy> closers) {
  for (const ClosedBy who : closers) file->flushed(who);
  mount->release(mount.inode(path), std::move(file));
}

/// Has no room for the records of open sets, if told so.
class NoRoomForRecords final : public ForwardingFileSystem {
 public:
  NoRoomForRecords() : ForwardingFileSystem(posix_file_system()) {}
  Status rename(const std::string& from, const std::string& to) override {
    if (is_full && to.ends_with("/set")) return Status(StatusCode::no_space, "no room", to);
    return ForwardingFileSystem::rename(from, to);
  }
  bool is_full = false;
};

TEST_F(Mounted, DoesNotSealByItselfWhatAKilledProgramHasWritten) {
  for (const uint64_t step : {7, 8}) {
    const bool has_room = step == 7;
    SCOPED_TRACE(has_room ? "with room in the spool" : "with a full spool");
    const std::string name = std::to_string(step), set = "run/" + name;
    {
      NoRoomForRecords fs;
      const auto mounted = TestMount::open(fs, folder_ / "store", folder_ / "spool", {.seal_seconds = 30}).value();
      write_set(*mounted, name);
      auto file = mounted->create(set + "/c");
      ASSERT_EQ(TestMount::write(**file, "the first ha").number, 0);
      fs.is_full = !has_room;
      close_file(*mounted, set + "/c", *std::move(file), {ClosedBy::program, ClosedBy::signal});
      fs.is_full = false;
      EXPECT_TRUE(mounted->lines.has(set + " is not finished: a program was killed while it wrote"));
      EXPECT_EQ(mounted->lines.has("cannot note"), !has_room);
      mounted->clock.advance(100);
      (*mounted)->seal_quiet_sets();
      EXPECT_FALSE(Catalog(mounted->store()).has({"run", step}).value());
      EXPECT_NE((*mounted)->describe(mounted->inode(set))->find("unfinished"), std::string::npos);
    }
    const auto mounted = mount({.seal_seconds = 30});
    mounted->clock.advance(100);
    (*mounted)->seal_quiet_sets();
    EXPECT_FALSE(Catalog(mounted->store()).has({"run", step}).value());
    EXPECT_TRUE((*mounted)->seal(mounted->inode(set)).ok()) << "by who says so";
  }
}

TEST_F(Mounted, DoesNotSealByItselfWhatThereWasNoRoomFor) {
  {
    NoRoomForRecords fs;
    const auto mounted = TestMount::open(fs, folder_ / "store", folder_ / "spool", {.seal_seconds = 30}).value();
    write_set(*mounted, "7");
    auto file = mounted->create("run/7/c");
    (*file)->write_failed(100, /*in_memory=*/false);
    fs.is_full = true;
    close_file(*mounted, "run/7/c", *std::move(file), {ClosedBy::program});
    EXPECT_TRUE(mounted->lines.has("run/7 is not finished: a program was told that a write to it failed"));
    mounted->clock.advance(100);
    (*mounted)->seal_quiet_sets();
    EXPECT_FALSE(Catalog(mounted->store()).has({"run", 7}).value());
  }
  const auto mounted = mount({.seal_seconds = 30});
  mounted->clock.advance(100);
  (*mounted)->seal_quiet_sets();
  EXPECT_FALSE(Catalog(mounted->store()).has({"run", 7}).value());
  EXPECT_TRUE((*mounted)->seal(mounted->inode("run/7")).ok()) << "by who says so";
}

TEST_F(Mounted, SealsByItselfWhatWasWrittenAfterAllOrIsGone) {
  for (const uint64_t step : {7, 8, 9}) {
    const std::string name = std::to_string(step), set = "run/" + name;
    const bool is_written_again = step == 7, is_removed = step == 8;
    {
      const auto mounted = mount({.seal_seconds = 30});
      write_set(*mounted, name);
      auto file = mounted->create(set + "/c");
      (*file)->note_written(0, 100);
      (*file)->write_failed(100, /*in_memory=*/false);
      (*file)->write_failed(100, /*in_memory=*/false);
      (*file)->note_written(is_written_again ? 100 : 200, 100);
      close_file(*mounted, set + "/c", *std::move(file), {ClosedBy::program});
      if (is_removed) {
        ASSERT_EQ(mounted->remove(set + "/c").number, 0);
      }
    }
    const auto mounted = mount({.seal_seconds = 30});
    mounted->clock.advance(100);
    (*mounted)->seal_quiet_sets();
    EXPECT_EQ(Catalog(mounted->store()).has({"run", step}).value(), is_written_again || is_removed) << step;
  }
}

TEST_F(Mounted, SealsNoSetOfWhichAFileHasLostSomethingNorDoesALaterMount) {
  {
    const auto mounted = mount();
    write_set(*mounted, "7.tmp");
    auto file = mounted->create("run/7.tmp/c");
    (*file)->write_failed(100, /*in_memory=*/true);
    EXPECT_EQ((*file)->sync(false).number, EIO);
    close_file(*mounted, "run/7.tmp/c", *std::move(file), {ClosedBy::program});
    EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
    EXPECT_NE((*mounted)->seal(mounted->inode("run/7.tmp")).to_string().find("run@7/c"), std::string::npos);
    EXPECT_TRUE(mounted->lines.has("cannot seal run@7"));
    EXPECT_NE((*mounted)->describe(mounted->inode("run/7.tmp"))->find("it has c, which has lost"), std::string::npos);
  }
  const auto mounted = mount();
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
  ASSERT_EQ(mounted->remove("run/7.tmp/c").number, 0);
  ASSERT_EQ(mounted->write_file("run/7.tmp/c", "third").number, 0);
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(*mounted->read_file("run/7/c"), "third");
}

TEST_F(Mounted, DoesNotSealByItselfWhatAProgramHasWrittenThatItCannotSeeAndSaysWhy) {
  const auto mounted = mount({.seal_seconds = 30});
  for (const std::string set : {"run/7", "run/8"}) {
    write_set(*mounted, base_name(set));
    auto file = mounted->create(set + "/c");
    close_file(*mounted, set + "/c", *std::move(file), {ClosedBy::unknown});
  }
  EXPECT_TRUE(mounted->lines.has("the program that wrote run/7 cannot be seen from here"));
  EXPECT_FALSE(mounted->lines.has("run/8")) << "once is enough";
  EXPECT_FALSE(mounted->lines.has("a program was killed"));
  mounted->clock.advance(100);
  (*mounted)->seal_quiet_sets();
  EXPECT_TRUE(Catalog(mounted->store()).steps("run").value().empty());
  EXPECT_TRUE((*mounted)->seal(mounted->inode("run/8")).ok());
}

TEST_F(Mounted, SealsByItselfWhatIsClosedAfterAProgramThatSharedItWasKilled) {
  const auto mounted = mount({.seal_seconds = 30});
  write_set(*mounted, "7");
  auto file = mounted->create("run/7/c");
  ASSERT_EQ(TestMount::write(**file, "third").number, 0);
  close_file(*mounted, "run/7/c", *std::move(file), {ClosedBy::signal, ClosedBy::program});
  auto reader = mounted->open("run/7/a", O_RDONLY);
  close_file(*mounted, "run/7/a", *std::move(reader), {ClosedBy::signal});
  mounted->clock.advance(100);
  (*mounted)->seal_quiet_sets();
  EXPECT_TRUE(Catalog(mounted->store()).has({"run", 7}).value());
}

TEST_F(Mounted, TakesUpOpenSetsOfTheLastMount) {
  {
    const auto mounted = mount();
    write_set(*mounted, "7");
    ASSERT_EQ(mounted->make_folder("empty").number, 0);
  }
  const auto mounted = mount({.seal_seconds = 1});
  EXPECT_EQ(mounted->names(""), (Names{"empty", "run"}));
  EXPECT_EQ(mounted->files("run/7"), kWritten);
  mounted->clock.advance(2);
  (*mounted)->seal_quiet_sets();
  EXPECT_EQ(mounted->names("run"), (Names{"7", "latest"}));
}

TEST_F(Mounted, DoesNotSealByItselfWhatAnotherRunOfTheMachineHasLeft) {
  {
    const auto mounted = mount();
    write_set(*mounted, "7");
  }
  const auto mounted = mount({.boot = "another run", .seal_seconds = 1});
  mounted->clock.advance(100);
  (*mounted)->seal_quiet_sets();
  EXPECT_EQ(mounted->names("run"), Names{"7"});
  EXPECT_TRUE(mounted->lines.has("not finished"));
  EXPECT_TRUE((*mounted)->seal(mounted->inode("run/7")).ok());
  EXPECT_EQ(mounted->files("run/7"), kWritten);
}

TEST_F(Mounted, ASetThatIsThereIsNotReplaced) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  write_set(*mounted, "7.tmp");
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EEXIST);
  EXPECT_EQ(mounted->make_folder("run/DD0007").number, EEXIST);
  EXPECT_EQ(mounted->files("run/7.tmp"), kWritten);
}

TEST_F(Mounted, CallsSetsByTheirTimes) {
  const auto mounted = mount();
  write_set(*mounted, "0.02.tmp");
  ASSERT_EQ(mounted->rename("run/0.02.tmp", "run/0.02").number, 0);
  write_set(*mounted, "1.tmp");
  ASSERT_EQ(mounted->rename("run/1.tmp", "run/1").number, 0);
  EXPECT_EQ(mounted->names("run"), (Names{"0.02", "1.0", "latest"}));
  EXPECT_EQ(mounted->files("run/1.0"), kWritten);
  EXPECT_EQ(mounted->files("run/0.02"), kWritten);
  // A number beside times is one of them.
  EXPECT_EQ(Catalog(mounted->store()).resolve("run@1").value().step, *step_of_time(1));
  EXPECT_EQ(mounted->make_folder("run/1").number, EEXIST);
  EXPECT_EQ(mounted->make_folder("run/0.020").number, EEXIST);
  EXPECT_EQ(mounted->make_folder("run/20260101120000000").number, 0) << "too large to be a time";
}

TEST_F(Mounted, LeadsFromWhatAProgramCallsATimeToIt) {
  {
    const auto mounted = mount();
    write_set(*mounted, "0.5.tmp");
    ASSERT_EQ(mounted->rename("run/0.5.tmp", "run/0.5").number, 0);
    write_set(*mounted, "1.tmp");
    ASSERT_EQ(mounted->rename("run/1.tmp", "run/1").number, 0);
  }
  const auto mounted = mount();
  EXPECT_EQ(mounted->look("run/1")->status.st_mode & S_IFMT, static_cast<mode_t>(S_IFLNK));
  EXPECT_EQ(*(*mounted)->read_link(mounted->inode("run/1")), "1.0");
  EXPECT_FALSE(mounted->look("run/2").ok());
}

TEST_F(Mounted, DropsASetOnlyWithItsFolder) {
  const auto mounted = mount();
  write_set(*mounted, "7.tmp");
  ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(mounted->remove_folder("run/7").number, ENOTEMPTY);
  ASSERT_EQ(mounted->remove("run/7/a").number, 0);
  ASSERT_EQ(mounted->remove("run/7/sub/b").number, 0);
  EXPECT_EQ(mounted->remove_folder("run/7").number, ENOTEMPTY);
  ASSERT_EQ(mounted->remove_folder("run/7/sub").number, 0);
  EXPECT_TRUE(Catalog(mounted->store()).read({"run", 7}).ok());
  ASSERT_EQ(mounted->remove_folder("run/7").number, 0);
  EXPECT_FALSE(Catalog(mounted->store()).read({"run", 7}).ok());
  EXPECT_EQ(mounted->remove_folder("run").number, 0);
  EXPECT_EQ(mounted->names(""), Names{});
}

/// Does something once, before the first operation of that kind in a folder.
class OnceBefore final : public ForwardingFileSystem {
 public:
  enum class Operation : uint8_t { sync, list };
  OnceBefore(Operation operation, std::string folder)
      : ForwardingFileSystem(posix_file_system()), operation_(operation), folder_(std::move(folder)) {}
  Status sync_directory(const std::string& path) override {
    come_to(Operation::sync, path);
    return ForwardingFileSystem::sync_directory(path);
  }
  Result<std::vector<DirectoryEntry>> list(const std::string& path) override {
    come_to(Operation::list, path);
    return ForwardingFileSystem::list(path);
  }
  std::function<void()> what;

 private:
  void come_to(Operation operation, const std::string& path) {
    if (operation == operation_ && path == folder_ && what) std::exchange(what, nullptr)();
  }

  const Operation operation_;
  const std::string folder_;
};

TEST_F(Mounted, DropsNoSetThatHasTakenThePlaceOfTheRemovedOne) {
  uint64_t step = 0;
  for (const auto& [operation, path] :
       {std::pair{OnceBefore::Operation::sync, "spool/jobs"}, std::pair{OnceBefore::Operation::list, "store/parts"}}) {
    SCOPED_TRACE(path);
    const std::string name = std::to_string(++step), set = "run/" + name;
    test::write_file(folder_ / "old/a", "old");
    test::write_file(folder_ / "new/a", "new");
    OnceBefore fs(operation, folder_ / path);
    const auto mounted = TestMount::open(fs, folder_ / "store", folder_ / "spool").value();
    const auto store = test::open_store(posix_file_system(), folder_ / "store");
    ASSERT_TRUE(test::save(*store, folder_ / "old", "run", step).ok());
    ASSERT_EQ(mounted->remove(set + "/a").number, 0);
    bool replaced = false;
    fs.what = [&] {
      replaced = Catalog(*store).remove({"run", step}).ok() && test::save(*store, folder_ / "new", "run", step).ok();
    };
    EXPECT_EQ(mounted->remove_folder(set).number, ENOTEMPTY);
    EXPECT_TRUE(replaced);
    EXPECT_EQ(mounted->files(set), (std::map<std::string, std::string>{{"a", "new"}}));
  }
}

TEST_F(Mounted, ASpoolServesOneMount) {
  const auto mounted = mount();
  EXPECT_EQ(TestMount::open(posix_file_system(), folder_ / "store", folder_ / "spool").status().code(),
            StatusCode::busy);
}

TEST_F(Mounted, RefusesTheSpoolOfAnotherStore) {
  { const auto mounted = mount(); }
  test::make_store(posix_file_system(), folder_ / "other");
  EXPECT_EQ(TestMount::open(posix_file_system(), folder_ / "other", folder_ / "spool").status().code(),
            StatusCode::invalid_argument);
}

TEST_F(Mounted, ADamagedRecordInTheSpoolIsLeftAlone) {
  { write_set(*mount(), "7"); }
  std::string record;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "spool")) {
    if (entry.path().filename() == "set") record = entry.path();
  }
  test::write_file(record, "garbage");
  const auto mounted = mount();
  EXPECT_EQ(mounted->names("run"), Names{});
  EXPECT_TRUE(mounted->lines.has("left alone"));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(record).parent_path() / "files" / "a"));
}

}  // namespace
}  // namespace varve
