#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <set>

#include "mount/spool.h"
#include "sets/folders.h"

namespace varve {
namespace {

/// While it lives, no file of this process grows beyond so many bytes: a write stops there, as on a full disk.
class FileBytesLimit {
 public:
  explicit FileBytesLimit(uint64_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileBytesLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileBytesLimit(const FileBytesLimit&) = delete;
  FileBytesLimit& operator=(const FileBytesLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(WriterJournal, ALineThatDoesNotFitSpoilsNoneThatComesLater) {
  const test::TempFolder folder;
  const std::string path = folder / "writers";
  {
    Result<WriterJournal> journal = WriterJournal::open(path);
    ASSERT_TRUE(journal.ok());
    ASSERT_TRUE(journal->begin(12).ok());
    ASSERT_TRUE(journal->begin(34567).ok());
    for (const uint64_t room : {1, 2, 4}) {
      Status begun;
      {
        const FileBytesLimit limit(std::filesystem::file_size(path) + room);
        begun = journal->begin(34568);
      }
      EXPECT_EQ(begun.code(), StatusCode::no_space) << room;
      ASSERT_TRUE(journal->begin(800 + room).ok());
    }
    {
      const FileBytesLimit limit(std::filesystem::file_size(path) + 3);
      journal->end(34567);
    }
    ASSERT_TRUE(journal->begin(900).ok());
  }
  const Result<WriterJournal> journal = WriterJournal::open(path);
  ASSERT_TRUE(journal.ok());
  EXPECT_EQ(journal->left_open(), (std::set<uint64_t>{12, 801, 802, 804, 900, 34567}));
}

TEST(WriterJournal, RemembersWhatIsLostUntilThatIsGone) {
  const test::TempFolder folder;
  const std::string path = folder / "writers";
  for (const bool has_room : {true, false}) {
    SCOPED_TRACE(has_room);
    {
      WriterJournal journal = WriterJournal::open(path).value();
      ASSERT_TRUE(journal.begin(12).ok());
      {
        const FileBytesLimit limit(has_room ? 4096 : std::filesystem::file_size(path) + 1);
        journal.lose(12);
      }
      journal.end(12);
    }
    {
      WriterJournal journal = WriterJournal::open(path).value();
      EXPECT_TRUE(journal.had_lost(12));
      EXPECT_EQ(journal.had_lost(13), !has_room) << "nobody knows which";
      ASSERT_TRUE(journal.begin(14).ok());
      journal.end(14);
      journal.forget_lost(12, /*was_last=*/true);
    }
    const WriterJournal journal = WriterJournal::open(path).value();
    EXPECT_FALSE(journal.had_lost(12));
    EXPECT_FALSE(journal.had_lost(13));
    EXPECT_FALSE(journal.left_open().contains(14));
  }
}

TEST(WriterJournal, ForgetsNobodyWhoWritesWhateverItHasNoRoomFor) {
  for (const bool is_of_before : {false, true}) {
    SCOPED_TRACE(is_of_before);
    const test::TempFolder folder;
    const std::string path = folder / "writers";
    if (is_of_before) test::write_file(path, "+100\n");
    {
      WriterJournal journal = WriterJournal::open(path).value();
      if (!is_of_before) {
        ASSERT_TRUE(journal.begin(100).ok());
      }
      ASSERT_TRUE(journal.begin(12).ok());
      {
        const FileBytesLimit limit(std::filesystem::file_size(path) + 1);
        journal.lose(12);
      }
      journal.forget_lost(12, /*was_last=*/true);
      journal.end(12);
    }
    const WriterJournal journal = WriterJournal::open(path).value();
    EXPECT_FALSE(journal.had_lost(12));
    EXPECT_EQ(journal.left_open().contains(100), !is_of_before);
    EXPECT_EQ(journal.may_lack_lines(), is_of_before);
  }
}

}  // namespace
}  // namespace varve
