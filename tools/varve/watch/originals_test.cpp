#include "watch/originals.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "core/process.h"
#include "core/progress.h"
#include "engine/folder_source.h"
#include "engine/save.h"
#include "sets/saving.h"
#include "watch/test_text.h"

namespace varve {
namespace {

struct Originals : testing::Test {
  Originals() {
    test::write_file(folder / "out1/a", "first");
    test::write_file(folder / "out1/b", "second");
    std::filesystem::create_symlink("a", folder / "out1/link");
    look();
  }
  void look() {
    set.files = scan_source_tree(set.folder, null_progress()).value();
    std::erase_if(set.files, [](const SourceFile& file) { return is_removal_note(file.path); });
  }
  Status remove() { return remove_originals(folder.path(), set, "run", rules); }
  /// Has `act` done when the lease of the last file is taken: all of them are held, and none has left its name.
  void once_all_are_held(std::function<void()> act) {
    rules.take_lease = [act = std::move(act)](const std::string& path) {
      Result<ReadLease> lease = ReadLease::take(path);
      if (path.ends_with("/b")) act();
      return lease;
    };
  }
  bool knows_leases() const { return ReadLease::take(folder / "out1/a").ok(); }

  test::TempFolder folder{test::TempFolder::Where::disk};
  FoundSet set{folder / "out1", 1, {}};
  const std::string removing = set.folder + "/" + kRemovingFolder;
  const std::string note = set.folder + "/" + removal_note_name({"run", 1});
  OriginalsRules rules;
};
using AnOriginal = Originals;

TEST_F(AnOriginal, IsRemovedIfNobodyWritesToIt) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  const UniqueFd reader(::open((folder / "out1/a").c_str(), O_RDONLY));
  ASSERT_TRUE(remove().ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out1"));
}

TEST_F(AnOriginal, StaysIfAProgramHasOpenedItForWriting) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  const UniqueFd writer(::open((folder / "out1/b").c_str(), O_WRONLY | O_APPEND));
  EXPECT_EQ(remove().code(), StatusCode::busy);
  ASSERT_EQ(::write(writer.get(), "!", 1), 1);
  EXPECT_EQ(test::text_of_file(folder / "out1/b"), "second!");
  EXPECT_EQ(test::text_of_file(folder / "out1/a"), "first");
  EXPECT_FALSE(std::filesystem::exists(note)) << "nothing has gone";
}

TEST_F(AnOriginal, HasANoteBesideItUntilAllHaveGone) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  for (int i = 0; i < 100; ++i) test::write_file(folder / ("out1/c" + std::to_string(i)), "more");
  test::write_file(folder / "out1/z", "last");
  look();
  std::vector<bool> noted;
  const std::string last = folder / "out1/z";
  rules.take_lease = [&](const std::string& path) {
    if (path != last) return ReadLease::take(path);
    noted.push_back(std::filesystem::exists(note));
    return noted.size() == 1 ? Result<ReadLease>(Status::busy("a program has it open", path)) : ReadLease::take(path);
  };
  EXPECT_EQ(remove().code(), StatusCode::busy);
  EXPECT_FALSE(std::filesystem::exists(folder / "out1/a"));
  EXPECT_EQ(find_removal_note(folder.path(), set, "run").value(), base_name(note));
  look();
  EXPECT_TRUE(remove().ok());
  EXPECT_EQ(noted, (std::vector<bool>{true, true}));
  EXPECT_FALSE(std::filesystem::exists(folder / "out1"));
}

TEST_F(AnOriginal, HasANoteThatIsNewerThanItAlsoIfOneWasThere) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  for (int i = 0; i < 100; ++i) test::write_file(folder / ("out1/c" + std::to_string(i)), "written anew");
  look();
  test::write_file(note, "");
  test::make_older(note);
  rules.take_lease = [this](const std::string& path) {
    if (path.ends_with("/c99")) return Result<ReadLease>(Status::busy("a program has it open", path));
    return ReadLease::take(path);
  };
  EXPECT_EQ(remove().code(), StatusCode::busy);
  ASSERT_FALSE(std::filesystem::exists(folder / "out1/a"));
  look();
  EXPECT_EQ(find_removal_note(folder.path(), set, "run").value(), base_name(note));
}

TEST_F(AnOriginal, LeavesNoNoteOfWhoeverInAFolderOfItsOwn) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  const std::string other = set.folder + "/" + removal_note_name({"renamed", 1});
  test::write_file(other, "");
  test::write_file(set.folder + "/more", "of another set, which is being removed");
  ASSERT_TRUE(remove().ok());
  EXPECT_FALSE(std::filesystem::exists(note));
  EXPECT_TRUE(std::filesystem::exists(other));
  look();
  ASSERT_TRUE(remove().ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out1"));
}

TEST_F(AnOriginal, ThatIsNewerThanANoteIsNotWhatARemovalHasLeft) {
  test::write_file(note, "");
  EXPECT_EQ(find_removal_note(folder.path(), set, "run").value(), base_name(note)) << "of about the same time";
  test::make_older(note);
  std::filesystem::last_write_time(folder / "out1/b", std::filesystem::last_write_time(note));
  look();
  EXPECT_EQ(find_removal_note(folder.path(), set, "run").value(), base_name(note)) << "not all are newer";
  test::write_file(folder / "out1/b", "written anew");
  look();
  EXPECT_EQ(find_removal_note(folder.path(), set, "run").value(), "");
  EXPECT_FALSE(std::filesystem::exists(note));
}

