#include "report/run_timeline.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "runtime/timeline_log.h"
#include "sets/folders.h"

namespace varve {
namespace {

using Json = nlohmann::ordered_json;

std::string line(const RunEvent& event, std::string_view run = "a") { return run_event_line(event, run); }

RunEvent event_of(RunEventKind kind, double at, const std::string& step = "") {
  RunEvent event{.kind = kind, .at = at, .step = step};
  return event;
}

RunEvent blocking(RunEvent event, BlockedCause cause, double seconds) {
  event.tells_blocked = true;
  event.blocked.of(cause) = seconds;
  return event;
}

RunEvent at_level(RunEvent event, const std::string& level, const std::string& why = "") {
  event.place = level;
  event.why = why;
  return event;
}

/// A run whose farther level fails at first, which is killed, and its next one, which goes on.
std::string two_runs() {
  using Kind = RunEventKind;
  RunEvent stored = event_of(Kind::stored, 108, "10");
  stored.begin = 105;
  stored.bytes = 1000;
  stored.stored_bytes = 250;
  stored.work_begin = 106;
  stored.work_seconds = 1.5;
  stored.times.encode = 1;
  RunEvent checkpoint = blocking(event_of(Kind::checkpoint, 106, "10"), BlockedCause::copy, 0.75);
  checkpoint.begin = 105;
  checkpoint.blocked.of(BlockedCause::other) = 0.25;
  RunEvent restart = at_level(blocking(event_of(Kind::restart, 201, "10"), BlockedCause::restart, 0.5), "dir:/near");
  restart.count = 1;
  return line(blocking(event_of(Kind::open, 100), BlockedCause::open, 2)) +
         line(blocking(event_of(Kind::restart, 101), BlockedCause::restart, 1)) + line(checkpoint) + line(stored) +
         line(at_level(event_of(Kind::begun, 108.5, "10"), "dir:/far")) +
         line(at_level(event_of(Kind::away, 109, "10"), "dir:/far", "no such host")) +
         line(event_of(Kind::skipped, 110, "20")) + line(event_of(Kind::open, 200), "b") + line(restart, "b") +
         line(at_level(event_of(Kind::begun, 202, "10"), "dir:/far"), "b") +
         line(at_level(event_of(Kind::arrived, 203, "10"), "dir:/far"), "b") +
         line(blocking(event_of(Kind::checkpoint, 204, "1.5"), BlockedCause::copy, 1), "b") +
         line(event_of(Kind::failed, 205, "1.5"), "b") + line(event_of(Kind::end, 206), "b");
}

TEST(RunTimeline, SaysWhatBecameOfEachCheckpoint) {
  const Json timeline = timeline_of_text(two_runs(), "heat");
  EXPECT_EQ(timeline["skipped_lines"], 0);
  ASSERT_EQ(timeline["runs"].size(), 2u);
  const Json &first = timeline["runs"][0], &second = timeline["runs"][1];
  EXPECT_EQ(first["state"], "cut off");
  EXPECT_EQ(second["state"], "ended");
  ASSERT_EQ(first["checkpoints"].size(), 2u);
  const Json& ten = first["checkpoints"][0];
  EXPECT_EQ(ten["step"], 10);
  EXPECT_EQ(ten["outcome"], "stored");
  EXPECT_EQ(ten["stored"], 108);
  EXPECT_EQ(ten["raw_bytes"], 1000);
  EXPECT_EQ(ten["encode_seconds"], 1);
  EXPECT_EQ(ten["levels"][0]["failures"], 1);
  EXPECT_TRUE(ten["levels"][0]["arrived"].is_null());
  EXPECT_EQ(first["failures"][0]["why"], "no such host");
  EXPECT_EQ(first["checkpoints"][1]["outcome"], "skipped");
  EXPECT_EQ(second["restarts"][0]["step"], 10);
  EXPECT_EQ(second["restarts"][0]["passed_over"], 1);
  EXPECT_EQ(second["checkpoints"][0]["levels"][0]["arrived"], 203) << "it was made by the run before";
  EXPECT_EQ(second["checkpoints"][1]["step"], 1.5);
  EXPECT_EQ(second["checkpoints"][1]["outcome"], "failed");
}

TEST(RunTimeline, MarksWhatWasUnderWayWhenTheRunWasKilledAsFailed) {
  using Kind = RunEventKind;
  RunEvent making = event_of(Kind::making, 104, "10"), next_making = event_of(Kind::making, 120, "20");
  making.begin = 104;
  next_making.begin = 119;
  RunEvent checkpoint = event_of(Kind::checkpoint, 105, "10");
  checkpoint.begin = 104;
  const std::string killed = line(event_of(Kind::open, 100)) + line(making) + line(checkpoint) +
                             line(event_of(Kind::stored, 106, "10")) +
                             line(at_level(event_of(Kind::begun, 107, "10"), "dir:/far")) + line(next_making);
  EXPECT_EQ(timeline_of_text(killed, "heat")["runs"][0]["checkpoints"][1]["outcome"], "on its way")
      << "nobody knows whether it lives";
  const Json run = timeline_of_text(killed + line(event_of(Kind::open, 200), "b"), "heat")["runs"][0];
  EXPECT_EQ(run["state"], "cut off");
  ASSERT_EQ(run["checkpoints"].size(), 2u) << "what was begun and made is one";
  EXPECT_EQ(run["checkpoints"][0]["outcome"], "stored");
  EXPECT_EQ(run["checkpoints"][1]["outcome"], "cut off");
  EXPECT_EQ(run["checkpoints"][1]["begin"], 119);
  EXPECT_TRUE(run["checkpoints"][1]["end"].is_null());
  ASSERT_EQ(run["failures"].size(), 2u);
  EXPECT_EQ(run["failures"][0]["level"], "dir:/far");
  EXPECT_EQ(run["failures"][1]["step"], 20);
  EXPECT_EQ(run["failures"][1]["what"], "cut off");
}

TEST(RunTimeline, KnowsThatTheNewestRunWasKilledWhereItsProcessWas) {
  RunEvent open = event_of(RunEventKind::open, 100);
  open.process = ProcessIdentity::own().value();
  EXPECT_EQ(timeline_of_text(line(open), "heat")["runs"][0]["state"], "open");
  ++open.process.start_ticks;  // another one that had the same number
  EXPECT_EQ(timeline_of_text(line(open), "heat")["runs"][0]["state"], "cut off");
  open.process.boot = UniqueId();  // on another machine, or before it was started
  EXPECT_EQ(timeline_of_text(line(open), "heat")["runs"][0]["state"], "open");
}

TEST(RunTimeline, AttributesAllBlockedTimeButWhatIsOther) {
  const Json timeline = timeline_of_text(two_runs(), "heat");
  EXPECT_DOUBLE_EQ(timeline["blocked_seconds"].get<double>(), 5.5);
  EXPECT_DOUBLE_EQ(timeline["blocked"]["restart"].get<double>(), 1.5);
  EXPECT_DOUBLE_EQ(timeline["attributed_share"].get<double>(), 1 - 0.25 / 5.5);
}

TEST(RunTimeline, CountsLinesThatMakeNoSenseAndGoesOn) {
  const std::string good = line(event_of(RunEventKind::open, 100));
  for (const std::string& bad : std::vector<std::string>{
           "{", "[]", "null", "\"open\"", "{}", R"({"event":"open"})", R"({"event":"open","run":"a"})",
           R"({"event":"open","run":"a","at":-1})", R"({"event":"open","run":"a","at":1e300})",
           R"({"event":"open","run":7,"at":1})", R"({"event":"stored","run":"a","at":1})",
           R"({"event":"stored","run":"a","at":1,"step":"x"})", R"({"event":"stored","run":"a","at":1,"step":[]})",
           R"({"event":"unheard of","run":"a","at":1,"step":"1"})", std::string(100'000, '['),
           std::string(1000, '\xff'), std::string("\0\0", 2)}) {
    const Json timeline = timeline_of_text(good + bad + "\n" + good, "heat");
    EXPECT_EQ(timeline["skipped_lines"], 1) << bad.substr(0, 100);
    EXPECT_EQ(timeline["runs"].size(), 1u);
  }
}

TEST(RunTimeline, TakesNothingForMoreThanItIs) {
  const Json timeline = timeline_of_text(
      R"({"event":"checkpoint","run":"a","at":5,"step":"7","begin":"x","bytes":-3,"blocked":{"copy":-1,"room":"y","new":3}})"
      "\n",
      "heat");
  const Json& one = timeline["runs"][0]["checkpoints"][0];
  EXPECT_TRUE(one["begin"].is_null());
  EXPECT_EQ(one["bytes"], 0);
  EXPECT_EQ(timeline["blocked_seconds"], 0);
  EXPECT_EQ(timeline["attributed_share"], 1);
}

TEST(RunTimeline, OfALogWithDamageIsAsGoodAsCanBe) {
  const uint32_t seed = 7;
  std::mt19937 random(seed);
  const std::string whole = two_runs();
  for (int round = 0; round < 500; ++round) {
    std::string torn = whole;
    for (int i = 0; i < 5; ++i) torn[random() % torn.size()] = static_cast<char>(random());
    torn.resize(torn.size() - random() % 50);
    const Json timeline = timeline_of_text(torn, "heat");
    EXPECT_LE(timeline["skipped_lines"].get<int>(), 30) << "seed " << seed << ", round " << round;
    EXPECT_FALSE(timeline_page(timeline, "text").empty());
  }
}

TEST(RunTimeline, PageIsSafeWhateverTheLogHolds) {
  RunEvent hostile = event_of(RunEventKind::open, 100);
  hostile.host = "</script><script>alert(1)</script><!--";
  const std::string page = timeline_page(timeline_of_text(line(hostile), "</title>"), "<b>&");
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_NE(page.find("&lt;b&gt;&amp;"), std::string::npos);
  for (const char* link : {"src=\"", "href=\"http", "url(", "import "})
    EXPECT_EQ(page.find(link), std::string::npos) << link;
}

TEST(RunTimeline, IsReadWithTheLogThatWasPutAside) {
  const test::TempFolder folder;
  const std::string path = folder / "heat.timeline";
  EXPECT_EQ(read_timeline(path, "heat").status().code(), StatusCode::not_found);
  test::write_file(older_timeline_path(path), line(event_of(RunEventKind::open, 1)));
  test::write_file(path, line(event_of(RunEventKind::end, 2)));
  const Json timeline = read_timeline(path, "heat").value();
  ASSERT_EQ(timeline["runs"].size(), 1u);
  EXPECT_EQ(timeline["runs"][0]["begin"], 1);
  EXPECT_EQ(timeline["runs"][0]["end"], 2);
}

TEST(RunTimeline, IsNotWaitedForAtAPipe) {
  const test::TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_timeline(folder / "pipe", "heat").status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace varve
