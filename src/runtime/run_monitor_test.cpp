#include "runtime/run_monitor.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sets/folders.h"

namespace varve {
namespace {

std::string contents_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Monitor : public testing::Test {
 protected:
  void start(const MonitorPlaces& places) {
    monitor_.start({.job = "heat", .run = "0123"}, places, {"memory", "dir:/near", "dir:/far"}, 1);
  }
  std::vector<nlohmann::json> events() const {
    std::vector<nlohmann::json> events;
    std::ifstream file(places_.timeline);
    for (std::string line; std::getline(file, line);) events.push_back(nlohmann::json::parse(line));
    return events;
  }
  void checkpoint(uint64_t step) {
    const double begin = clock_.seconds();
    const BlockedTime::Part call(blocked_, BlockedCause::copy);
    clock_.advance(1);
    monitor_.note_snapshot(step, begin, true, SnapshotCost{.bytes = 100, .copied_bytes = 60});
  }

  test::TempFolder folder_;
  MonitorPlaces places_{.live_file = folder_ / "live.prom",
                        .metrics_file = folder_ / "heat.prom",
                        .timeline = folder_ / "runs/heat.timeline"};
  ManualClock clock_;
  BlockedTime blocked_{clock_};
  RunLedger ledger_{clock_};
  WarningList warnings_;
  RunMonitor monitor_{blocked_, ledger_, warnings_, clock_};
};

TEST_F(Monitor, TellsWhatHasHappenedInItsOrder) {
  start(places_);
  monitor_.note_restart(std::nullopt, 0);
  checkpoint(10);
  DrainReport report;
  report.step = 10;
  report.stored_bytes = 20;
  monitor_.note_drained(report);
  monitor_.note_level({.what = LevelNews::What::begun, .level = "dir:/far", .step = 10});
  monitor_.note_level({.what = LevelNews::What::failed,
                       .level = "dir:/far",
                       .step = 10,
                       .why = Status::io_error("it is away", "dir:/far")});
  monitor_.note_skipped(20, clock_.seconds());
  monitor_.end("");
  std::string told;
  for (const nlohmann::json& event : events()) told += event["event"].get<std::string>() + " ";
  EXPECT_EQ(told, "open restart checkpoint stored begun away skipped end ");
  EXPECT_EQ(events()[2]["blocked"]["copy"], 1);
  EXPECT_TRUE(warnings_.take().empty());
}

TEST_F(Monitor, TellsAllBlockedTimeOnce) {
  start(places_);
  for (uint64_t step = 1; step <= 5; ++step) {
    checkpoint(step);
    const BlockedTime::Part call(blocked_, BlockedCause::ranks);
    clock_.advance(0.5);
  }
  monitor_.end("");
  double copy = 0, ranks = 0;
  for (const nlohmann::json& event : events()) {
    if (!event.contains("blocked")) continue;
    copy += event["blocked"].value("copy", 0.0);
    ranks += event["blocked"].value("ranks", 0.0);
  }
  EXPECT_DOUBLE_EQ(copy, 5);
  EXPECT_DOUBLE_EQ(ranks, 2.5);
}

TEST_F(Monitor, LeavesItsMetricsAtTheEndAndSaysSo) {
  start(places_);
  checkpoint(10);
  monitor_.end("the disk is full");
  const std::string told = contents_of(places_.metrics_file);
  EXPECT_NE(told.find("varve_run_running{job=\"heat\"} 0\n"), std::string::npos) << told;
  EXPECT_NE(told.find("varve_run_failed{job=\"heat\"} 1\n"), std::string::npos);
  EXPECT_NE(told.find("varve_run_newest_step{job=\"heat\"} 10\n"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(places_.live_file)) << "it is of runs that live";
}

TEST_F(Monitor, CallsAFileInAFolderAsTheJob) {
  places_.metrics_file = std::string(folder_ / ".");
  start(places_);
  monitor_.end("");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "varve-heat.prom"));
}

TEST_F(Monitor, FailsNothingWhereNothingCanBeWritten) {
  start({.live_file = folder_ / "no/live.prom",
         .metrics_file = folder_ / "no/heat.prom",
         .timeline = folder_ / "no/runs/x"});
  checkpoint(10);
  monitor_.end("");
  const std::vector<Status> warnings = warnings_.take();
  EXPECT_LE(warnings.size(), 2u) << "one for each place, however often it is tried";
}

TEST_F(Monitor, AsksWhileItMay) {
  std::atomic<int> asked = 0;
  start(places_);
  monitor_.let_ask([&] {
    ++asked;
    return RunSample{.levels = {{.level = "dir:/far", .waiting = 3}}, .bytes_to_write = 10, .bytes_written = 4};
  });
  monitor_.let_ask(nullptr);
  const int before = asked;
  monitor_.end("");
  EXPECT_EQ(asked, before);
}

TEST_F(Monitor, ThatTellsNobodyKnowsNothing) {
  checkpoint(10);
  monitor_.end("");
  EXPECT_TRUE(std::filesystem::is_empty(std::string(folder_ / ".")));
}

TEST_F(Monitor, WritesWhatBeginsBeforeAnythingElseHappens) {
  places_.look_seconds = 3600;
  start(places_);
  monitor_.note_making(10, clock_.seconds());
  const auto is_told = [this] {
    const std::string log = contents_of(places_.timeline);
    return log.find("\"making\"") != std::string::npos && log.ends_with('\n');
  };
  for (int i = 0; i < 6000 && !is_told(); ++i) sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(is_told()) << "a run that is killed now has not said what it was doing";
  EXPECT_EQ(events().back()["step"], "10");
  EXPECT_EQ(events().front()["start_ticks"], ProcessIdentity::own()->start_ticks);
  monitor_.end("");
}

TEST_F(Monitor, ShowsALivingRunToItsUserAlone) {
  start(places_);
  struct stat facts {};
  // The thread writes it at once.
  for (int i = 0; i < 1000 && ::stat(places_.live_file.c_str(), &facts) != 0; ++i)
    sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  monitor_.end("");
}

}  // namespace
}  // namespace varve
