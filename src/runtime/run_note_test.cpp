#include "runtime/run_note.h"

#include <gtest/gtest.h>

#include "core/memory_file_system.h"

namespace varve {
namespace {
TEST(RunNote, ComesBackAsItWasWritten) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_directory("/job").ok());
  EXPECT_EQ(read_run_note(files, "/job/note").status().code(), StatusCode::not_found);
  const RunNote begun{.restarted_from = 7};
  ASSERT_TRUE(write_run_note(files, "/job/note", begun).ok());
  EXPECT_EQ(*read_run_note(files, "/job/note"), begun);
  const RunNote ended{.restarted_from = 7,
                      .last_step = 90,
                      .place = "dir:/lustre/my store",
                      .stopped_by = "the end of the job's time",
                      .ended = true};
  ASSERT_TRUE(write_run_note(files, "/job/note", ended).ok());
  EXPECT_EQ(*read_run_note(files, "/job/note"), ended);
}

TEST(RunNote, IsRefusedIfItIsNone) {
  EXPECT_EQ(RunNote::parse("").status().code(), StatusCode::corrupt);
  EXPECT_EQ(RunNote::parse("something else\n").status().code(), StatusCode::corrupt);
  EXPECT_EQ(RunNote::parse("varve note 1\nlast_step many\n").status().code(), StatusCode::corrupt);
  EXPECT_EQ(RunNote::parse("varve note 1\nlast_step 7").status().code(), StatusCode::corrupt);
  // A later version may say more.
  EXPECT_TRUE(RunNote::parse("varve note 1\nmood good\n").ok());
}
}  // namespace
}  // namespace varve
