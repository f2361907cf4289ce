// A mount that dies, or a disk that fails, at any file-system operation of a seal.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <utility>

#include "core/faulty_file_system.h"
#include "core/file_system.h"
#include "sets/fault_kinds.h"
#include "sets/mounting.h"
#include "store/test_sets.h"

namespace varve {
namespace {

using test::TempFolder;
using test::TestMount;
using Files = std::map<std::string, std::string>;

const Files kFiles{{"a", "first"}, {"b", std::string(50'000, 'b')}, {"sub/c", "third"}};

class Seal : public testing::Test {
 protected:
  /// A store with one set, and an open set run/7.tmp in the spool.
  void prepare(const TempFolder& folder) {
    const auto store = test::make_store(posix_file_system(), folder / "store");
    test::write_file(folder / "earlier/file", "earlier");
    ASSERT_TRUE(test::save(*store, folder / "earlier", "run", 1).ok());
    auto mounted = open(posix_file_system(), folder);
    ASSERT_EQ(mounted->make_folder("run/7.tmp").number, 0);
    ASSERT_EQ(mounted->make_folder("run/7.tmp/sub").number, 0);
    for (const auto& [path, text] : kFiles) ASSERT_EQ(mounted->write_file("run/7.tmp/" + path, text).number, 0);
  }

  static std::unique_ptr<TestMount> open(FileSystem& fs, const TempFolder& folder) {
    Result<std::unique_ptr<TestMount>> opened = TestMount::open(fs, folder / "store", folder / "spool");
    return opened.ok() ? std::move(*opened) : nullptr;
  }

  /// Seals with a fault; returns whether the seal said OK.
  static bool seal_with(FileSystem& fs, const TempFolder& folder) {
    const auto mounted = open(fs, folder);
    if (mounted == nullptr) return false;
    if (mounted->rename("run/7.tmp", "run/7").ok()) return true;
    // The set is as it was, and can be read.
    EXPECT_EQ(mounted->files("run/7.tmp").size(), mounted->look("run/7.tmp").ok() ? kFiles.size() : 1);
    return false;
  }

  /// What the next mount finds: the set, in one place or the other, whole; and it can be sealed.
  static void check(const TempFolder& folder, bool done) {
    const auto mounted = open(posix_file_system(), folder);
    ASSERT_NE(mounted, nullptr);
    const bool committed = mounted->look("run/7").ok();
    EXPECT_NE(committed, mounted->look("run/7.tmp").ok());
    if (done) {
      EXPECT_TRUE(committed);
    }
    EXPECT_EQ(mounted->files(committed ? "run/7" : "run/7.tmp"), kFiles);
    if (!committed) {
      ASSERT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
      EXPECT_EQ(mounted->files("run/7"), kFiles);
    }
    EXPECT_EQ(mounted->files("run/1"), (Files{{"file", "earlier"}}));
    EXPECT_TRUE(test::is_whole(mounted->store()));
  }

  uint64_t operations() {
    TempFolder folder;
    prepare(folder);
    FaultyFileSystem fs(posix_file_system());
    EXPECT_TRUE(seal_with(fs, folder));
    return fs.operation_count().mutating;
  }
};

TEST_F(Seal, LosesNothingWhereverTheMountDies) {
  const uint64_t count = operations();
  ASSERT_GT(count, 20u);
  for (uint64_t at = 0; at < count; ++at) {
    SCOPED_TRACE("crash at operation " + std::to_string(at));
    TempFolder folder;
    prepare(folder);
    bool done = false;
    {
      FaultyFileSystem fs(posix_file_system(), {{.kind = FaultKind::crash, .at_operation = at, .persistent = true}});
      done = seal_with(fs, folder);
    }
    check(folder, done);
    if (HasFailure()) break;
  }
}

/// Fails one sync of a folder.
class OneFailedSync final : public ForwardingFileSystem {
 public:
  /// The `number`-th sync of the folder at `path` from 0 on.
  OneFailedSync(std::string path, int number)
      : ForwardingFileSystem(posix_file_system()), path_(std::move(path)), number_(number) {}
  Status sync_directory(const std::string& path) override {
    if (path == path_ && number_-- == 0) return Status::io_error("no sync", path);
    return ForwardingFileSystem::sync_directory(path);
  }
  bool has_failed() const { return number_ < 0; }

 private:
  const std::string path_;
  int number_;
};

TEST_F(Seal, TakesNoSecondSyncOfTheRecordsNameForSuccess) {
  for (const auto& [folder_name, number] : {std::pair{"store/sets/run", 0}, {"store/sets", 0}}) {
    SCOPED_TRACE(fmt::format("sync {} of {}", number, folder_name));
    TempFolder folder;
    prepare(folder);
    OneFailedSync fs(folder / folder_name, number);
    {
      const auto mounted = open(fs, folder);
      ASSERT_NE(mounted, nullptr);
      EXPECT_FALSE(mounted->rename("run/7.tmp", "run/7").ok());
      EXPECT_TRUE(fs.has_failed());
      EXPECT_EQ(mounted->files("run/7.tmp"), kFiles) << "the set is open as before";
      EXPECT_FALSE(mounted->look("run/7").ok());
      EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
      EXPECT_EQ(mounted->files("run/7"), kFiles);
    }
    check(folder, true);
  }
}

/// Commits run@7, and has who commits it first believe that it failed: its answer is lost, and nobody is there who
/// could say more; or its name cannot be synced, nor taken back.
class CommitUnawares final : public ForwardingFileSystem {
 public:
  enum class Way : uint8_t { lost_answer, failed_sync };
  explicit CommitUnawares(Way way) : ForwardingFileSystem(posix_file_system()), way_(way) {}

  Status rename_no_replace(const std::string& from, const std::string& to) override {
    VARVE_TRY(ForwardingFileSystem::rename_no_replace(from, to));
    if (!is_record(to) || std::exchange(committed_, true)) return {};
    cut_off = true;
    return way_ == Way::lost_answer ? Status::io_error("no answer", to) : Status();
  }
  Result<std::unique_ptr<File>> open_read(const std::string& path) override {
    if (cut_off && way_ == Way::lost_answer && is_record(path)) return Status::io_error("no answer", path);
    return ForwardingFileSystem::open_read(path);
  }
  Status sync_directory(const std::string& path) override {
    if (cut_off && way_ == Way::failed_sync && path.ends_with("/sets/run")) return Status::io_error("no sync", path);
    return ForwardingFileSystem::sync_directory(path);
  }
  /// Who removes a record that is to be the one puts it aside first.
  Status rename(const std::string& from, const std::string& to) override {
    if (cut_off && is_record(from)) return Status::io_error("no removal", from);
    if (is_record(from)) ++records_removed;
    return ForwardingFileSystem::rename(from, to);
  }

  std::atomic<bool> cut_off{false};
  std::atomic<int> records_removed{0};

 private:
  static bool is_record(const std::string& path) { return path.ends_with("/sets/run/7.set"); }
  const Way way_;
  bool committed_ = false;
};

class SealUnawares : public Seal, public testing::WithParamInterface<CommitUnawares::Way> {
 protected:
  void SetUp() override { prepare(folder_); }
  /// The set is committed, and its rename has failed.
  std::unique_ptr<TestMount> seal_unawares() {
    auto mounted = open(fs_, folder_);
    if (mounted == nullptr) return nullptr;
    EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
    EXPECT_TRUE(fs_.cut_off);
    fs_.cut_off = false;
    EXPECT_EQ(mounted->files("run/7"), kFiles);
    EXPECT_EQ(mounted->files("run/7.tmp"), kFiles);
    return mounted;
  }

  TempFolder folder_;
  CommitUnawares fs_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Every, SealUnawares,
                         testing::Values(CommitUnawares::Way::lost_answer, CommitUnawares::Way::failed_sync),
                         [](const auto& tested) {
                           return tested.param == CommitUnawares::Way::lost_answer ? "LostAnswer" : "FailedSync";
                         });

TEST_P(SealUnawares, ASetThatIsAsItWasLeavesTheSpoolWithTheNextMount) {
  ASSERT_NE(seal_unawares(), nullptr);
  check(folder_, true);
}

TEST_P(SealUnawares, ASetWhoseNoteCannotBeReadAtAMomentIsNotTakenForOneWithout) {
  ASSERT_NE(seal_unawares(), nullptr);
  test::UnreadableFile fs(posix_file_system());
  fs.name = "attempt";
  EXPECT_NE(open(fs, folder_), nullptr) << "the set is left alone in the spool";
  check(folder_, true);
}

TEST_P(SealUnawares, ASetThatIsAsItWasCanBeSealedAgain) {
  {
    const auto mounted = seal_unawares();
    ASSERT_NE(mounted, nullptr);
    const Status sealed = (*mounted)->seal(mounted->inode("run/7.tmp"));
    EXPECT_TRUE(sealed.ok()) << sealed.to_string();
    EXPECT_EQ(mounted->files("run/7"), kFiles);
    // Others may have gone on from it; but no second sync of its name proves anything.
    EXPECT_EQ(fs_.records_removed, GetParam() == CommitUnawares::Way::failed_sync ? 1 : 0);
  }
  check(folder_, true);
}

TEST_P(SealUnawares, ASetThatIsSealedUnderAnotherNameThenHasThatOne) {
  {
    const auto mounted = seal_unawares();
    ASSERT_NE(mounted, nullptr);
    ASSERT_EQ(mounted->rename("run/7.tmp", "run/8").number, 0);
    EXPECT_EQ(mounted->files("run/8"), kFiles);
  }
  const auto mounted = open(posix_file_system(), folder_);
  ASSERT_NE(mounted, nullptr);
  EXPECT_EQ(mounted->files("run/8"), kFiles);
  EXPECT_FALSE(mounted->look("run/7").ok());
  EXPECT_FALSE(mounted->look("run/7.tmp").ok());
  EXPECT_TRUE(test::is_whole(mounted->store()));
}

TEST_P(SealUnawares, WhatIsChangedAfterwardsStaysOpenBesideWhatWasCommitted) {
  using Change = std::function<Errno(TestMount&)>;
  const std::map<std::string, std::pair<Change, Files>> changes{
      {"overwritten", {[](TestMount& mount) { return mount.write_file("run/7.tmp/a", "other"); }, {{"a", "other"}}}},
      {"made", {[](TestMount& mount) { return mount.write_file("run/7.tmp/new", "more"); }, {{"new", "more"}}}},
      {"removed", {[](TestMount& mount) { return mount.remove("run/7.tmp/a"); }, {{"a", ""}}}},
      {"moved",
       {[](TestMount& mount) { return mount.rename("run/7.tmp/a", "run/7.tmp/z"); }, {{"a", ""}, {"z", "first"}}}},
  };
  const std::string way = GetParam() == CommitUnawares::Way::lost_answer ? "lost answer" : "failed sync";
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name + " after a " + way);
    TempFolder folder;
    prepare(folder);
    Files changed = kFiles;
    for (const auto& [path, text] : change.second) {
      if (text.empty()) {
        changed.erase(path);
      } else {
        changed[path] = text;
      }
    }
    {
      CommitUnawares fs(GetParam());
      const auto mounted = open(fs, folder);
      ASSERT_NE(mounted, nullptr);
      EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
      fs.cut_off = false;
      ASSERT_EQ(change.first(*mounted).number, 0);
      EXPECT_EQ((*mounted)->seal(mounted->inode("run/7.tmp")).code(), StatusCode::already_exists);
      EXPECT_EQ(mounted->files("run/7"), kFiles) << "nothing replaces it";
    }
    const auto mounted = open(posix_file_system(), folder);
    ASSERT_NE(mounted, nullptr);
    EXPECT_EQ(mounted->files("run/7"), kFiles);
    EXPECT_EQ(mounted->files("run/7.tmp"), changed);
    EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EEXIST);
    EXPECT_EQ(mounted->rename("run/7.tmp", "run/8").number, 0);
    EXPECT_EQ(mounted->files("run/8"), changed);
    EXPECT_EQ(mounted->files("run/7"), kFiles);
    EXPECT_TRUE(test::is_whole(mounted->store()));
  }
}

TEST_P(SealUnawares, ASetThatIsCalledOtherwiseAfterwardsStaysOpen) {
  {
    const auto mounted = seal_unawares();
    ASSERT_NE(mounted, nullptr);
    ASSERT_EQ(mounted->rename("run/7.tmp", "run/8.tmp").number, 0);
  }
  const auto mounted = open(posix_file_system(), folder_);
  ASSERT_NE(mounted, nullptr);
  EXPECT_EQ(mounted->files("run/8.tmp"), kFiles);
  EXPECT_EQ(mounted->files("run/7"), kFiles);
}

// Else a power cut could bring it back beside what was changed.
TEST_P(SealUnawares, NothingIsChangedBeforeTheNoteOfTheAttemptIsDurablyGone) {
  class NoSyncOfSets final : public ForwardingFileSystem {
   public:
    explicit NoSyncOfSets(FileSystem& inner) : ForwardingFileSystem(inner) {}
    Status sync_directory(const std::string& path) override {
      if (fails && path.find("/spool/jobs/run/") != std::string::npos) return Status::io_error("no sync", path);
      return ForwardingFileSystem::sync_directory(path);
    }
    bool fails = false;
  };
  NoSyncOfSets no_sync(fs_);
  const auto mounted = open(no_sync, folder_);
  ASSERT_NE(mounted, nullptr);
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
  fs_.cut_off = false;
  no_sync.fails = true;
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(mounted->write_file("run/7.tmp/a", "other").number, EIO);
    EXPECT_EQ(mounted->rename("run/7.tmp", "run/8.tmp").number, EIO);
    EXPECT_EQ(mounted->files("run/7.tmp"), kFiles);
  }
  no_sync.fails = false;
  EXPECT_EQ(mounted->write_file("run/7.tmp/a", "other").number, 0);
}

TEST_F(Seal, TakesNoSecondSyncOfAFileForSuccess) {
  TempFolder folder;
  prepare(folder);
  const auto mounted = open(posix_file_system(), folder);
  ASSERT_NE(mounted, nullptr);
  {
    auto file = mounted->create("run/7.tmp/d");
    ASSERT_TRUE(file.ok());
    ASSERT_EQ(TestMount::write(**file, "fourth").number, 0);
    const int descriptor = (*file)->descriptor();
    const UniqueFd own(::dup(descriptor));
    int ends[2] = {-1, -1};
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd reading(ends[0]), writing(ends[1]);
    ASSERT_EQ(::dup2(reading.get(), descriptor), descriptor);  // of which there is no sync
    EXPECT_EQ((*file)->sync(false).number, EINVAL);
    ASSERT_EQ(::dup2(own.get(), descriptor), descriptor);
    EXPECT_EQ((*file)->sync(false).number, EIO);
    EXPECT_EQ((*file)->sync(true).number, EIO);
  }
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, EIO);
  ASSERT_EQ(mounted->remove("run/7.tmp/d").number, 0);
  EXPECT_EQ(mounted->rename("run/7.tmp", "run/7").number, 0);
  EXPECT_EQ(mounted->files("run/7"), kFiles);
}

