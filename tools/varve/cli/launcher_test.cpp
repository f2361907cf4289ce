#include "cli/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace varve::cli {
namespace {

std::pair<uint32_t, uint32_t> found_in(const std::map<std::string, std::string>& environment) {
  const Launch launch = find_launch([&](const char* name) -> const char* {
    auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
  return {launch.process_count, launch.process};
}
using Pair = std::pair<uint32_t, uint32_t>;

TEST(Launcher, IsFoundByWhatItTellsItsProcesses) {
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}), Pair(4, 3));
  EXPECT_EQ(found_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}}), Pair(2, 0));
  EXPECT_EQ(found_in({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "5"}}), Pair(8, 5));
}

TEST(Launcher, IsTheInnermost) {
  EXPECT_EQ(found_in({{"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_RANK", "3"},
                      {"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_PROCID", "1"}}),
            Pair(4, 3));
}

TEST(Launcher, IsNoneInABatchScriptOrWithoutSense) {
  EXPECT_EQ(found_in({}), Pair(1, 0));
  EXPECT_EQ(found_in({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}), Pair(1, 0));
  EXPECT_EQ(found_in({{"PMI_SIZE", "2"}}), Pair(1, 0));
  EXPECT_EQ(found_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}}), Pair(1, 0));
  EXPECT_EQ(found_in({{"PMI_SIZE", "two"}, {"PMI_RANK", "0"}}), Pair(1, 0));
  EXPECT_EQ(found_in({{"PMI_SIZE", ""}, {"PMI_RANK", "0"}}), Pair(1, 0));
}

TEST(Launcher, IsIgnoredByProcessesThatWorkAlone) {
  EXPECT_EQ(found_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"VARVE_ALONE", "1"}}), Pair(1, 0));
  EXPECT_EQ(found_in({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"VARVE_ALONE", "0"}}), Pair(2, 1));
}

}  // namespace
}  // namespace varve::cli
