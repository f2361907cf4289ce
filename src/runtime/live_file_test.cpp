#include "runtime/live_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sets/folders.h"

namespace varve {
namespace {

TEST(LiveFile, SaysByItsNameWhoseItIs) {
  const LiveFile file{.user = 7, .job_key = "0123456789abcdef", .process = ProcessIdentity::own().value(), .rank = 3};
  const std::optional<LiveFile> read = parse_live_file_name(file.name());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->user, 7u);
  EXPECT_EQ(read->job_key, file.job_key);
  EXPECT_EQ(read->process, file.process);
  EXPECT_EQ(read->rank, 3u);
  EXPECT_EQ(liveness(read->process), Liveness::alive);
}

TEST(LiveFile, HasNoOtherName) {
  for (const char* name :
       {"", "varve-live-", "varve-live-.prom", "varve-live-1-k-2-3-4.prom", "varve-live-1-k-2-3-4-x.prom",
        "varve-live-1-k-2-3-4-5-6.prom", "varve-live-1-k-2-3-99999999999999999999-5.prom",
        "varve-live-1-k-2-3-4-5.prom.77.tmp", "varve-1-k-control"})
    EXPECT_FALSE(parse_live_file_name(name)) << name;
}

TEST(LiveFile, TakesThePlaceOfThoseOfDeadRunsOfItsJobAndOfOldOnes) {
  const test::TempFolder folder;
  LiveFile dead{.user = 7, .job_key = "a", .process = ProcessIdentity::own().value(), .rank = 0};
  ++dead.process.start_ticks;  // another one that had the same number
  test::write_file(folder / dead.name(), "");
  LiveFile other = dead;
  other.job_key = "b";
  test::write_file(folder / other.name(), "");
  LiveFile old = other;
  old.job_key = "c";
  test::write_file(folder / old.name(), "");
  std::filesystem::last_write_time(folder / old.name(),
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  SegmentFamily family;
  family.folder = folder.path();
  family.user = 7;
  family.job_key = "a";
  const std::string own = take_live_file(family, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / dead.name()));
  EXPECT_TRUE(std::filesystem::exists(folder / other.name())) << "it is to be seen that it was killed";
  EXPECT_FALSE(std::filesystem::exists(folder / old.name())) << "for a day";
  EXPECT_EQ(parse_live_file_name(std::filesystem::path(own).filename().string())->rank, 2u);
}

}  // namespace
}  // namespace varve
