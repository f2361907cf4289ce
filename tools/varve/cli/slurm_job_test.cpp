#include "cli/slurm_job.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace varve::cli {
namespace {
/// A Slurm that answers what it is told to.
class FakeSlurm {
 public:
  std::map<std::string, std::string> environment = {{"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NAME", "heat"}};
  std::map<std::string, std::string> answers;  ///< by the command's first two words
  std::vector<std::string> asked;

  std::optional<SlurmJob> job() {
    return SlurmJob::find(
        [this](const char* name) {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        [this](const std::string& command) -> Result<std::string> {
          asked.push_back(command);
          for (const auto& [begin, answer] : answers) {
            if (command.starts_with(begin)) return answer;
          }
          return Status::io_error("no answer", command);
        });
  }
};

TEST(SlurmJob, IsFoundByItsNumber) {
  FakeSlurm slurm;
  ASSERT_TRUE(slurm.job());
  EXPECT_EQ(slurm.job()->name(), "heat");
  slurm.environment["SLURM_JOB_ID"] = "1; rm -r /";
  EXPECT_FALSE(slurm.job());
  slurm.environment.erase("SLURM_JOB_ID");
  EXPECT_FALSE(slurm.job());
}

TEST(SlurmJob, EndsWhenTheEnvironmentSaysElseWhenTheQueueSays) {
  FakeSlurm slurm;
  slurm.answers["squeue"] = "1-00:01:40\n";
  EXPECT_EQ(slurm.job()->end_time(1000), 1000 + 86'400 + 100);
  slurm.answers["squeue"] = "UNLIMITED\n";
  EXPECT_EQ(slurm.job()->end_time(1000), std::nullopt);
  slurm.answers.clear();
  EXPECT_EQ(slurm.job()->end_time(1000), std::nullopt);
  slurm.environment["SLURM_JOB_END_TIME"] = "5000";
  EXPECT_EQ(slurm.job()->end_time(1000), 5000);
}

TEST(SlurmJob, DurationsAreReadAsTheQueuePrintsThem) {
  EXPECT_EQ(parse_slurm_duration("0:30"), 30);
  EXPECT_EQ(parse_slurm_duration("2:05:00\n"), 7500);
  EXPECT_EQ(parse_slurm_duration("3-04:00:01"), 3 * 86'400 + 4 * 3600 + 1);
  EXPECT_EQ(parse_slurm_duration("INVALID"), std::nullopt);
  EXPECT_EQ(parse_slurm_duration(""), std::nullopt);
}

TEST(SlurmJob, KnowsWhichCodesRequeue) {
  FakeSlurm slurm;
  slurm.answers["scontrol show config"] = "A = 1\nRequeueExit             = 3,70-75\nRequeueExitHold         = 80\n";
  EXPECT_TRUE(slurm.job()->is_requeued_by(75));
  EXPECT_TRUE(slurm.job()->is_requeued_by(3));
  EXPECT_FALSE(slurm.job()->is_requeued_by(80));
  slurm.answers["scontrol show config"] = "A = 1\nRequeueExit             = (null)\n";
  EXPECT_FALSE(slurm.job()->is_requeued_by(75));
}

TEST(SlurmJob, IsNotRequeuedWhenItWasCancelled) {
  FakeSlurm slurm;
  slurm.answers["scontrol --oneliner show job"] = "JobId=4711 JobState=CANCELLED Reason=None";
  slurm.answers["scontrol requeue"] = "";
  EXPECT_EQ(slurm.job()->requeue().code(), StatusCode::busy);
  EXPECT_EQ(slurm.asked.size(), 1u);
  slurm.answers["scontrol --oneliner show job"] = "JobId=4711 JobState=RUNNING Reason=None";
  EXPECT_TRUE(slurm.job()->requeue().ok());
  EXPECT_EQ(slurm.asked.back(), "scontrol requeue 4711 2>&1");
}
}  // namespace
}  // namespace varve::cli
