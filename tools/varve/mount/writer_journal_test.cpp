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

}  // namespace
}  // namespace varve
