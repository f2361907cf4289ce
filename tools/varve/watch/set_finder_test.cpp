#include "watch/set_finder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/step_text.h"
#include "sets/saving.h"

namespace varve {
namespace {

struct AFinder : testing::Test {
  void write(const std::string& path, const std::string& text = "x") {
    const std::filesystem::path file = std::filesystem::path(run.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  /// "step: file(rank) file(rank)" of each set.
  std::vector<std::string> found(std::string_view patterns) { return found(parse_patterns(patterns).value()); }
  std::vector<std::string> found(const SetPatterns& patterns = {SetPattern()}) {
    SetFinder finder(run.path(), patterns, "");
    finder.look_only();
    others = finder.choose_pattern().value();
    pattern = finder.pattern().text();
    const Result<std::vector<FoundSet>> sets = finder.find(null_progress());
    EXPECT_TRUE(sets.ok()) << sets.status().to_string();
    std::vector<std::string> lines;
    for (const FoundSet& set : *sets) {
      std::string line = step_text(set.step) + ":";
      for (const SourceFile& file : set.files) {
        if (file.type == FileType::directory) continue;
        line += " " + file.path + (file.rank < 0 ? "" : "(" + std::to_string(file.rank) + ")");
      }
      lines.push_back(line);
    }
    return lines;
  }

  test::TempFolder run;
  std::string pattern;
  std::vector<std::string> others;
};
using Lines = std::vector<std::string>;

TEST_F(AFinder, TakesFoldersThatAreTimesForTimes) {
  for (const char* time : {"0", "0.02", "0.2", "1e-05", "1"}) write(std::string(time) + "/U");
  write("log.solver");
  EXPECT_EQ(found(), (Lines{"0.0: U", "1e-05: U", "0.02: U", "0.2: U", "1.0: U"}));
}

TEST_F(AFinder, TakesFoldersOfNumbersForCountsIfNoneIsATime) {
  for (const char* step : {"10", "9", "DD0011"}) write(std::string(step) + "/U");
  EXPECT_EQ(found(), (Lines{"9: U", "10: U", "11: U"}));
}

TEST_F(AFinder, FindsTheTimesOfOpenFoamBelowItsProcessors) {
  for (const char* processor : {"processor0", "processor1"}) {
    write(std::string(processor) + "/0/U");
    write(std::string(processor) + "/0.02/uniform/time");
    write(std::string(processor) + "/0.02/U");
    write(std::string(processor) + "/constant/polyMesh/points");
  }
  write("0/U");
  write("system/controlDict");
  EXPECT_EQ(found("openfoam"), (Lines{"0.0: processor0/0/U(0) processor1/0/U(1)",
                                      "0.02: processor0/0.02/U(0) processor0/0.02/uniform/time(0) processor1/0.02/U(1) "
                                      "processor1/0.02/uniform/time(1)"}));
  EXPECT_EQ(pattern, "processor{rank}/{time}/**");
}

TEST_F(AFinder, TakesFoldersOfRanksForWhatTheyAreUnlessAPatternIsSaid) {
  for (const char* processor : {"processor0", "processor1"}) {
    write(std::string(processor) + "/0.1/U");
    write(std::string(processor) + "/constant/polyMesh/points");
  }
  write("0/U");
  const Lines sets = {"0.1: processor0/0.1/U(0) processor1/0.1/U(1)"};
  EXPECT_EQ(found(), sets);
  EXPECT_EQ(pattern, "processor{rank}/{time}/**");
  EXPECT_EQ(others, Lines{});
  write("dump7/data");
  EXPECT_EQ(found(), sets);
  EXPECT_EQ(others, Lines{"*{step}/**"});
  EXPECT_EQ(found(SetPattern::kDefault).size(), 4u);
  EXPECT_EQ(pattern, SetPattern::kDefault);
}

TEST_F(AFinder, SeesFoldersOfRanksWhenTheyComeAndStaysWithThem) {
  SetFinder finder(run.path(), {SetPattern()}, "");
  EXPECT_TRUE(finder.choose_pattern().ok());
  EXPECT_TRUE(finder.pattern().is_default());
  write("processor0/0/U");
  write("processor1/0/U");
  EXPECT_TRUE(finder.choose_pattern().ok());
  EXPECT_EQ(finder.pattern().text(), "processor{rank}/{time}/**");
  EXPECT_EQ(finder.rank_folder_count(), 2u);
  std::filesystem::remove_all(run.path() + "/processor0/0");
  EXPECT_TRUE(finder.choose_pattern().ok());
  EXPECT_FALSE(finder.pattern().is_default());
}

TEST_F(AFinder, FindsTheTimesOfOpenFoamWithoutProcessors) {
  write("0/U");
  write("0.5/U");
  write("constant/transportProperties");
  EXPECT_EQ(found("openfoam"), (Lines{"0.0: U", "0.5: U"}));
  EXPECT_EQ(pattern, "{time}/**");
}

TEST_F(AFinder, FindsTheRestartsOfLammpsHoweverTheyAreCalled) {
  write("log.lammps");
  write("melt.data");
  write("restart.100");
  write("restart.200");
  EXPECT_EQ(found("lammps"), (Lines{"100: restart.100", "200: restart.200"}));
  write("melt.50.restart.base");
  write("melt.50.restart.0");
  write("melt.50.restart.1");
  EXPECT_EQ(found("lammps"), (Lines{"50: melt.50.restart.0(0) melt.50.restart.1(1) melt.50.restart.base"}));
}

TEST_F(AFinder, TakesFilesWithoutAStepForOneSetThatGoesByTime) {
  write("state.cpt");
  write("state_prev.cpt");
  write("md.log");
  write("old/state.cpt");
  const auto at =
      std::filesystem::file_time_type::clock::from_sys(std::chrono::sys_seconds(std::chrono::seconds(1764000000)));
  std::filesystem::last_write_time(run.path() + "/state.cpt", at);
  std::filesystem::last_write_time(run.path() + "/state_prev.cpt", at - std::chrono::seconds(60));
  EXPECT_EQ(found("gromacs"), (Lines{"1764000000: state.cpt state_prev.cpt"}));
}

TEST_F(AFinder, LooksOnlyWhereAPatternLeads) {
  write("restart.4.0");
  write("restart.4.1");
  write("below/restart.5.0");
  EXPECT_EQ(found("restart.{step}.{rank}"), (Lines{"4: restart.4.0(0) restart.4.1(1)"}));
  EXPECT_EQ(found("*/restart.{step}.{rank}"), (Lines{"5: below/restart.5.0(0)"}));
}

TEST_F(AFinder, GoesByTheFirstPatternWhereThereIsNothingYet) {
  EXPECT_EQ(found("openfoam"), Lines{});
  EXPECT_EQ(pattern, "processor{rank}/{time}/**");
}

}  // namespace
}  // namespace varve
