#include "level/level_spec.h"

#include <gtest/gtest.h>

namespace varve {
namespace {

LevelSpec level_of(std::string_view text) {
  const Result<LevelSpec> level = parse_level(text);
  EXPECT_TRUE(level.ok()) << level.status().to_string();
  return level.ok() ? *level : LevelSpec();
}

std::string refusal_of(std::string_view text) {
  const Result<std::vector<LevelSpec>> levels = parse_levels(text);
  EXPECT_FALSE(levels.ok()) << text;
  EXPECT_EQ(levels.status().code(), StatusCode::invalid_argument);
  return levels.status().to_string();
}

TEST(LevelSpec, ReadsAPlaceAndItsOptions) {
  const LevelSpec level = level_of("  local:/nvme/varve  keep=2 bandwidth=500MB/s\tevery=3 ");
  EXPECT_EQ(level.kind, &kNodeLevel);
  EXPECT_EQ(level.place, "/nvme/varve");
  EXPECT_EQ(level.every, 3u);
  EXPECT_EQ(level.keep, 2u);
  EXPECT_EQ(level.bytes_per_second, 500'000'000u);
  EXPECT_EQ(level.to_string(), "local:/nvme/varve every=3 keep=2 bandwidth=500MB/s");
}

TEST(LevelSpec, ReadsAllKinds) {
  EXPECT_EQ(level_of("memory").kind, &kMemoryLevel);
  EXPECT_EQ(level_of("partner").redundancy, Redundancy());
  EXPECT_EQ(level_of("xor:8").kind, &kRedundancyLevel);
  EXPECT_EQ(level_of("rs:4+2").redundancy.parity_parts, 2u);
  EXPECT_EQ(level_of("dir:varve-store").kind, &kFolderLevel);
  EXPECT_EQ(level_of("dir:varve-store").place, "varve-store");
  EXPECT_EQ(level_of("/lustre/varve"), level_of("dir:/lustre/varve"));
  EXPECT_EQ(level_of("tcp://a:7000,b:7000").kind, &kTcpLevel);
  EXPECT_EQ(level_of("tcp://a:7000,b:7000").place, "a:7000,b:7000");
  EXPECT_EQ(level_of("unix:/run/a,/run/b").name(), "unix:/run/a,/run/b");
}

TEST(LevelSpec, DefaultsToEachSetAndToKeepingAll) {
  const LevelSpec level = level_of("dir:/x");
  EXPECT_EQ(level.every, 1u);
  EXPECT_FALSE(level.keep);
  EXPECT_FALSE(level.bytes_per_second);
}

TEST(LevelSpec, APathMayHaveWhatEndsALevel) {
  EXPECT_EQ(level_of("dir:/my%20store/100%25%3b").place, "/my store/100%;");
  LevelSpec level;
  level.place = "/a b;c%d\tx\n";
  EXPECT_EQ(level.to_string(), "dir:/a%20b%3Bc%25d%09x%0A");
  EXPECT_EQ(level_of(level.to_string()), level);
  for (const char* bad : {"dir:/a%", "dir:/a%2", "dir:/a%zz", "dir:/a%00"}) EXPECT_FALSE(parse_level(bad).ok()) << bad;
}

TEST(LevelSpec, TextAndMeaningGoRound) {
  for (const char* text : {"memory", "local:/nvme/varve keep=2", "xor:8 every=2", "partner", "rs:3+2 every=4 keep=1",
                           "dir:/lustre/varve every=10", "dir:rel%20ative", "tcp://a:1,b:2 bandwidth=1001B/s",
                           "unix:/s bandwidth=3kB/s", "dir:/x bandwidth=2TB/s", "dir:/x keep=18446744073709551615"}) {
    EXPECT_EQ(level_of(text).to_string(), text);
    EXPECT_EQ(level_of(level_of(text).to_string()), level_of(text)) << text;
  }
  const char* all = "memory; local:/nvme/varve keep=2; xor:8 every=2; dir:/lustre/varve every=10; tcp://far:7000";
  EXPECT_EQ(to_string(parse_levels(all).value()), all);
  EXPECT_EQ(to_string(parse_levels("memory;/x").value()), "memory; dir:/x");
}

TEST(LevelSpec, SaysWhichLevelIsWrongAndWhatIsWrongWithIt) {
  const std::pair<const char*, const char*> wrong[] = {
      {"memory; ; /x", "a level is empty"},
      {"", "a level is empty"},
      {"memory; /x;", "a level is empty"},
      {"disk:/x", "no such level"},
      {"memoryx", "no such level"},
      {"relative/path", "no such level"},
      {"dir:", "says no place"},
      {"local:", "says no place"},
      {"tcp://", "says no place"},
      {"tcp://host", "no port"},
      {"tcp://a:1,a:1", "are the same"},
      {"xor:1", "not a scheme of redundancy"},
      {"rs:4", "not a scheme of redundancy"},
      {"dir:/x every=0", "at least 1"},
      {"dir:/x every=", "not a whole number"},
      {"dir:/x every", "not a whole number"},
      {"dir:/x keep=two", "not a whole number"},
      {"dir:/x keep=2 keep=3", "said twice"},
      {"dir:/x often=2", "no such option"},
      {"dir:/x bandwidth=0", "not a bandwidth"},
      {"dir:/x bandwidth=0.1B/s", "not a bandwidth"},
      {"dir:/x bandwidth=1e30", "not a bandwidth"},
      {"memory every=2; /x", "memory takes no options"},
      {"local:/x; xor:2 bandwidth=1G", "as fast as its nodes"},
  };
  for (const auto& [text, what] : wrong) {
    EXPECT_NE(refusal_of(text).find(what), std::string::npos) << text << ": " << refusal_of(text);
  }
  EXPECT_NE(refusal_of("memory; dir:/y often=2; /x").find("dir:/y often=2"), std::string::npos);
}

TEST(LevelSpec, LevelsAreInOrderFromNearToFar) {
  const std::pair<const char*, const char*> wrong[] = {
      {"memory", "no level holds"},
      {"/x; memory", "memory is the first"},
      {"memory; memory; /x", "memory is the first"},
      {"/x; local:/y", "one local level"},
      {"local:/x; local:/y", "one local level"},
      {"local:/x; xor:2; local:/y", "one local level"},
      {"xor:2; /x", "protects a local level"},
      {"local:/x; xor:2; partner; /y", "protects a local level"},
      {"local:/x; /y; xor:2", "protects a local level"},
      {"/x; dir:/x every=2", "there twice"},
  };
  for (const auto& [text, what] : wrong) {
    EXPECT_NE(refusal_of(text).find(what), std::string::npos) << text << ": " << refusal_of(text);
  }
  for (const char* good :
       {"/x", "local:/x", "memory; local:/x", "local:/x; rs:2+2; unix:/y; /z; tcp://a:1", "tcp://a:1; dir:/x"}) {
    EXPECT_TRUE(parse_levels(good).ok()) << good;
  }
}

}  // namespace
}  // namespace varve
