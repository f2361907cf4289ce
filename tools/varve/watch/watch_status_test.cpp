#include "watch/watch_status.h"

#include <gtest/gtest.h>

#include <optional>

#include "sets/folders.h"

namespace varve {
namespace {

using test::TempFolder;

TEST(WatchStatus, IsReadAsItWasWritten) {
  const TempFolder state;
  EXPECT_TRUE(read_watch_statuses(state.path()).value().empty());
  std::optional<StatusFile> file = StatusFile::open(state.path(), {"/run"}, "/store").value();
  WatchStatus status;
  status.folders = {"/run"};
  status.to = "/store";
  status.process = 12;
  status.saved_sets = 3;
  status.raw_bytes = 1'000'000;
  status.newest = "run@3";
  status.pending = {{"run@4", "waiting", "a \"program\" is writing\nx"}, {"run@5", "failed", "disk \xff full"}};
  ASSERT_TRUE(file->write(status).ok());
  status.saved_sets = 4;
  ASSERT_TRUE(file->write(status).ok());

  std::vector<WatchStatus> read = read_watch_statuses(state.path()).value();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_TRUE(read[0].alive);
  EXPECT_EQ(read[0].saved_sets, 4u);
  EXPECT_EQ(read[0].newest, "run@3");
  ASSERT_EQ(read[0].pending.size(), 2u);
  EXPECT_EQ(read[0].pending[0].why, status.pending[0].why);
  file.reset();
  EXPECT_FALSE(read_watch_statuses(state.path()).value()[0].alive);
}

TEST(WatchStatus, LetsOnlyOneWatcherSaveTheSameFoldersToTheSameStore) {
  const TempFolder state;
  const StatusFile first = StatusFile::open(state.path(), {"/run"}, "/store").value();
  EXPECT_EQ(StatusFile::open(state.path(), {"/run"}, "/store").status().code(), StatusCode::busy);
  EXPECT_TRUE(StatusFile::open(state.path(), {"/run"}, "/other").ok());
  EXPECT_TRUE(StatusFile::open(state.path(), {"/run"}, "/store", "another job").ok());
}

TEST(WatchStatus, LeavesOutFilesThatMakeNoSense) {
  const TempFolder state;
  test::write_file(state / "watch/a.json", "{");
  test::write_file(state / "watch/b.json", "[1]");
  test::write_file(state / "watch/c.json", "{\"folders\": 3}");
  EXPECT_TRUE(read_watch_statuses(state.path()).value().empty());
}

}  // namespace
}  // namespace varve