TEST_F(Seal, TakesNoSecondSyncOfAJobsNameForSuccess) {
  TempFolder folder;
  prepare(folder);
  const std::filesystem::path job = folder / "spool/jobs/other";
  OneFailedSync fs(folder / "spool/jobs", 0);
  const auto mounted = open(fs, folder);
  ASSERT_NE(mounted, nullptr);
  EXPECT_FALSE(mounted->make_folder("other").ok());
  EXPECT_TRUE(fs.has_failed());
  EXPECT_FALSE(std::filesystem::exists(job)) << "so that it is made anew, and synced";
  EXPECT_EQ(mounted->make_folder("other").number, 0);
  EXPECT_TRUE(std::filesystem::exists(job));
}

class SealWithFaults : public Seal, public testing::WithParamInterface<FaultKind> {};
INSTANTIATE_TEST_SUITE_P(Every, SealWithFaults,
                         testing::Values(FaultKind::no_space, FaultKind::io_error, FaultKind::short_write,
                                         FaultKind::failed_sync, FaultKind::failed_rename, FaultKind::failed_read),
                         test::fault_name);

TEST_P(SealWithFaults, LosesNothingWhateverTheDiskDoes) {
  const uint64_t count = operations();
  for (uint64_t at = 0; at < count; ++at) {
    SCOPED_TRACE("fault at operation " + std::to_string(at));
    TempFolder folder;
    prepare(folder);
    bool done = false;
    {
      FaultyFileSystem fs(posix_file_system(), {{.kind = GetParam(), .at_operation = at}});
      done = seal_with(fs, folder);
    }
    check(folder, done);
    if (HasFailure()) break;
  }
}

}  // namespace
}  // namespace varve
