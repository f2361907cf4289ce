#include "watch/set_pattern.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

SetPattern pattern(std::string_view text) {
  Result<SetPattern> parsed = SetPattern::parse(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return std::move(parsed).value();
}

TEST(SetPattern, TakesTheNumberAtTheEndOfAFoldersName) {
  const SetPattern folders = SetPattern();
  EXPECT_EQ(folders.folder_depth(), 1u);
  EXPECT_TRUE(folders.whole_folder());
  EXPECT_EQ(folders.folder_step("DD0006"), 6u);
  EXPECT_EQ(folders.folder_step("dump-2.0117"), 117u);
  EXPECT_EQ(folders.folder_step("12"), 12u);
  for (const char* no : {"DD0006.tmp", "log", "", "DD0006/data", "99999999999999999999999"})
    EXPECT_FALSE(folders.folder_step(no)) << no;
  EXPECT_EQ(folders.match("DD0006/data.cpu0003")->step, 6u);
  EXPECT_FALSE(folders.match("DD0006"));
}

TEST(SetPattern, TellsFilesThatLieSideBySide) {
  const SetPattern files = pattern("restart.{step}.{rank}");
  EXPECT_EQ(files.folder_depth(), 0u);
  const auto match = files.match("restart.400.12");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->step, 400u);
  EXPECT_EQ(match->rank, 12u);
  for (const char* no : {"restart.400.12.tmp", "restart.400.", "restart.400", "arestart.400.1", "sub/restart.400.1"})
    EXPECT_FALSE(files.match(no)) << no;
}

TEST(SetPattern, TakesWholeNumbersOnly) {
  const SetPattern files = pattern("p*{rank}_{step}?dat");
  const auto match = files.match("proc007_0040.dat");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->rank, 7u);
  EXPECT_EQ(match->step, 40u);
}

TEST(SetPattern, NamesFoldersDeepDown) {
  const SetPattern deep = pattern("run*/out{step}/data.cpu{rank}");
  EXPECT_EQ(deep.folder_depth(), 2u);
  EXPECT_FALSE(deep.whole_folder());
  EXPECT_EQ(deep.folder_step("run_a/out7"), 7u);
  EXPECT_FALSE(deep.folder_step("out7"));
  EXPECT_EQ(deep.match("run_a/out7/data.cpu3")->rank, 3u);
  EXPECT_FALSE(deep.match("run_a/out7/other"));
}

TEST(SetPattern, RefusesWhatMakesNoSense) {
  for (const char* bad : {"", "restart.*", "{step}.{step}", "a//{step}", "/abs/{step}", "../{step}", "**/{step}",
                          "{step}.{rank}.{rank}", "*********{step}"})
    EXPECT_EQ(SetPattern::parse(bad).status().code(), StatusCode::invalid_argument) << bad;
}

}  // namespace
}  // namespace varve
