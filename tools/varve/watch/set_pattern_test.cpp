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

TEST(SetPattern, KnowsTimes) {
  const SetPattern times = pattern("processor{rank}/{time}/**");
  EXPECT_EQ(times.folder_depth(), 0u);
  EXPECT_EQ(times.match("processor3/0.02/U")->step, step_of_time(0.02));
  EXPECT_EQ(times.match("processor3/0.02/uniform/time")->rank, 3u);
  EXPECT_EQ(times.match("processor3/1e-05/U")->step, step_of_time(1e-05));
  EXPECT_EQ(times.match("processor3/2/U")->step, step_of_time(2));
  EXPECT_EQ(times.match("processor3/-15/U")->step, step_of_time(-15));
  for (const char* no : {"processor3/constant/points", "processor3/0.02", "processor3/0.02.old/U", "processors/0.1/U"})
    EXPECT_FALSE(times.match(no)) << no;
  EXPECT_EQ(pattern("out_{time}.h5").match("out_0.25.h5")->step, step_of_time(0.25));
  EXPECT_EQ(pattern("t{time}").match("t10.5")->step, step_of_time(10.5));
  EXPECT_FALSE(pattern("*{time}.dat").match("x.dat"));
}

TEST(SetPattern, NeedsNoStep) {
  const SetPattern files = pattern("state*.cpt");
  EXPECT_FALSE(files.has_step());
  EXPECT_EQ(files.folder_depth(), 0u);
  EXPECT_TRUE(files.match("state_prev.cpt"));
  EXPECT_FALSE(files.match("state.cpt")->step);
}

TEST(SetPattern, HasThoseOfPrograms) {
  for (const char* program : {"openfoam", "gromacs", "lammps", "enzo", "qe"}) {
    const Result<SetPatterns> patterns = parse_patterns(program);
    ASSERT_TRUE(patterns.ok()) << program;
    EXPECT_NE(patterns->front().text(), program);
  }
  EXPECT_EQ(parse_patterns("enzo")->back().text(), "RD{step}/**") << "dumps by redshift";
  EXPECT_EQ(parse_patterns("DD{step}/**")->front().text(), "DD{step}/**");
}

TEST(SetPattern, RefusesWhatIsNearlyTheNameOfAProgram) {
  for (const char* mistyped : {"openfom", "gromac", "lamps", "enzoo"}) {
    const Status refused = parse_patterns(mistyped).status();
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << mistyped;
    EXPECT_TRUE(refused.hint().starts_with("did you mean ")) << refused.to_string();
  }
  for (const char* name : {"water.gpw", "heat.h5", "vasp", "openfo?", "openfom/*"})
    EXPECT_EQ(parse_patterns(name)->front().text(), name);
}

TEST(SetPattern, RefusesWhatMakesNoSense) {
  for (const char* bad :
       {"", "**", "{step}.{step}", "{step}/{time}", "a//{step}", "/abs/{step}", "../{step}", "**/{step}",
        "{step}.{rank}.{rank}", "*********{step}", "out{stp}", "{step", "out.{*}.{step}"})
    EXPECT_EQ(SetPattern::parse(bad).status().code(), StatusCode::invalid_argument) << bad;
}

}  // namespace
}  // namespace varve
