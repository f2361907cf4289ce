// Which files of a folder a set has, and which of them patterns choose for one.

#include <fcntl.h>
#include <fnmatch.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <set>

#include "core/file_system.h"
#include "core/memory_file_system.h"
#include "core/process.h"
#include "engine/diff.h"
#include "engine/folder_source.h"
#include "sets/saving.h"

namespace varve {
namespace {

struct FolderMatching : testing::Test {
  FolderMatching() {
    test::write_file(folder / "sub/a", test::random_bytes(50'000, 1));
    test::write_file(folder / "b", test::random_bytes(20'000, 2));
    std::filesystem::create_symlink("b", folder / "link");
    EXPECT_TRUE(test::save(*store, folder.path(), "run", 1).ok());
    record = Catalog(*store).read({"run", 1}).value();
  }
  std::vector<SourceFile> files() const { return scan_source_tree(folder.path(), null_progress()).value(); }
  FolderMatch match() const { return match_folder(*store, record, files()).value(); }
  StatusCode check() const {
    const std::vector<SourceFile> found = files();
    SourceReader reader(folder.path(), found);
    return check_saved(*store, record, reader).code();
  }

  MemoryFileSystem fs;
  std::unique_ptr<Store> store = test::make_store(fs);
  test::TempFolder folder;
  SetRecord record;
};

TEST_F(FolderMatching, KnowsTheFolderThatWasSaved) {
  EXPECT_EQ(match(), FolderMatch::whole);
  EXPECT_EQ(check(), StatusCode::ok);
}

TEST_F(FolderMatching, KnowsWhatIsLeftOfIt) {
  std::filesystem::remove(folder / "sub/a");
  EXPECT_EQ(match(), FolderMatch::part);
  EXPECT_EQ(check(), StatusCode::ok);
}

TEST_F(FolderMatching, NoticesFilesThatAreNewOrOtherwise) {
  test::write_file(folder / "c", "more");
  EXPECT_EQ(match(), FolderMatch::differs);
  EXPECT_EQ(check(), StatusCode::corrupt);
  std::filesystem::remove(folder / "c");
  EXPECT_EQ(match(), FolderMatch::whole);
  std::filesystem::permissions(folder / "b", std::filesystem::perms::owner_read);
  EXPECT_EQ(match(), FolderMatch::differs);
}

TEST_F(FolderMatching, NoticesBytesThatDifferUnderTheSameFacts) {
  const auto time = std::filesystem::last_write_time(folder / "b");
  ByteVector bytes = test::random_bytes(20'000, 2);
  bytes[19'999] ^= std::byte{1};
  test::write_file(folder / "b", bytes);
  std::filesystem::last_write_time(folder / "b", time);
  EXPECT_EQ(match(), FolderMatch::whole);
  EXPECT_EQ(check(), StatusCode::corrupt);
}

struct FolderChoosing : testing::Test {
  using Paths = std::vector<std::string>;
  struct Warnings final : ProgressSink {
    void total(uint64_t) override {}
    void advance(uint64_t) override {}
    void phase(std::string_view) override {}
    void warning(const Status& what) override { said.push_back(what.to_string()); }
    bool cancelled() const override { return false; }
    Paths said;
  };

  ChosenFiles scan(const FileChoice& choice) {
    warnings.said.clear();
    Result<ChosenFiles> found = scan_chosen_files(folder.path(), choice, warnings);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? std::move(*found) : ChosenFiles();
  }
  Paths chosen(const FileChoice& choice) {
    Paths paths;
    for (const SourceFile& file : scan(choice).files) paths.push_back(file.path);
    return paths;
  }
  /// What check_unchanged() says of the folder itself after `change`, once where `choice` was scanned for, and once
  /// where all was.
  std::pair<StatusCode, StatusCode> changed_by(const FileChoice& choice, const std::function<void()>& change) {
    SourceFile self = look_at_source(folder.path())->self;
    self.names_sum = scan(choice).names_sum;
    let_times_pass({self});
    change();
    return {check_unchanged(folder.path(), self, choice).code(), check_unchanged(folder.path(), self).code()};
  }

  // A disk's file system gives the number of a file that is gone to the next one.
  test::TempFolder folder{test::TempFolder::Where::disk};
  Warnings warnings;
};

/// What a choice means, plainly: of all paths of a tree.
FolderChoosing::Paths plainly_chosen(const FolderChoosing::Paths& all, const FileChoice& choice) {
  const auto matches = [](std::vector<std::string> globs, const std::string& path) {
    for (std::string& glob : globs) {
      while (glob.size() > 1 && glob.ends_with('/')) glob.pop_back();
      for (std::string at = path; at != "."; at = parent_path(at)) {
        const std::string subject = glob.find('/') == std::string::npos ? base_name(at) : at;
        if (::fnmatch(glob.c_str(), subject.c_str(), FNM_PATHNAME) == 0) return true;
      }
    }
    return false;
  };
  std::set<std::string> taken;
  for (const std::string& path : all) {
    if (matches(choice.exclude, path) || (!choice.include.empty() && !matches(choice.include, path))) continue;
    for (std::string at = path; at != "."; at = parent_path(at)) taken.insert(at);
  }
  return {taken.begin(), taken.end()};
}

TEST_F(FolderChoosing, TakesWhatMatchesWithTheFoldersAboveIt) {
  const Paths names = {"a", "b", "ab", ".a"};
  for (const std::string& first : names) {
    for (const std::string& second : names) {
      test::write_file(folder / (first + "/" + second + "/a"), "a");
      test::write_file(folder / (first + "/" + second + "/b"), "b");
    }
    test::write_file(folder / (first + "/file"), "x");
  }
  std::filesystem::create_directory(folder / "a/empty");
  std::filesystem::create_symlink("a", folder / "b/link");
  const Paths all = chosen({});
  ASSERT_EQ(all.size(), 4u + 16 + 32 + 4 + 2);
  const Paths components = {"a",    "b",   "*", "a*", "?",     "[ab]", "[!a]", "\\a", "file", "l*k", "empty",
                            "[a/b", "**a", "x", ".",  "[]a]*", "",     "b\\",  ".*",  "a]",   "[",   "a[/]b"};
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  const auto any_globs = [&] {
    Paths globs(random() % 3);
    for (std::string& glob : globs) {
      const size_t count = random() % 4 + 1;
      for (size_t i = 0; i < count; ++i) glob += (i > 0 ? "/" : "") + components[random() % components.size()];
    }
    return globs;
  };
  for (int turn = 0; turn < 1500; ++turn) {
    const FileChoice choice{.include = any_globs(), .exclude = any_globs()};
    std::string said = "seed " + std::to_string(seed) + ":";
    for (const std::string& glob : choice.include) said.append(" +").append(glob);
    for (const std::string& glob : choice.exclude) said.append(" -").append(glob);
    const Paths taken = chosen(choice);
    ASSERT_EQ(taken, plainly_chosen(all, choice)) << said;
    for (const std::string& path : taken) ASSERT_TRUE(may_take(choice, path)) << path << ", " << said;
  }
}

TEST_F(FolderChoosing, LooksIntoNothingThatCannotBeTaken) {
  test::write_file(folder / "old/b.bin", "b");
  test::write_file(folder / "data/a.bin", "a");
  test::write_file(folder / "a.bin", "a");
  // A path below it is longer than any may be.
  const std::string name(250, 'd');
  UniqueFd deep(::open((folder / "old").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 17; ++i) {
    ASSERT_EQ(::mkdirat(deep.get(), name.c_str(), 0700), 0);
    deep = UniqueFd(::openat(deep.get(), name.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  EXPECT_FALSE(scan_source_tree(folder.path(), null_progress()).ok());
  EXPECT_FALSE(scan_chosen_files(folder.path(), {.include = {"*.bin"}, .exclude = {}}, null_progress()).ok());
  const UniqueFd watch(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  ASSERT_GE(::inotify_add_watch(watch.get(), (folder / "old").c_str(), IN_OPEN), 0);
  const auto was_opened = [&] {
    char events[4096];
    return ::read(watch.get(), events, sizeof events) > 0;
  };
  EXPECT_EQ(chosen({.include = {}, .exclude = {"old"}}), (Paths{"a.bin", "data", "data/a.bin"}));
  EXPECT_EQ(chosen({.include = {}, .exclude = {"ol[d]/"}}), (Paths{"a.bin", "data", "data/a.bin"}));
  EXPECT_EQ(chosen({.include = {"data/*.bin"}, .exclude = {}}), (Paths{"data", "data/a.bin"}));
  EXPECT_EQ(chosen({.include = {"d*/a*", "o/*/x"}, .exclude = {}}), (Paths{"data", "data/a.bin"}));
  EXPECT_FALSE(was_opened());
  EXPECT_FALSE(may_take({.include = {}, .exclude = {"old"}}, "old/b.bin"));
  EXPECT_TRUE(may_take({.include = {}, .exclude = {"old/?"}}, "old"));
  EXPECT_TRUE(may_take({.include = {"*.bin"}, .exclude = {}}, "old"));
  EXPECT_FALSE(may_take({.include = {"data/*.bin"}, .exclude = {}}, "old/sub"));
  std::filesystem::remove_all(folder / "old");
}

TEST_F(FolderChoosing, SaysWhichPatternsMatchNothing) {
  test::write_file(folder / "old/b.log", "b");
  test::write_file(folder / "data/a.bin", "a");
  scan({.include = {"data", "a.bin"}, .exclude = {"old"}});
  EXPECT_EQ(warnings.said, Paths{}) << "a folder is matched, and what lies in one that is taken";
  scan({.include = {}, .exclude = {"*.nope"}});
  ASSERT_EQ(warnings.said.size(), 1u);
  EXPECT_NE(warnings.said[0].find("matches nothing in the folder: *.nope"), std::string::npos) << warnings.said[0];
  scan({.include = {"data", "*.log"}, .exclude = {"old", "*.log"}});
  ASSERT_EQ(warnings.said.size(), 2u);
  EXPECT_NE(warnings.said[0].find("that is not left out anyway: *.log"), std::string::npos) << warnings.said[0];
  EXPECT_NE(warnings.said[1].find("that is not excluded: *.log"), std::string::npos) << warnings.said[1];
}

TEST_F(FolderChoosing, TellsWhatComesAndGoesInAFolderFromWhatIsLeftOut) {
  test::write_file(folder / "a.bin", "a");
  test::write_file(folder / "b.log", "b");
  std::filesystem::create_symlink("a.bin", folder / "link");
  const FileChoice no_logs{.include = {}, .exclude = {"*.log"}}, only_bin{.include = {"*.bin"}, .exclude = {}};
  const auto write = [this](const char* name) { return [this, name] { test::write_file(folder / name, name); }; };
  const auto remove = [this](const char* name) { return [this, name] { std::filesystem::remove_all(folder / name); }; };
  const std::pair unnoticed(StatusCode::ok, StatusCode::busy), noticed(StatusCode::busy, StatusCode::busy);
  EXPECT_EQ(changed_by(no_logs, write("c.log")), unnoticed);
  EXPECT_EQ(changed_by(no_logs, remove("b.log")), unnoticed);
  EXPECT_EQ(changed_by(only_bin, write("d.txt")), unnoticed);
  EXPECT_EQ(changed_by(no_logs, write("e.bin")), noticed);
  EXPECT_EQ(changed_by(only_bin, remove("e.bin")), noticed);
  EXPECT_EQ(changed_by(only_bin, write("sub/f.bin")), noticed) << "a folder in which something may be taken";
  EXPECT_EQ(changed_by({.include = {"*.bin"}, .exclude = {"s*b"}}, remove("sub")), unnoticed);
  // What has the same name, and perhaps the same times.
  EXPECT_EQ(changed_by(no_logs,
                       [this] {
                         test::write_file(folder / "new.log", "A");
                         std::filesystem::rename(folder / "new.log", folder / "a.bin");
                       }),
            noticed);
  EXPECT_EQ(changed_by(no_logs,
                       [this] {
                         std::filesystem::remove(folder / "link");
                         std::filesystem::create_symlink("b.bin", folder / "link");
                       }),
            noticed);
  EXPECT_EQ(changed_by(no_logs,
                       [this] {
                         test::write_file(folder / "brief", "x");
                         std::filesystem::remove(folder / "brief");
                       }),
            unnoticed)
      << "as it was when it was listed";
}

}  // namespace
}  // namespace varve
