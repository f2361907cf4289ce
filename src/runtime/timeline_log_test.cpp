#include "runtime/timeline_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sets/folders.h"

namespace varve {
namespace {

class TimelineLog : public testing::Test {
 protected:
  std::string contents(const std::string& path) const {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  test::TempFolder folder_;
  std::string path_ = timeline_path(folder_ / "runs", "heat");
};

TEST_F(TimelineLog, IsMadeWithItsFolderButNotWithAStore) {
  ASSERT_TRUE(append_to_timeline(path_, "a\n").ok());
  ASSERT_TRUE(append_to_timeline(path_, "b\n").ok());
  EXPECT_EQ(contents(path_), "a\nb\n");
  EXPECT_EQ(append_to_timeline(folder_ / "store/runs/heat.timeline", "a\n").code(), StatusCode::not_found);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "store"));
}

TEST_F(TimelineLog, EndsALineThatADeadProgramHasBegun) {
  ASSERT_TRUE(append_to_timeline(path_, "a\n{\"ev").ok());
  ASSERT_TRUE(append_to_timeline(path_, "b\n").ok());
  EXPECT_EQ(contents(path_), "a\n{\"ev\nb\n");
}

TEST_F(TimelineLog, IsPutAsideBeforeItIsTooLarge) {
  const std::string much(kTimelineBytesMax - 1, 'x');
  ASSERT_TRUE(append_to_timeline(path_, much + "\n").ok());
  ASSERT_TRUE(append_to_timeline(path_, "a\n").ok());
  EXPECT_EQ(contents(path_), "a\n");
  EXPECT_EQ(contents(older_timeline_path(path_)).size(), kTimelineBytesMax);
  ASSERT_TRUE(append_to_timeline(path_, much + "\n").ok());
  EXPECT_EQ(contents(older_timeline_path(path_)), "a\n") << "there are two of them at most";
}

TEST_F(TimelineLog, IsNeverWrittenThroughALinkNorToAPipe) {
  std::filesystem::create_directory(folder_ / "runs");
  std::ofstream(folder_ / "precious") << "precious";
  std::filesystem::create_symlink(folder_ / "precious", path_);
  EXPECT_FALSE(append_to_timeline(path_, "a\n").ok());
  EXPECT_EQ(contents(folder_ / "precious"), "precious");
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(append_to_timeline(path_, "a\n").ok());
}

TEST_F(TimelineLog, HasOneObjectALine) {
  RunEvent event{.kind = RunEventKind::checkpoint, .at = 12.5, .step = "40", .begin = 12.25, .tells_blocked = true};
  event.blocked.of(BlockedCause::copy) = 0.25;
  event.why = "bytes \xff and \n newlines";
  const std::string line = run_event_line(event, "run");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["event"], "checkpoint");
  EXPECT_EQ(json["run"], "run");
  EXPECT_EQ(json["at"], 12.5);
  EXPECT_EQ(json["step"], "40");
  EXPECT_EQ(json["blocked"].size(), 1u);
  EXPECT_EQ(json["blocked"]["copy"], 0.25);
}

}  // namespace
}  // namespace varve