TEST_F(AnOriginal, GetsItsNameBackInAFolderThatIsRenamedMeanwhile) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  rules.await_openers = [this] {
    std::filesystem::rename(folder / "out1", folder / "kept");
    const std::string away = folder / ("kept/" + std::string(kRemovingFolder) + "/a");
    const UniqueFd impatient(::open(away.c_str(), O_WRONLY | O_NONBLOCK));  // breaks the lease
    EXPECT_FALSE(impatient.valid());
  };
  EXPECT_EQ(remove().code(), StatusCode::busy);
  EXPECT_EQ(test::text_of_file(folder / "kept/a"), "first");
  EXPECT_EQ(test::text_of_file(folder / "kept/b"), "second");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "kept/link"));
  EXPECT_FALSE(std::filesystem::exists(folder / ("kept/" + std::string(kRemovingFolder))));
  EXPECT_FALSE(std::filesystem::exists(folder / ("kept/" + base_name(note)))) << "nothing has gone";
}

TEST_F(AnOriginal, StaysIfAProgramOpensItWhileItIsBeingRemoved) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  std::thread program;
  once_all_are_held([&] {
    program = std::thread([this] {
      const UniqueFd writer(::open((folder / "out1/a").c_str(), O_WRONLY | O_APPEND));  // waits for the lease
      EXPECT_EQ(::write(writer.get(), "!", 1), 1);
    });
    const UniqueFd impatient(::open((folder / "out1/a").c_str(), O_WRONLY | O_NONBLOCK));
    EXPECT_FALSE(impatient.valid());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_EQ(remove().code(), StatusCode::busy);
  program.join();
  EXPECT_EQ(test::text_of_file(folder / "out1/a"), "first!");
  EXPECT_EQ(test::text_of_file(folder / "out1/b"), "second");
  EXPECT_FALSE(std::filesystem::exists(removing));
}

TEST_F(AnOriginal, StaysIfItWasReplacedAtTheLastMoment) {
  if (!knows_leases()) GTEST_SKIP() << "no leases on this file system";
  once_all_are_held([this] {
    test::write_file(folder / "new", "precious");
    std::filesystem::rename(folder / "new", folder / "out1/a");
  });
  EXPECT_EQ(remove().code(), StatusCode::busy);
  EXPECT_EQ(test::text_of_file(folder / "out1/a"), "precious");
  EXPECT_EQ(test::text_of_file(folder / "out1/b"), "second");
}

TEST(AnOriginalInMemory, StaysIfItIsChangedThroughAMappingAfterItWasCompared) {
  const test::TempFolder folder;
  test::write_file(folder / "out1/a", "first");
  test::write_file(folder / "out1/b", ByteVector(8192, std::byte{1}));
  const FoundSet set{folder / "out1", 1, scan_source_tree(folder / "out1", null_progress()).value()};
  UniqueFd file(::open((folder / "out1/b").c_str(), O_RDWR | O_CLOEXEC));
  if (!times_may_miss_writes(file.get())) GTEST_SKIP() << "no file system in memory";
  SourceReader originals(set.folder, set.files);
  for (uint32_t i = 0; i < set.files.size(); ++i) {
    ByteVector compared(set.files[i].bytes);
    EXPECT_TRUE(originals.read(i, 0, compared).ok());
  }
  void* const mapped = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  volatile char* const bytes = static_cast<char*>(mapped);
  const char before = bytes[5000];
  bytes[5000] = 2;  // of a page that was only read so far
  bytes[5000] = before;
  ASSERT_TRUE(check_unchanged(set.folder, set.files[1]).ok()) << "its times do not tell";
  bytes[5000] = 2;
  ::munmap(mapped, 8192);
  file.reset();
  OriginalsRules rules;
  rules.check_bytes = [&](uint32_t i) { return originals.check_unnoticed(i); };
  EXPECT_EQ(remove_originals(folder.path(), set, "run", rules).code(), StatusCode::busy);
  EXPECT_TRUE(std::filesystem::exists(folder / "out1/a"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out1/b"));
  SourceReader again(set.folder, set.files);
  ByteVector whole(8192);
  EXPECT_TRUE(again.read(1, 0, whole).ok());
  rules.check_bytes = [&](uint32_t i) { return again.check_unnoticed(i); };
  EXPECT_TRUE(remove_originals(folder.path(), set, "run", rules).ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out1"));
}

TEST_F(AnOriginal, StaysWhereNobodyKnowsWhetherItIsClosed) {
  rules.take_lease = [](const std::string& path) { return Result<ReadLease>(Status::unsupported("no leases", path)); };
  EXPECT_EQ(remove().code(), StatusCode::unsupported);
  EXPECT_EQ(test::text_of_file(folder / "out1/a"), "first");
  rules.known_to_be_closed = true;
  ASSERT_TRUE(remove().ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "out1"));
}

TEST_F(AnOriginal, GetsItsNameBackAfterARemovalThatWasStopped) {
  std::filesystem::create_directory(removing);
  std::filesystem::rename(folder / "out1/a", removing + "/a");
  std::filesystem::rename(folder / "out1/b", removing + "/b");
  test::write_file(folder / "out1/b", "new");
  look();
  EXPECT_TRUE(put_back_unremoved(set.folder, set.files));
  EXPECT_EQ(test::text_of_file(folder / "out1/a"), "first");
  EXPECT_EQ(test::text_of_file(folder / "out1/b"), "new");
  EXPECT_EQ(test::text_of_file(removing + "/b"), "second");
  look();
  EXPECT_FALSE(put_back_unremoved(set.folder, set.files));
}

}  // namespace
}  // namespace varve
