#include "watch/rank_folders.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "sets/saving.h"

namespace varve {
namespace {

struct FoldersOfRanks : testing::Test {
  /// Each of the folders has these in it.
  void make(const std::vector<std::string>& folders, const std::vector<std::string>& inner) {
    for (const std::string& folder : folders) {
      for (const std::string& name : inner) std::filesystem::create_directories(run / (folder + "/" + name));
    }
  }
  /// The pattern; empty: none is found.
  std::string found() {
    const Result<std::optional<RankFolders>> folders = find_rank_folders(run.path());
    EXPECT_TRUE(folders.ok()) << folders.status().to_string();
    if (!folders.ok() || !*folders) return {};
    count = (*folders)->count;
    are_all_sets = (*folders)->are_all_sets;
    return (*folders)->pattern.text();
  }

  test::TempFolder run;
  size_t count = 0;
  bool are_all_sets = false;
};

TEST_F(FoldersOfRanks, HaveTheSameTimesInThem) {
  make({"processor0", "processor1", "processor2"}, {"0", "0.1", "0.2", "constant"});
  make({"0", "0.1", "system"}, {"uniform"});
  EXPECT_EQ(found(), "processor{rank}/{time}/**");
  EXPECT_EQ(count, 3u);
  EXPECT_TRUE(are_all_sets);
  make({"processor0"}, {"0.3"});
  EXPECT_EQ(found(), "processor{rank}/{time}/**") << "a time that is not in all yet";
}

TEST_F(FoldersOfRanks, MayBeThoseOfOneNode) {
  make({"processor4", "processor7"}, {"0", "constant"});
  EXPECT_EQ(found(), "processor{rank}/{time}/**") << "before the first step";
  make({"processor4"}, {"100", "200"});
  EXPECT_EQ(found(), "processor{rank}/{time}/**");
}

TEST_F(FoldersOfRanks, AreToldByAWordAlone) {
  make({"run0", "run1"}, {"0", "0.1", "0.2"});
  EXPECT_EQ(found(), "") << "two runs, with the same times";
  make({"dump0", "dump1"}, {"0", "1"});
  EXPECT_EQ(found(), "") << "the numbers below may be the ranks";
}

TEST_F(FoldersOfRanks, AreNotWhatCannotBeTold) {
  make({"processor0", "processor1"}, {"constant"});
  EXPECT_EQ(found(), "");
  make({"rank0"}, {"1", "2"});
  EXPECT_EQ(found(), "") << "one alone, without times";
  make({"rank1"}, {"3"});
  EXPECT_EQ(found(), "") << "nothing is in both";
}

TEST_F(FoldersOfRanks, AreNotTheTimesOfACaseOnOneRank) {
  make({"0", "1", "2", "0.5"}, {"0.1", "uniform"});
  EXPECT_EQ(found(), "");
}

TEST_F(FoldersOfRanks, AreNotTwoKindsAtOnce) {
  make({"processor0", "processor1", "rank0", "rank1"}, {"0.1"});
  EXPECT_EQ(found(), "");
}

TEST_F(FoldersOfRanks, SayWhetherOthersWouldBeSets) {
  make({"processor0", "processor1"}, {"0.1"});
  make({"dump7"}, {"fields"});
  EXPECT_EQ(found(), "processor{rank}/{time}/**");
  EXPECT_FALSE(are_all_sets);
}

TEST_F(FoldersOfRanks, AreNotWhatAPatternCannotSay) {
  make({"a*rank0", "a*rank1", "cpu0", "cpu00", "cpu1"}, {"0.1"});
  EXPECT_EQ(found(), "");
}

}  // namespace
}  // namespace varve
