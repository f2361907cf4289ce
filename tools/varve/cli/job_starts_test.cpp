#include "cli/job_starts.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"

namespace varve::cli {
namespace {
TEST(JobStarts, ComeBackAsTheyWereWritten) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_directory("/runs").ok());
  EXPECT_EQ(*read_job_starts(files, "/runs/heat"), JobStarts());
  const JobStarts starts{.starts = 4, .crashes = 2, .step = 60, .is_under_way = true, .was_asked = true};
  ASSERT_TRUE(write_job_starts(files, "/runs/heat", starts).ok());
  EXPECT_EQ(*read_job_starts(files, "/runs/heat"), starts);
  EXPECT_EQ(JobStarts::parse("something else\n").status().code(), StatusCode::corrupt);
  EXPECT_EQ(JobStarts::parse("varve starts 1\nstarts few\n").status().code(), StatusCode::corrupt);
}

TEST(JobStarts, CountCrashesFromTheSameStep) {
  JobStarts starts;
  for (const uint64_t step : {60, 60, 60}) {
    starts.note_start({});
    starts.note_crash(step);
  }
  EXPECT_EQ(starts.crashes, 3u);
  EXPECT_EQ(starts.starts, 3u);
  // There was a checkpoint in between.
  starts.note_start({});
  starts.note_crash(70);
  EXPECT_EQ(starts.crashes, 1u);
}

TEST(JobStarts, AnOrderlyStopIsNoCrash) {
  JobStarts starts;
  starts.note_start({});
  starts.note_crash(60);
  starts.note_start({});
  starts.note_good_end();
  EXPECT_EQ(starts.crashes, 0u);
}

TEST(JobStarts, OneThatEndedWithoutAWordIsACrashUnlessItWasAskedToStop) {
  JobStarts starts;
  starts.note_start({});
  starts.note_start(RunNote{.restarted_from = 60});  // its node went down
  EXPECT_EQ(starts.crashes, 1u);
  starts.was_asked = true;  // and this one was killed in the middle of its stop
  starts.note_start(RunNote{.restarted_from = 60});
  EXPECT_EQ(starts.crashes, 0u);
  EXPECT_EQ(starts.starts, 3u);
}

TEST(JobStarts, CrashesBeforeTheFirstCheckpointCountToo) {
  JobStarts starts;
  for (int i = 0; i < 3; ++i) {
    starts.note_start({});
    starts.note_crash(std::nullopt);
  }
  EXPECT_EQ(starts.crashes, 3u);
}
}  // namespace
}  // namespace varve::cli
